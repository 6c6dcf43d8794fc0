// NCCL without the worker library: the functions that a plain program needs, opened at run time, so
// that tests and benchmarks build without CUDA. Source: "NCCL API" of its documentation. Throws
// std::runtime_error where the library is missing or refuses.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <dlfcn.h>

namespace muster::gpu {

struct UniqueId {
  char bytes[128];
};

class PlainNccl {
 public:
  PlainNccl() {
    const char* const named = std::getenv("MUSTER_NCCL_LIBRARY");
    library_ = dlopen(named != nullptr ? named : "libnccl.so.2", RTLD_NOW);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    find(unique_id_, "ncclGetUniqueId");
    find(init_rank_, "ncclCommInitRank");
    find(all_reduce_, "ncclAllReduce");
    find(destroy_, "ncclCommDestroy");
  }
  UniqueId unique_id() {
    UniqueId id{};
    check("ncclGetUniqueId", unique_id_(&id));
    return id;
  }
  void join(const UniqueId& id, int ranks, int rank) {
    check("ncclCommInitRank", init_rank_(&communicator_, ranks, id, rank));
  }
  // A sum of float32.
  void all_reduce(const void* in, void* out, size_t count, void* stream) {
    constexpr int kFloat32 = 7;
    constexpr int kSum = 0;
    check("ncclAllReduce", all_reduce_(in, out, count, kFloat32, kSum, communicator_, stream));
  }
  void leave() { check("ncclCommDestroy", destroy_(communicator_)); }

 private:
  template <typename Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("libnccl has no ") + name);
  }
  static void check(const char* what, int result) {
    if (result != 0) throw std::runtime_error(std::string(what) + ": " + std::to_string(result));
  }

  void* library_ = nullptr;
  void* communicator_ = nullptr;
  int (*unique_id_)(UniqueId*) = nullptr;
  int (*init_rank_)(void**, int, UniqueId, int) = nullptr;
  int (*all_reduce_)(const void*, void*, size_t, int, int, void*, void*) = nullptr;
  int (*destroy_)(void*) = nullptr;
};

}  // namespace muster::gpu

// The overhead of a call over NCCL alone, and its effect: all_reduce of a process group compared
// with ncclAllReduce on this program's own communicator, in alternating calls on one stream.
//
//   muster --nproc-per-node 2 build/release/tests/nccl_bench
//
// Prints a Markdown table: the time for which the calling thread is busy (medians of 1,000 calls of
// each and of their differences), and the time until the result is there, with the bandwidths of
// nccl-tests (busbw = algbw * 2 (n - 1) / n). If there is only one GPU the ranks share it, each
// with its own NCCL_HOSTID. Without a GPU: says why and exits with 77.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "muster/distributed.h"
#include "tests/matrix/test_cuda.h"

namespace {

using Clock = std::chrono::steady_clock;
using muster::matrix::CudaDriver;

constexpr int kCalls = 1000;
constexpr int kWarmUp = 50;
constexpr int kFloat32 = 7;
constexpr int kSum = 0;

struct UniqueId {
  char bytes[128];
};

// The four functions of NCCL that a plain program needs. Source: "NCCL API" of its documentation.
class PlainNccl {
 public:
  explicit PlainNccl(muster::ProcessGroup& world) {
    const char* const named = std::getenv("MUSTER_NCCL_LIBRARY");
    void* const library = dlopen(named != nullptr ? named : "libnccl.so.2", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(dlerror());
    int (*unique_id)(UniqueId*) = nullptr;
    int (*init_rank)(void**, int, UniqueId, int) = nullptr;
    find(library, unique_id, "ncclGetUniqueId");
    find(library, init_rank, "ncclCommInitRank");
    find(library, all_reduce_, "ncclAllReduce");
    UniqueId id{};
    std::string bytes(sizeof id, '\0');
    if (world.rank().value == 0) {
      check("ncclGetUniqueId", unique_id(&id));
      std::memcpy(bytes.data(), &id, sizeof id);
    }
    world.broadcast_bytes(bytes, muster::GroupRank{0});
    std::memcpy(&id, bytes.data(), sizeof id);
    check("ncclCommInitRank", init_rank(&communicator_, world.size(), id, world.rank().value));
  }

  void all_reduce(void* data, size_t count, void* stream) {
    check("ncclAllReduce", all_reduce_(data, data, count, kFloat32, kSum, communicator_, stream));
  }

 private:
  template <typename Function>
  static void find(void* library, Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(std::string("libnccl has no ") + name);
  }
  static void check(const char* what, int result) {
    if (result != 0) throw std::runtime_error(std::string(what) + ": " + std::to_string(result));
  }

  void* communicator_ = nullptr;
  int (*all_reduce_)(const void*, void*, size_t, int, int, void*, void*) = nullptr;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Microseconds of each call.
struct Samples {
  std::vector<double> plain, ours, added;
};

class Bench {
 public:
  Bench()
      : world_(muster::world()),
        device_(muster::device()),
        cuda_(prepare(device_)),
        nccl_(world_),
        stream_(cuda_.new_stream()) {}

  void run() {
    const std::vector<size_t> sizes = {8, 4096, size_t{256} << 10, size_t{8} << 20,
                                       size_t{64} << 20};
    say("\n%d ranks, all_reduce of float32 in place, medians of %d interleaved calls\n\n",
        world_.size(), kCalls);
    say("| size (B) | calling thread: NCCL (µs) | muster | added | until done: NCCL (µs) | muster "
        "| added | "
        "NCCL algbw (GB/s) | busbw | muster algbw | busbw |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (const size_t size : sizes)
      row(size);
  }

 private:
  static CudaDriver& prepare(muster::Device device) {
    CudaDriver::instance().use(device.index);
    return CudaDriver::instance();
  }

  template <typename... Args>
  void say(const char* format, Args... args) const {
    if (world_.rank().value != 0) return;
    std::printf(format, args...);
    std::fflush(stdout);
  }

  void row(size_t bytes) {
    const size_t count = bytes / sizeof(float);
    std::byte* const memory = cuda_.allocate(bytes);
    verify(memory, count);
    const Samples busy = measure(memory, count, false);
    const Samples done = measure(memory, count, true);
    cuda_.free(memory);
    const double plain = median(done.plain), ours = median(done.ours);
    const double factor = 2.0 * (world_.size() - 1) / world_.size();
    const auto bandwidth = [&](double us) { return static_cast<double>(bytes) / us / 1e3; };
    say("| %zu | %.2f | %.2f | %+.2f | %.2f | %.2f | %+.2f | %.2f | %.2f | %.2f | %.2f |\n", bytes,
        median(busy.plain), median(busy.ours), median(busy.added), plain, ours, median(done.added),
        bandwidth(plain), bandwidth(plain) * factor, bandwidth(ours), bandwidth(ours) * factor);
  }

  // Checks that both give the sum over the ranks.
  void verify(std::byte* memory, size_t count) {
    const float mine = static_cast<float>(world_.rank().value + 1);
    const float sum = static_cast<float>(world_.size() * (world_.size() + 1)) / 2;
    for (const bool ours : {false, true}) {
      const std::vector<float> values(count, mine);
      std::vector<std::byte> bytes(count * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      cuda_.write(memory, bytes);
      call(ours, memory, count);
      cuda_.wait_for(stream_);
      cuda_.read(bytes, memory);
      std::vector<float> result(count);
      std::memcpy(result.data(), bytes.data(), bytes.size());
      if (result != std::vector<float>(count, sum))
        throw std::runtime_error(ours ? "muster: wrong sum" : "NCCL: wrong sum");
    }
    // Zeros stay zero, however often they are summed.
    cuda_.write(memory, std::vector<std::byte>(count * sizeof(float)));
  }

  void call(bool ours, std::byte* memory, size_t count) {
    if (ours) {
      world_.all_reduce(muster::Buffer(memory, count, muster::DType::float32, device_),
                        muster::ReduceOp::sum, {.stream = stream_});
    } else {
      nccl_.all_reduce(memory, count, stream_);
    }
  }

  double timed(bool ours, std::byte* memory, size_t count, bool until_done) {
    const Clock::time_point begin = Clock::now();
    call(ours, memory, count);
    if (until_done) cuda_.wait_for(stream_);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (!until_done) cuda_.wait_for(stream_);
    return took.count();
  }

  // Alternates which one is first, so that neither always finds the caches warm.
  Samples measure(std::byte* memory, size_t count, bool until_done) {
    Samples samples;
    for (int i = -kWarmUp; i < kCalls; i++) {
      double us[2];
      for (const bool second : {false, true}) {
        const bool ours = (i % 2 == 0) == second;
        us[ours ? 1 : 0] = timed(ours, memory, count, until_done);
      }
      if (i < 0) continue;
      samples.plain.push_back(us[0]);
      samples.ours.push_back(us[1]);
      samples.added.push_back(us[1] - us[0]);
    }
    return samples;
  }

  muster::ProcessGroup world_;
  muster::Device device_;
  CudaDriver& cuda_;
  PlainNccl nccl_;
  void* stream_;
};

}  // namespace

int main() {
  std::string why;
  if (!muster::is_nccl_available(&why)) {
    std::fprintf(stderr, "SKIPPED: %s\n", why.c_str());
    return 77;
  }
  muster::matrix::let_ranks_share_gpus();
  muster::init_process_group();
  Bench().run();
  muster::destroy_process_group();
}

// NCCL, opened on demand at run time. Our own declarations of the functions that we call, valid for
// all versions from 2.18.3 on (ncclCommSplit appeared in 2.18.1 and has been fixed since); a test
// compares them with the real nccl.h if it finds one. Newer functions are looked up by name.
//
// Source: "NCCL API" of the NCCL documentation. The layout of ncclConfig_t is that of the first
// version with splitShare, which later ones accept (they check `size` and `version`).
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "muster/types.h"
#include "worker_lib/backends/nccl/cuda_driver.h"
#include "worker_lib/backends/opened_library.h"
#include "worker_lib/failure.h"

namespace muster::worker {

using NcclHandle = void*;  // ncclComm_t

enum class NcclResult : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};

enum class NcclType : int {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  int64 = 4,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
};

enum class NcclReduction : int { sum = 0, product = 1, max = 2, min = 3, average = 4 };

struct NcclUniqueId {
  char bytes[128];
};

struct NcclConfig {
  static constexpr unsigned kMagic = 0xcafebeef;
  static constexpr unsigned kVersion = 21800;

  size_t size = sizeof(NcclConfig);
  unsigned magic = kMagic;
  unsigned version = kVersion;
  int blocking = INT_MIN;  // INT_MIN: not set.
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  // trafficClass: padding, but 2.26.2 to 2.26.6 read it whatever `version` says.
  int traffic_class = INT_MIN;
};
static_assert(sizeof(NcclConfig) == 48);

inline constexpr int kNcclOldest = 21803;

// Members are named after NCCL's functions without "nccl". comm_revoke is null in older versions.
struct NcclApi {
  OpenedLibrary library;
  NcclResult (*get_version)(int* version) = library["ncclGetVersion"];
  NcclResult (*get_unique_id)(NcclUniqueId* id) = library["ncclGetUniqueId"];
  NcclResult (*comm_init_rank_config)(NcclHandle* comm, int ranks, NcclUniqueId id, int rank,
                                      NcclConfig* config) = library["ncclCommInitRankConfig"];
  NcclResult (*comm_split)(NcclHandle comm, int color, int key, NcclHandle* made,
                           NcclConfig* config) = library["ncclCommSplit"];
  NcclResult (*comm_destroy)(NcclHandle comm) = library["ncclCommDestroy"];
  NcclResult (*comm_abort)(NcclHandle comm) = library["ncclCommAbort"];
  NcclResult (*comm_revoke)(NcclHandle comm, int flags) = library.find("ncclCommRevoke");
  NcclResult (*comm_get_async_error)(NcclHandle comm,
                                     NcclResult* error) = library["ncclCommGetAsyncError"];
  const char* (*get_error_string)(NcclResult result) = library["ncclGetErrorString"];
  const char* (*get_last_error)(NcclHandle comm) = library["ncclGetLastError"];
  NcclResult (*all_reduce)(const void* in, void* out, size_t count, NcclType type, NcclReduction op,
                           NcclHandle comm, CudaStream stream) = library["ncclAllReduce"];
  NcclResult (*broadcast)(const void* in, void* out, size_t count, NcclType type, int root,
                          NcclHandle comm, CudaStream stream) = library["ncclBroadcast"];
  NcclResult (*reduce)(const void* in, void* out, size_t count, NcclType type, NcclReduction op,
                       int root, NcclHandle comm, CudaStream stream) = library["ncclReduce"];
  NcclResult (*all_gather)(const void* in, void* out, size_t count, NcclType type, NcclHandle comm,
                           CudaStream stream) = library["ncclAllGather"];
  NcclResult (*reduce_scatter)(const void* in, void* out, size_t count, NcclType type,
                               NcclReduction op, NcclHandle comm,
                               CudaStream stream) = library["ncclReduceScatter"];
  NcclResult (*send)(const void* data, size_t count, NcclType type, int peer, NcclHandle comm,
                     CudaStream stream) = library["ncclSend"];
  NcclResult (*recv)(void* data, size_t count, NcclType type, int peer, NcclHandle comm,
                     CudaStream stream) = library["ncclRecv"];
  NcclResult (*group_start)() = library["ncclGroupStart"];
  NcclResult (*group_end)() = library["ncclGroupEnd"];

  int version = 0;  // 23007

  // Text of the result and, in parentheses, NCCL's last error. `comm` may be null.
  std::string describe(NcclResult result, NcclHandle comm) const;
};

// Returns "2.30.7" for 23007.
std::string nccl_version_text(int version);

// Opens NCCL; fails with code backend and a one-line message for the user.
Outcome<NcclApi> open_nccl_library();
// Returns the process's instance, opened by the first call. Any thread.
Outcome<const NcclApi*> nccl_library();
// Sets `*why` if not: no GPU, or no NCCL.
bool can_open_nccl(std::string* why);

}  // namespace muster::worker

// NCCL's profiler plugin interface, versions 3 to 7, as far as muster reads it: our own
// declarations, from NCCL's public source (src/include/plugin/profiler/profiler_v*.h). A plugin is
// a shared library with a table per version, of which NCCL takes the newest that it knows.
//
//   version   first NCCL   new in it
//   3         2.26.2       each event has the communicator's name and hash, but not its size
//   4         2.27.3       name, hash, size and rank are arguments of init() instead
//   5         2.28.3       events of the calls themselves (CollApi, P2pApi), groups, launches
//   6         2.29.2       copy engines
//   7         2.31.2       tags, kernel variants and phases, all after the older fields
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::nccl {

// Bits of the activation mask, one per type of event.
inline constexpr uint64_t kGroup = 1U << 0;  // A plan of kernels, not ncclGroupStart().
inline constexpr uint64_t kColl = 1U << 1;   // A collective as a task, after its launch.
inline constexpr uint64_t kP2p = 1U << 2;
inline constexpr uint64_t kProxyOp = 1U << 3;
inline constexpr uint64_t kProxyStep = 1U << 4;
inline constexpr uint64_t kKernelChannel = 1U << 6;  // A channel of a kernel: start and stop.
inline constexpr uint64_t kNetPlugin = 1U << 7;
inline constexpr uint64_t kGroupApi = 1U << 8;
inline constexpr uint64_t kCollApi = 1U << 9;  // The program's call, before its launch.
inline constexpr uint64_t kP2pApi = 1U << 10;
inline constexpr uint64_t kKernelLaunch = 1U << 11;
inline constexpr uint64_t kCopyEngine = 7U << 12;  // Collective, synchronisation, batch.

using Result = int;  // ncclResult_t; 0: success.
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

// ---- descriptors, the argument of startEvent(): a head, then a part that depends on the type

template <typename Type>  // 8 bits up to version 4, 64 bits from 5 on.
struct DescriptorHead {
  Type type;
  void* parent;  // Handle of another event, as returned by the plugin.
  int rank;      // Own rank in the communicator; set at least for Coll and P2p.
};

struct CollOf4 {
  uint64_t sequence;  // Per communicator and function. Replays of captured graphs do not count.
  const char* function;
  const void* send;
  void* receive;
  size_t count;  // In bytes for AllGather and Broadcast, with "ncclInt8" as type.
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};
struct P2pOf4 {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t channels;
};

struct CollOf3 {
  const char* communicator;
  uint64_t hash;
  CollOf4 rest;  // Here `channels` is an upper bound.
};
struct P2pOf3 {
  const char* communicator;
  uint64_t hash;
  P2pOf4 rest;  // Here `channels` does not exist.
};

struct CollOf5 {
  CollOf4 as_before;
  void* parent_group;  // The `parent` of version 4.
};
struct P2pOf5 {
  P2pOf4 as_before;
  void* parent_group;
};
struct GroupApiOf5 {
  bool is_captured;  // Into a CUDA graph, whose runs do not have these events.
  int depth;
};
struct CollApiOf5 {
  const char* function;
  size_t count;  // The argument that the program passed.
  const char* datatype;
  int root;
  void* stream;
  bool is_captured;
};
struct P2pApiOf5 {
  const char* function;
  size_t count;
  const char* datatype;
  void* stream;
  bool is_captured;
};

struct Descriptor3 : DescriptorHead<uint8_t> {
  union {
    CollOf3 coll;
    P2pOf3 p2p;
  };
};
struct Descriptor4 : DescriptorHead<uint8_t> {
  union {
    CollOf4 coll;
    P2pOf4 p2p;
  };
};
struct Descriptor5 : DescriptorHead<uint64_t> {  // Also for versions 6 and 7.
  union {
    GroupApiOf5 group_api;
    CollApiOf5 coll_api;
    P2pApiOf5 p2p_api;
    CollOf5 coll;
    P2pOf5 p2p;
  };
};

// Holds on both of NCCL's processors, x86-64 and ARM64, which are little-endian.
static_assert(sizeof(void*) == 8 && sizeof(int) == 4 && sizeof(bool) == 1);
static_assert(offsetof(CollOf4, count) == 32 && offsetof(CollOf4, root) == 40);
static_assert(offsetof(CollOf4, datatype) == 48 && offsetof(CollOf4, channels) == 56);
static_assert(offsetof(CollOf4, algorithm) == 64 && sizeof(CollOf4) == 80);
static_assert(offsetof(CollOf3, rest) == 16 && sizeof(CollOf3) == 96);
static_assert(offsetof(CollOf5, parent_group) == 80);
static_assert(offsetof(P2pOf4, count) == 24 && offsetof(P2pOf4, peer) == 32);
static_assert(offsetof(P2pOf4, channels) == 36);
static_assert(offsetof(P2pOf3, rest) == 16 && offsetof(P2pOf5, parent_group) == 40);
static_assert(offsetof(CollApiOf5, datatype) == 16 && offsetof(CollApiOf5, root) == 24);
static_assert(offsetof(CollApiOf5, is_captured) == 40 && offsetof(P2pApiOf5, is_captured) == 32);
static_assert(sizeof(DescriptorHead<uint8_t>) == 24 && sizeof(DescriptorHead<uint64_t>) == 24);
// A head of 24 bytes, then the largest part of the version.
static_assert(sizeof(Descriptor3) == 24 + 96 && sizeof(Descriptor4) == 24 + 80);
static_assert(sizeof(Descriptor5) == 24 + 88);

// ---- the tables

using Init3 = Result (*)(void** context, int* mask);
using Init4 = Result (*)(void** context, int* mask, const char* name, uint64_t hash, int nodes,
                         int ranks, int rank, Logger log);
using Init5 = Result (*)(void** context, uint64_t hash, int* mask, const char* name, int nodes,
                         int ranks, int rank, Logger log);

template <typename Init>
struct Table {
  const char* name;
  Init init;
  Result (*start)(void* context, void** handle, void* descriptor);
  Result (*stop)(void* handle);
  Result (*record_state)(void* handle, int state, void* arguments);
  Result (*finalize)(void* context);
};
static_assert(sizeof(Table<Init5>) == 48);

}  // namespace muster::nccl

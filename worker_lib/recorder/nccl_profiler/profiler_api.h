// NCCL's profiler plugin interface, versions 3 to 7, as far as muster reads it: our own
// declarations, from NCCL's public source (src/include/plugin/profiler/profiler_v*.h). A plugin is
// a shared library with a table for each version, of which NCCL takes the newest that it knows.
//
//   version   first NCCL   what it brought
//   3         2.26.2       each event has the communicator's name and hash, nothing its size
//   4         2.27.3       those at init(), with size and rank
//   5         2.28.3       events of the calls themselves (CollApi, P2pApi), groups, launches
//   6         2.29.2       copy engines
//   7         2.31.2       tags, kernel variants and phases, all behind what was there before
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::nccl {

// Bits of the activation mask, one for each type of event.
inline constexpr uint64_t kGroup = 1U << 0;  // A plan of kernels, not ncclGroupStart().
inline constexpr uint64_t kColl = 1U << 1;   // A collective, behind its launch.
inline constexpr uint64_t kP2p = 1U << 2;
inline constexpr uint64_t kProxyOp = 1U << 3;
inline constexpr uint64_t kProxyStep = 1U << 4;
inline constexpr uint64_t kKernelChannel = 1U << 6;  // A channel of a kernel: start and stop.
inline constexpr uint64_t kNetPlugin = 1U << 7;
inline constexpr uint64_t kGroupApi = 1U << 8;
inline constexpr uint64_t kCollApi = 1U << 9;  // The call of the program, before its launch.
inline constexpr uint64_t kP2pApi = 1U << 10;
inline constexpr uint64_t kKernelLaunch = 1U << 11;
inline constexpr uint64_t kCopyEngine = 7U << 12;  // Collective, synchronisation, batch.

using Result = int;  // ncclResult_t; 0: success.
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

// ---- what startEvent() gets: a head, and a part by the event's type behind it

template <typename Type>  // Of 8 bits up to version 4, of 64 from 5 on.
struct DescriptorHead {
  Type type;
  void* parent;  // The handle of another event, as the plugin has returned it.
  int rank;      // The own one in the communicator; of Coll and P2p at least.
};

struct CollOf4 {
  uint64_t sequence;  // By communicator and function. Replays of captured graphs do not count.
  const char* function;
  const void* send;
  void* receive;
  size_t count;  // Of AllGather and Broadcast bytes, with "ncclInt8" as type.
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
  CollOf4 rest;  // Its `channels`: at most so many.
};
struct P2pOf3 {
  const char* communicator;
  uint64_t hash;
  P2pOf4 rest;  // Without `channels`.
};

struct CollOf5 {
  CollOf4 as_before;
  void* parent_group;  // As `parent` was before.
};
struct P2pOf5 {
  P2pOf4 as_before;
  void* parent_group;
};
struct GroupApiOf5 {
  bool is_captured;  // Into a CUDA graph: it runs later, or again and again, without these events.
  int depth;
};
struct CollApiOf5 {
  const char* function;
  size_t count;  // As the program has given it.
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
struct Descriptor5 : DescriptorHead<uint64_t> {  // Of versions 6 and 7 as well.
  union {
    GroupApiOf5 group_api;
    CollApiOf5 coll_api;
    P2pApiOf5 p2p_api;
    CollOf5 coll;
    P2pOf5 p2p;
  };
};

// On both of NCCL's processors, x86-64 and ARM64, whose first byte of a number is its lowest.
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
// That of version 3 behind 96 bytes of its largest part, and so on.
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

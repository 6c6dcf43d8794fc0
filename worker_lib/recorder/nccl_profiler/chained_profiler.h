// The user's own profiler, which NCCL would load if muster's were not there: opened the way NCCL
// does (openPluginLib() in NCCL's src/plugin/plugin_open.cc), and called for the events that it
// asks for. Its handles are kept apart from ours.
//
// It may have an older version than NCCL: descriptors of version 5 begin like those of 6 and 7, and
// those of version 4 like 5's except for the parent. Version 3 is unlike any other.
//
// Opened once, by open(); afterwards any thread.
#pragma once

#include <cstdint>
#include <string>

#include "worker_lib/recorder/nccl_profiler/profiler_api.h"

namespace muster::nccl {

// Arguments of init(); version 3 has none of them.
struct InitFacts {
  const char* name = nullptr;
  uint64_t hash = 0;
  int nodes = 0;
  int ranks = 0;
  int rank = -1;
  Logger log = nullptr;
};

class ChainedProfiler {
 public:
  // `name`: value of NCCL_PROFILER_PLUGIN; nullptr: unset, so libnccl-profiler.so if there is one.
  // `version`: the one that NCCL uses. Returns the error in one line; empty: none.
  std::string open(const char* name, int version);

  explicit operator bool() const { return library_ != nullptr; }
  // Returns true if the profiler accepts this communicator.
  bool init(void** context, const InitFacts& facts);
  // Events that the profiler asks for now; it may change that at any time.
  int mask() const { return __atomic_load_n(&mask_, __ATOMIC_RELAXED) & known_; }
  // Returns true if NCCL would begin such an event with this profiler alone.
  bool wants(uint64_t type) const;
  bool takes_groups_as_parents() const { return version_ < 5; }

  void start(void* context, void** handle, void* descriptor) const {
    calls_.start(context, handle, descriptor);
  }
  void stop(void* handle) const { calls_.stop(handle); }
  void record_state(void* handle, int state, void* arguments) const {
    calls_.record_state(handle, state, arguments);
  }
  void finalize(void* context) const { calls_.finalize(context); }

 private:
  void* library_ = nullptr;
  int version_ = 0;
  int known_ = 0;            // Events that its version has.
  int mask_ = 0;             // Written by the profiler.
  Table<void*> calls_ = {};  // The type of `init` depends on version_.
};

}  // namespace muster::nccl

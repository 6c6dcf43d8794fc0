// NCCL as its profiler plugin sees it, for each interface version from 3 to 7: loads the plugin as
// NCCL does, and makes NCCL's calls in its order, with its handles, under its mask (NCCL's
// src/plugin/profiler.cc). Needs no GPU; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker_lib/recorder/nccl_profiler/profiler_api.h"

namespace muster::nccl {

struct FakeCall {
  std::string function = "AllReduce";
  size_t count = 1000;
  std::string datatype = "ncclFloat32";
  int root = 0;  // The peer, if it is a message.
  bool is_captured = false;
  int channels = 2;  // 0 for CollNet.
};

class FakeNccl {
  struct Task {
    FakeCall call;
    void* api = nullptr;
    void* handle = nullptr;
    std::vector<void*> channels = {};
  };

 public:
  // `nccl`: the result of ncclGetVersion(); 0 for the release that has this interface version.
  FakeNccl(const std::string& plugin, int version, int nccl = 0);

  struct Communicator {
    void* context = nullptr;
    uint64_t hash = 0;
    std::string name;
    int rank = 0;
    std::map<std::string, uint64_t> sequences;  // By function.
    std::vector<Task> graph;                    // The tasks of captured calls, which NCCL keeps.
  };
  std::unique_ptr<Communicator> open(const std::string& name, uint64_t hash, int ranks, int rank);
  void close(Communicator& communicator);

  // Enters and launches a group of calls, and reports them as tasks.
  void call(Communicator& communicator, const std::vector<FakeCall>& calls);
  // Replays the graph captured last: reports its tasks once more.
  void replay(Communicator& communicator);
  // Stops the event of the last call again: NCCL since 2.28 keeps its handle.
  void stop_last_call_again();
  // Enters a call that is never launched.
  void enter(Communicator& communicator, const FakeCall& call);
  // Starts and stops the kernels of the last group.
  void start_kernels(Communicator& communicator);
  void stop_kernels();

  bool is_loaded() const { return table_ != nullptr; }
  int mask() const { return mask_; }
  size_t handles_left() const { return open_; }

 private:
  bool asks(uint64_t types) const { return (static_cast<uint64_t>(mask_) & types) != 0; }
  // `handle`: its value before the call.
  void* start(Communicator& communicator, void* descriptor, void* handle = nullptr);
  void stop(void*& handle);
  void enter_group(Communicator& communicator, const std::vector<FakeCall>& calls);
  void enter_api(Communicator& communicator, Task& task);
  void launch(Communicator& communicator);
  void tell_tasks(Communicator& communicator, bool is_replay);
  void* start_task(Communicator& communicator, const Task& task, void* group);

  const int version_;
  const void* table_ = nullptr;
  Table<void*> calls_{};
  int mask_ = 0;
  size_t open_ = 0;
  void* group_ = nullptr;  // The group of calls that is open.
  std::vector<Task> tasks_;
};

}  // namespace muster::nccl

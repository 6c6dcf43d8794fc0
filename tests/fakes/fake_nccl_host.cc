#include "tests/fakes/fake_nccl_host.h"

#include <cstdarg>
#include <cstring>

#include <dlfcn.h>

static int fake_nccl_version = 0;
static const int* fake_nccl_mask_now = nullptr;
extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version);
// Tells the second profiler which events NCCL starts now.
extern "C" __attribute__((visibility("default"))) int fake_nccl_mask();
extern "C" int fake_nccl_mask() {
  return fake_nccl_mask_now == nullptr ? 0 : *fake_nccl_mask_now;
}
extern "C" int ncclGetVersion(int* version) {
  *version = fake_nccl_version;
  return 0;
}

namespace muster::nccl {
namespace {

constexpr int kKernelChannels = 2;
constexpr uint64_t kUnderTasks = kProxyOp | kProxyStep | kKernelChannel | kNetPlugin;

void log_nothing(int, unsigned long, const char*, int, const char*, ...) {}

bool is_message(const FakeCall& call) {
  return call.function == "Send" || call.function == "Recv";
}

size_t bytes_of(const std::string& datatype) {
  if (datatype.ends_with("64")) return 8;
  return datatype.ends_with("32") ? 4 : datatype.ends_with("16") ? 2 : 1;
}

void put_coll(CollOf4& coll, const FakeCall& call, uint64_t sequence) {
  const bool in_bytes = call.function == "AllGather" || call.function == "Broadcast";
  coll.sequence = sequence;
  coll.function = call.function.c_str();
  coll.count = call.count * (in_bytes ? bytes_of(call.datatype) : 1);
  coll.datatype = in_bytes ? "ncclInt8" : call.datatype.c_str();
  coll.root = call.root;
  coll.channels = static_cast<uint8_t>(call.channels);
}

void put_p2p(P2pOf4& p2p, const FakeCall& call) {
  p2p.function = call.function.c_str();
  p2p.count = call.count;
  p2p.datatype = call.datatype.c_str();
  p2p.peer = call.root;
  p2p.channels = static_cast<uint8_t>(call.channels);
}

template <typename Descriptor>
Descriptor blank(uint64_t type, void* parent = nullptr) {
  Descriptor descriptor;
  std::memset(static_cast<void*>(&descriptor), 0, sizeof descriptor);
  descriptor.type = static_cast<decltype(descriptor.type)>(type);
  descriptor.parent = parent;
  return descriptor;
}

}  // namespace

FakeNccl::FakeNccl(const std::string& plugin, int version, int nccl) : version_(version) {
  constexpr int kSpeaks[] = {0, 0, 0, 22602, 22703, 22803, 22902, 23203};
  fake_nccl_mask_now = &mask_;
  fake_nccl_version = nccl != 0 ? nccl : kSpeaks[version];
  void* const library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  table_ = dlsym(library, ("ncclProfiler_v" + std::to_string(version)).c_str());
  if (table_ != nullptr) std::memcpy(&calls_, table_, sizeof calls_);
}

std::unique_ptr<FakeNccl::Communicator> FakeNccl::open(const std::string& name, uint64_t hash,
                                                       int ranks, int rank) {
  auto made = std::make_unique<Communicator>();
  made->hash = hash;
  made->name = name;
  made->rank = rank;
  if (table_ == nullptr) return made;
  const char* const told = name.empty() ? nullptr : made->name.c_str();
  if (version_ == 3) {
    reinterpret_cast<Init3>(calls_.init)(&made->context, &mask_);
  } else if (version_ == 4) {
    reinterpret_cast<Init4>(calls_.init)(&made->context, &mask_, told, hash, 1, ranks, rank,
                                         log_nothing);
  } else {
    reinterpret_cast<Init5>(calls_.init)(&made->context, hash, &mask_, told, 1, ranks, rank,
                                         log_nothing);
  }
  return made;
}

void FakeNccl::close(Communicator& communicator) {
  if (communicator.context != nullptr) calls_.finalize(communicator.context);
}

void* FakeNccl::start(Communicator& communicator, void* descriptor, void* handle) {
  calls_.start(communicator.context, &handle, descriptor);
  if (handle != nullptr) ++open_;
  return handle;
}

void FakeNccl::stop(void*& handle) {
  if (handle == nullptr) return;
  calls_.stop(handle);
  --open_;
}

void FakeNccl::call(Communicator& communicator, const std::vector<FakeCall>& calls) {
  if (!is_loaded()) return;
  enter_group(communicator, calls);
  if (calls.front().is_captured) {
    communicator.graph = tasks_;
  } else {
    launch(communicator);
    tell_tasks(communicator, /*is_replay=*/false);
  }
  stop(group_);
}

void FakeNccl::replay(Communicator& communicator) {
  tasks_ = communicator.graph;
  tell_tasks(communicator, /*is_replay=*/true);
  communicator.graph = tasks_;
}

void FakeNccl::stop_last_call_again() {
  if (tasks_.back().api != nullptr) calls_.stop(tasks_.back().api);
}

void FakeNccl::enter(Communicator& communicator, const FakeCall& call) {
  if (is_loaded()) enter_group(communicator, {call});
}

void FakeNccl::enter_group(Communicator& communicator, const std::vector<FakeCall>& calls) {
  tasks_.clear();
  group_ = nullptr;
  auto group = blank<Descriptor5>(kGroupApi);
  group.group_api = {.is_captured = calls.front().is_captured, .depth = 1};
  const uint64_t below = kGroupApi | kCollApi | kP2pApi | kKernelLaunch | kGroup | kColl | kP2p |
                         kUnderTasks | kCopyEngine;
  if (version_ >= 5 && asks(below)) group_ = start(communicator, &group);
  if (group_ != nullptr) calls_.record_state(group_, 23, nullptr);
  for (const FakeCall& call : calls) {
    tasks_.push_back({.call = call});
    if (version_ >= 5) enter_api(communicator, tasks_.back());
  }
  if (group_ != nullptr) calls_.record_state(group_, 24, nullptr);
}

void FakeNccl::enter_api(Communicator& communicator, Task& task) {
  const FakeCall& call = task.call;
  const bool is_p2p = is_message(call);
  auto api = blank<Descriptor5>(is_p2p ? kP2pApi : kCollApi, group_);
  if (is_p2p) {
    api.p2p_api = {call.function.c_str(), call.count, call.datatype.c_str(), nullptr,
                   call.is_captured};
  } else {
    api.coll_api = {call.function.c_str(), call.count, call.datatype.c_str(), call.root, nullptr,
                    call.is_captured};
  }
  const uint64_t above = is_p2p ? kP2pApi | kP2p : kCollApi | kColl | kCopyEngine;
  if (asks(above | kUnderTasks)) task.api = start(communicator, &api);
  void* stopped = task.api;
  stop(stopped);
}

void FakeNccl::launch(Communicator& communicator) {
  auto launched = blank<Descriptor5>(kKernelLaunch, group_);
  void* handle = version_ >= 5 && asks(kKernelLaunch) ? start(communicator, &launched) : nullptr;
  stop(handle);
}

void FakeNccl::tell_tasks(Communicator& communicator, bool is_replay) {
  auto plan3 = blank<Descriptor3>(kGroup);
  auto plan5 = blank<Descriptor5>(kGroup);
  void* group = nullptr;
  if (asks(kGroup | kColl | kP2p | kUnderTasks))
    group = start(communicator, version_ < 5 ? static_cast<void*>(&plan3) : &plan5);
  for (Task& task : tasks_) {
    const bool is_asked = asks((is_message(task.call) ? kP2p : kColl) | kUnderTasks);
    // Versions before 2.28 report tasks only in a group that has a handle.
    if (is_asked && (version_ >= 5 || group != nullptr))
      task.handle = start_task(communicator, task, group);
    if (!is_message(task.call) && (!is_replay || asks(kKernelChannel)))
      ++communicator.sequences[task.call.function];
  }
  for (const Task& task : tasks_) {
    void* handle = task.handle;
    stop(handle);
  }
  stop(group);
}

void* FakeNccl::start_task(Communicator& communicator, const Task& task, void* group) {
  const FakeCall& call = task.call;
  const bool is_p2p = is_message(call);
  const uint64_t type = is_p2p ? kP2p : kColl;
  const uint64_t sequence = is_p2p ? 0 : communicator.sequences[call.function];
  const char* const name = communicator.name.empty() ? nullptr : communicator.name.c_str();
  auto three = blank<Descriptor3>(type, group);
  auto four = blank<Descriptor4>(type, group);
  auto five = blank<Descriptor5>(type, task.api);
  three.rank = four.rank = five.rank = communicator.rank;
  if (is_p2p) {
    three.p2p = {name, communicator.hash, {}};
    put_p2p(three.p2p.rest, call);
    put_p2p(four.p2p, call);
    five.p2p = {{}, group};
    put_p2p(five.p2p.as_before, call);
  } else {
    three.coll = {name, communicator.hash, {}};
    put_coll(three.coll.rest, call, sequence);
    put_coll(four.coll, call, sequence);
    five.coll = {{}, group};
    put_coll(five.coll.as_before, call, sequence);
  }
  if (version_ >= 5) return start(communicator, &five, task.handle);
  return start(communicator, version_ == 3 ? static_cast<void*>(&three) : &four, task.handle);
}

void FakeNccl::start_kernels(Communicator& communicator) {
  for (Task& task : tasks_) {
    for (int channel = 0; channel < kKernelChannels && asks(kKernelChannel); ++channel) {
      auto four = blank<Descriptor4>(kKernelChannel, task.handle);
      auto five = blank<Descriptor5>(kKernelChannel, task.handle);
      task.channels.push_back(
          start(communicator, version_ < 5 ? static_cast<void*>(&four) : &five));
    }
  }
}

void FakeNccl::stop_kernels() {
  for (Task& task : tasks_) {
    for (void* channel : task.channels) {
      if (channel != nullptr) calls_.record_state(channel, 22, nullptr);
      stop(channel);
    }
    task.channels.clear();
  }
}

}  // namespace muster::nccl

#include "worker_lib/recorder/nccl_profiler/plugin.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include <dlfcn.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/ring/ring_owner.h"

namespace muster::nccl {
namespace {

constexpr int kTriesToTake = 16;

size_t offset_of(uint32_t generation) {
  return generation % kEventBytes;
}

constexpr int kFirstWithCalls = 5;     // First version with CollApi and P2pApi.
constexpr int kFirstWithChannels = 4;  // First version with the number of a kernel's channels.
// In 2.31.2 kernel events cost up to 13 % of an all_reduce (github.com/NVIDIA/nccl/issues/2355).
constexpr int kSlowKernelEvents = 23102;

const char* variable_text(std::string_view name) {
  return std::getenv(name.data());
}

// Returns the version of the calling NCCL, which `log` is a function of; 0: unknown.
int nccl_version(Logger log) {
  void* function = nullptr;
  Dl_info where{};
  if (log != nullptr && dladdr(reinterpret_cast<void*>(log), &where) != 0) {
    void* const library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr) function = dlsym(library, "ncclGetVersion");
    if (library != nullptr) dlclose(library);
  }
  if (function == nullptr) function = dlsym(RTLD_DEFAULT, "ncclGetVersion");
  int version = 0;
  if (function != nullptr) reinterpret_cast<Result (*)(int*)>(function)(&version);
  return version;
}

bool may_ask_for_kernels(int version, const InitFacts& facts) {
  if (variable_text(env::kRecordKernels) == nullptr || version < kFirstWithChannels) return false;
  // The slow NCCL introduced version 7, so an unknown NCCL with version 7 may be that one.
  const int nccl = nccl_version(facts.log);
  return nccl == 0 ? version < 7 : nccl != kSlowKernelEvents;
}

// Stands in for a communicator's size, which version 3 does not report: with one rank per process
// none is larger than the world.
int size_of_world(int rank) {
  const char* const size = variable_text(env::kWorldSize);
  return std::max(size == nullptr ? 0 : std::atoi(size), rank + 1);
}

void*& parent_in(void* descriptor) {
  return static_cast<DescriptorHead<uint64_t>*>(descriptor)->parent;
}

}  // namespace

Event* EventPool::take() {
  for (int tries = 0; tries < kTriesToTake; ++tries) {
    Event& event = events_[next_.fetch_add(1, std::memory_order_relaxed) % events_.size()];
    if (event.is_in_use.exchange(true, std::memory_order_acquire)) continue;
    event.generation.fetch_add(1, std::memory_order_relaxed);
    event.channels_left.store(0, std::memory_order_relaxed);
    event.type = 0;
    event.has_channels = false;
    event.theirs = event.parent = nullptr;
    event.pending = {};
    return &event;
  }
  return nullptr;
}

void* EventPool::handle_of(Event& event) const {
  return reinterpret_cast<std::byte*>(&event) + offset_of(event.generation);
}

bool EventPool::owns(const void* handle) const {
  const auto at = reinterpret_cast<uintptr_t>(handle);
  const auto begin = reinterpret_cast<uintptr_t>(events_.data());
  return at >= begin && at - begin < sizeof events_;
}

Event* EventPool::find(const void* handle) {
  if (!owns(handle)) return nullptr;
  const size_t at =
      reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(events_.data());
  Event& event = events_[at / kEventBytes];
  return offset_of(event.generation) == at % kEventBytes ? &event : nullptr;
}

Plugin& Plugin::of_process() {
  static Plugin* const plugin = new Plugin;
  return *plugin;
}

Communicator* Plugin::init(int version, int* mask, const InitFacts& facts) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(has_begun_, true)) begin(version, facts);
    auto made = std::make_unique<Communicator>(writer_.get());
    if (version >= 4)
      made->open(facts.name == nullptr ? "" : facts.name, facts.hash, facts.ranks, facts.rank);
    if (chained_) made->is_theirs = chained_.init(&made->their_context, facts);
    mask_ = mask;
    told_mask_ = whole_mask();
    // One store: other communicators are in use and must not see a smaller mask meanwhile.
    __atomic_store_n(mask, told_mask_.load(), __ATOMIC_RELAXED);
    return made.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

void Plugin::begin(int version, const InitFacts& facts) {
  version_ = version;
  events_ = std::make_unique<EventPool>();
  has_kernels_ = may_ask_for_kernels(version, facts);
  const std::string defect = chained_.open(variable_text(env::kNcclProfilerChain), version);
  if (!defect.empty())
    std::fprintf(stderr, "muster: your NCCL profiler is not used: %s\n", defect.c_str());
  attach();
}

void Plugin::attach() {
  const char* const record_fd = variable_text(env::kRecordFd);
  std::string why;
  if (record_fd == nullptr) return;
  writer_ = ring::RingWriter::attach(record_fd, ring::Source::nccl_plugin, why);
  if (writer_ || ring::has_owner(record_fd)) return;
  const char* const rank = variable_text(env::kRank);
  std::fprintf(stderr,
               "muster: rank %s records no calls of NCCL, so a hang is not explained: %s (see "
               "MUSTER_RECORD_FD)\n",
               rank == nullptr ? "?" : rank, why.c_str());
}

// Includes kGroup in old versions: NCCL before 2.28 reports tasks only if their group has a handle.
int Plugin::own_mask() const {
  if (!writer_) return 0;
  const uint64_t calls =
      version_ < kFirstWithCalls ? kGroup : kGroupApi | kCollApi | kP2pApi | kKernelLaunch;
  return static_cast<int>(calls | kColl | kP2p | (has_kernels_ ? kKernelChannel : 0));
}

void Plugin::start(Communicator& communicator, void** handle, void* descriptor,
                   const EventFacts& facts) {
  *handle = nullptr;
  follow_their_mask();
  const bool is_theirs = communicator.is_theirs && chained_.wants(facts.type);
  if (!records(facts.type)) {
    if (is_theirs) forward(communicator, handle, descriptor, facts);
    return;
  }
  if (Event* const event = events_->take()) {
    event->type = facts.type;
    event->parent = parent_in(descriptor);
    record(communicator, *event, facts);
    if (is_theirs) forward(communicator, &event->theirs, descriptor, facts);
    *handle = events_->handle_of(*event);
  } else {  // Counts the call even without an event, or this rank would look late.
    Event passing;
    passing.parent = parent_in(descriptor);
    record(communicator, passing, facts);
  }
}

void Plugin::record(Communicator& communicator, Event& event, const EventFacts& facts) {
  switch (facts.type) {
    case kGroupApi:
    case kP2pApi:
      if (facts.is_captured) communicator.note_captured();
      return;
    case kCollApi:
      event.pending = communicator.collective_called(facts, /*has_launched=*/false);
      return;
    case kKernelLaunch:
      event.pending = communicator.last_call();
      return;
    case kColl:
    case kP2p:
      return record_task(communicator, event, facts);
    case kKernelChannel:
      if (const Event* const task = events_->find(event.parent))
        if (task->has_channels && task->pending.peer_count < 0) writer_->started(task->pending);
      return;
    default:
      return;
  }
}

// Records a task that a launched kernel performs.
void Plugin::record_task(Communicator& communicator, Event& event, const EventFacts& facts) {
  // If the number of channels is not reported (CollNet), the end of the last one cannot be seen.
  event.has_channels = facts.channels > 0;
  event.channels_left = facts.channels;
  if (version_ == 3 && !communicator.is_open()) {
    communicator.open(facts.communicator == nullptr ? "" : facts.communicator, facts.hash,
                      size_of_world(facts.rank), facts.rank);
  }
  if (facts.is_repeated) communicator.note_captured();
  if (facts.type == kP2p) {
    event.pending = communicator.message_called(facts);
  } else if (version_ < kFirstWithCalls) {
    event.pending = communicator.collective_called(facts, /*has_launched=*/true);
  } else if (const Event* const call = events_->find(event.parent)) {
    event.pending = call->pending;
    writer_->launched(event.pending);
  }
}

void Plugin::stop(void* handle) {
  if (!events_->owns(handle)) return chained_ ? chained_.stop(handle) : void();
  Event* const event = events_->find(handle);
  // NCCL may end a call's event again together with the next call, if that has no event.
  if (event == nullptr || !event->is_in_use) return;
  if (event->type == kKernelLaunch) writer_->launched(event->pending);
  if (event->type == kKernelChannel) {
    Event* const task = events_->find(event->parent);
    if (task != nullptr && task->channels_left.fetch_sub(1) == 1) writer_->completed(task->pending);
  }
  if (event->theirs != nullptr) chained_.stop(event->theirs);
  EventPool::release(*event);
}

void Plugin::record_state(void* handle, int state, void* arguments) {
  if (!chained_) return;
  if (!events_->owns(handle)) return chained_.record_state(handle, state, arguments);
  const Event* const event = events_->find(handle);
  if (event != nullptr && event->theirs != nullptr)
    chained_.record_state(event->theirs, state, arguments);
}

void Plugin::finalize(Communicator* communicator) {
  if (communicator->is_theirs) chained_.finalize(communicator->their_context);
  communicator->close();  // Never freed: proxy threads of a shared one may still report events.
}

// Passes the event on to the chained profiler, with that profiler's own handle as the parent.
void Plugin::forward(const Communicator& communicator, void** handle, void* descriptor,
                     const EventFacts& facts) {
  void*& parent = parent_in(descriptor);
  void* const told = parent;
  if (facts.parent_group != nullptr && chained_.takes_groups_as_parents())
    parent = facts.parent_group;
  if (events_->owns(parent)) {
    const Event* const event = events_->find(parent);
    parent = event == nullptr ? nullptr : event->theirs;
  }
  chained_.start(communicator.their_context, handle, descriptor);
  parent = told;
}

void Plugin::follow_their_mask() {
  if (!chained_) return;
  const int mask = whole_mask();
  if (told_mask_.load(std::memory_order_relaxed) == mask) return;
  told_mask_ = mask;
  __atomic_store_n(mask_.load(), mask, __ATOMIC_RELAXED);
}

}  // namespace muster::nccl

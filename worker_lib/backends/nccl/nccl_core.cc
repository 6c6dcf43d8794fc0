#include "worker_lib/backends/nccl/nccl_core.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "worker_lib/quiet_thread.h"

namespace muster::worker {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kNcclTick{10};
// Time that close() gives the core's thread to notice that no operation is in flight any more.
constexpr milliseconds kCloseWait{200};
// Length from which launch() removes completed operations: a loop of small ones must not pile up.
constexpr size_t kLongList = 128;
constexpr microseconds kNcclPollMost{500};
constexpr microseconds kNcclSpin{50};
constexpr int kStuckExitCode = 1;

void end_process(const std::string& reason) {
  std::fprintf(stderr, "%s\n", reason.c_str());
  std::fflush(stderr);
  ::_exit(kStuckExitCode);
}

}  // namespace

// Registers a thread that is in NCCL or about to enter it, even before it waits for NCCL's mutex.
class NcclCore::Inside {
 public:
  // Sets `event` to a used one, if there is one.
  Inside(NcclCore& core, const Call& call, CudaEvent& event) : core_(core), call_(call) {
    const std::lock_guard lock(core_.mutex_);
    core_.inside_.push_back(&call_);
    if (core_.spare_.empty()) return;
    event = core_.spare_.back();
    core_.spare_.pop_back();
  }
  ~Inside() {
    if (!is_inside_) return;
    const std::lock_guard lock(core_.mutex_);
    std::erase(core_.inside_, &call_);
  }
  Inside(Inside&&) = delete;

  // Moves the call to the operations under way in one step, so that it is always watched. Returns
  // their number.
  size_t leave(CudaEvent event, MarkPtr mark, CudaStream stream) {
    is_inside_ = false;
    const std::lock_guard lock(core_.mutex_);
    std::erase(core_.inside_, &call_);
    core_.under_way_.push_back({event, std::move(mark), stream, ++core_.launched_, call_});
    if (core_.first_.load(std::memory_order_relaxed) == 0)
      core_.first_.store(call_.sequence, std::memory_order_release);
    return core_.under_way_.size();
  }

 private:
  NcclCore& core_;
  const Call& call_;  // Outlives this object.
  bool is_inside_ = true;
};

NcclCore::NcclCore(Options options)
    : options_(std::move(options)),
      gpu_(options_.communicator->gpu()),
      events_(std::make_shared<GpuEvents>(gpu_)) {
  if (!options_.on_stuck) options_.on_stuck = end_process;
}

// Resources are freed only here: a thread that missed a failure may still be enqueuing work.
NcclCore::~NcclCore() {
  const Gpu::Current current(*gpu_);
  for (const UnderWay& one : under_way_)
    if (one.mark == nullptr) spare_.push_back(one.event);
  for (const CudaEvent event : spare_)
    events_->give_back(event);
  if (own_stream_ != nullptr) gpu_->cuda().stream_destroy(own_stream_);
  if (barrier_word_ != 0) gpu_->cuda().mem_free(barrier_word_);
}

Outcome<std::shared_ptr<NcclCore>> NcclCore::begin(Options options) {
  auto core = std::make_shared<NcclCore>(std::move(options));
  if (Outcome<> made = core->make_resources(); !made) {
    core->fail(made.error());
    core->end_communicator();
    return tl::unexpected(made.error());
  }
  Outcome<std::thread> watching = start_quiet_thread([core] { core->watch(); });
  if (!watching) {
    core->fail(watching.error());
    core->end_communicator();
    return tl::unexpected(watching.error());
  }
  watching->detach();
  return core;
}

Outcome<> NcclCore::make_resources() {
  const Gpu::Current current(*gpu_);
  const CudaApi& cuda = gpu_->cuda();
  Outcome<> made =
      cuda.check(cuda.stream_create(&own_stream_, kCudaStreamNonBlocking), "cuStreamCreate");
  if (made) made = cuda.check(cuda.mem_alloc(&barrier_word_, sizeof(int32_t)), "cuMemAlloc");
  return made;
}

bool NcclCore::is_captured(CudaStream stream) const {
  int status = kCudaCaptureNone;
  return gpu_->cuda().stream_is_capturing(stream, &status) == kCudaSuccess &&
         status != kCudaCaptureNone;
}

Outcome<> NcclCore::launch(CudaStream stream, const Call& call, const Put& put) {
  return put_and_watch(stream, call, put, nullptr);
}

Outcome<NcclCore::MarkPtr> NcclCore::launch_marked(CudaStream stream, const Call& call,
                                                   const Put& put) {
  MarkPtr mark;
  const Outcome<> done = put_and_watch(stream, call, put, &mark);
  return done ? Outcome<MarkPtr>(std::move(mark)) : tl::unexpected(done.error());
}

// Sets `*mark`, unless `mark` is null.
Outcome<> NcclCore::put_and_watch(CudaStream stream, const Call& call, const Put& put,
                                  MarkPtr* mark) {
  if (has_failed()) return tl::unexpected(*failure());
  const Gpu::Current current(*gpu_);
  CudaEvent spare = nullptr;
  Inside inside(*this, call, spare);
  Outcome<CudaEvent> event(nullptr);
  size_t under_way = 0;
  {
    const std::lock_guard lock(communicator().mutex());
    // Checks again: the thread that held the lock may have ended the communicator.
    const Outcome<> done = has_failed() ? tl::unexpected(*failure()) : put(stream);
    event = done ? events_->record(stream, spare) : tl::unexpected(done.error());
    if (event) {
      if (mark != nullptr) *mark = std::make_shared<GpuEvents::Mark>(events_, *event);
      // Under the lock, so that serials follow the order of the stream.
      if (!is_captured(stream)) {
        under_way = inside.leave(*event, mark != nullptr ? *mark : nullptr, stream);
      } else if (mark == nullptr) {
        events_->give_back(*event);
      }
    }
  }
  if (!event) {
    if (spare != nullptr) events_->give_back(spare);
    // Returns the first failure: if the group was aborted meanwhile, that explains NCCL's error.
    fail(event.error());
    return tl::unexpected(*failure());
  }
  // Ignores errors: the core's thread will report them.
  if (under_way >= kLongList && under_way % (kLongList / 2) == 0) look_for_done();
  return Done{};
}

Outcome<NcclCore::MarkPtr> NcclCore::launch_aside(CudaStream after, const Call& call,
                                                  const Put& put) {
  if (has_failed()) return tl::unexpected(*failure());
  const Gpu::Current current(*gpu_);
  Outcome<MarkPtr> before = events_->mark(after);
  Outcome<> held =
      before ? (*before)->hold(own_stream_) : Outcome<>(tl::unexpected(before.error()));
  if (!held) {
    fail(held.error());
    return tl::unexpected(*failure());
  }
  return launch_marked(own_stream_, call, put);
}

std::optional<Outcome<>> NcclCore::outcome_of(GpuEvents::Mark& mark) {
  if (mark.is_done()) return Done{};
  // Queries the mark before the failure: operations that a failure stopped count as passed.
  const Outcome<bool> passed = mark.is_passed();
  if (std::optional<Failure> failure = this->failure()) return tl::unexpected(*failure);
  if (!passed) {
    fail(passed.error());
    return tl::unexpected(*failure());
  }
  if (!*passed) return std::nullopt;
  mark.note_done();
  return Done{};
}

std::optional<Outcome<>> NcclCore::wait_for(GpuEvents::Mark& mark, Deadline until) {
  const auto begun = std::chrono::steady_clock::now();
  microseconds pause{10};
  while (true) {
    if (std::optional<Outcome<>> outcome = outcome_of(mark)) return outcome;
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) return std::nullopt;
    if (now - begun < kNcclSpin) continue;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kNcclPollMost);
  }
}

void NcclCore::fail(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || ended_) return;
    failure_ = failure;
    has_failed_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

std::optional<Failure> NcclCore::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void NcclCore::close() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kCloseWait, [this] { return finished_ || ended_; });
  if (!failure_ && !is_idle()) return;
  changed_.wait_for(lock, options_.end_bound, [this] { return finished_; });
}

void NcclCore::watch() {
  // In any other mode, querying an event would invalidate a capture in another thread.
  int mode = kCudaCaptureModeRelaxed;
  gpu_->cuda().thread_exchange_stream_capture_mode(&mode);
  std::unique_lock lock(mutex_);
  while (!failure_ && !(closing_ && is_idle())) {
    changed_.wait_for(lock, kNcclTick);
    if (failure_ || is_idle()) continue;
    lock.unlock();
    look();
    lock.lock();
  }
  lock.unlock();
  end_communicator();
}

void NcclCore::look() {
  std::optional<Failure> found = look_for_done();
  if (found) return fail(*found);
  if (const std::optional<UnderWay> late = find_late(); late && !is_passed_late(*late))
    return fail(explain_late(late->call));
  std::unique_lock in_nccl(communicator().mutex(), std::try_to_lock);
  if (!in_nccl) return;
  const Outcome<> state = communicator().check();
  in_nccl.unlock();
  if (!state) fail(state.error());
}

// An operation completes after all earlier ones on its stream, so one query is mostly enough: asks
// the newest first, then the middle of those before it, and so on. Another thread may meanwhile
// forget the queried operation and reuse its event, which only delays the answer.
std::optional<Failure> NcclCore::look_for_done() {
  std::unique_lock lock(mutex_);
  for (size_t looked_at = under_way_.size(); looked_at > 0;) {
    const UnderWay one = under_way_[looked_at - 1];
    lock.unlock();
    const Outcome<bool> passed = events_->is_passed(one.event);
    lock.lock();
    if (!passed) return passed.error();
    if (failure_) break;  // The answer is void: stopped operations count as passed.
    // The minimum, since another thread may have shortened the list.
    looked_at = std::min(*passed ? forget_done(one) : looked_at / 2, under_way_.size());
  }
  return std::nullopt;
}

// Removes `reached` and all before it on its stream. Returns how many launched before it remain.
size_t NcclCore::forget_done(const UnderWay& reached) {
  std::erase_if(under_way_, [&](const UnderWay& one) {
    const bool is_done = one.stream == reached.stream && one.serial <= reached.serial;
    if (is_done && one.mark != nullptr) one.mark->note_done();
    if (is_done && one.mark == nullptr) spare_.push_back(one.event);
    return is_done;
  });
  note_first();
  const auto later = std::ranges::find_if(
      under_way_, [&](const UnderWay& one) { return one.serial > reached.serial; });
  return static_cast<size_t>(later - under_way_.begin());
}

void NcclCore::note_first() {
  const auto first =
      std::ranges::find_if(under_way_, [](const UnderWay& one) { return one.call.sequence > 0; });
  first_.store(first == under_way_.end() ? 0 : first->call.sequence, std::memory_order_release);
}

bool NcclCore::is_all_done() {
  look_for_done();
  return has_failed() || !first_under_way();
}

void NcclCore::wait_idle() {
  for (microseconds pause{10}; !is_all_done(); pause = std::min(pause * 2, kNcclPollMost))
    std::this_thread::sleep_for(pause);
}

std::optional<uint64_t> NcclCore::first_under_way() const {
  const uint64_t first = first_.load(std::memory_order_acquire);
  return first > 0 ? std::optional(first) : std::nullopt;
}

std::optional<NcclCore::UnderWay> NcclCore::find_late() const {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  for (const UnderWay& one : under_way_)
    if (now >= one.call.deadline) return one;
  for (const Call* call : inside_)
    if (now >= call->deadline) return UnderWay{nullptr, nullptr, nullptr, 0, *call};
  return std::nullopt;
}

// Queries the late operation itself, since look_for_done() does not query each one. Returns true if
// it is complete after all.
bool NcclCore::is_passed_late(const UnderWay& late) {
  if (late.event == nullptr) return false;
  const Outcome<bool> passed = events_->is_passed(late.event);
  const std::lock_guard lock(mutex_);
  if (passed && *passed) {
    if (!failure_) forget_done(late);
    return true;
  }
  // Gone from the list: another thread has found it complete, and may have reused its event.
  return std::ranges::find(under_way_, late.serial, &UnderWay::serial) == under_way_.end();
}

Failure NcclCore::explain_late(const Call& late) const {
  Failure failure{ErrorCode::timeout,
                  "NCCL does not say which rank did not arrive: the rank whose output has no such "
                  "message is the missing one",
                  {}};
  const bool is_collective = late.sequence > 0;
  // Asks before stopping anything, while the other ranks are still where they are stuck.
  failure.is_suspicion = true;
  if (is_collective && options_.name_stragglers)
    failure = options_.name_stragglers(failure, late.sequence);
  failure.message =
      fmt::format("{}{} did not finish on the GPU in time; {}", name_of(late.kind),
                  is_collective ? fmt::format(" {}", late.sequence) : "", failure.message);
  return failure;
}

// Runs NCCL's shutdown, which may take any time, on another thread, and bounds the wait for it.
void NcclCore::end_communicator() {
  const std::optional<Failure> reason = failure();
  start_or_run([self = shared_from_this(), orderly = !reason] {
    self->communicator().end(orderly, [&] { self->note(self->is_stuck_); });
    self->note(self->ended_);
  });
  if (!wait_for_end() && reason) options_.on_stuck(stuck_text(*reason));
  note(finished_);
}

void NcclCore::note(bool& what) {
  {
    const std::lock_guard lock(mutex_);
    what = true;
  }
  changed_.notify_all();
}

std::string NcclCore::stuck_text(const Failure& reason) const {
  const std::lock_guard lock(mutex_);
  const std::string what =
      is_stuck_ ? std::string("a call into NCCL does not return")
                : fmt::format("NCCL did not stop within {} s", to_seconds(options_.end_bound));
  return fmt::format(
      "muster: group {}: {} after: {}; this process ends, so that the GPU is free for the next "
      "attempt",
      options_.group, what, reason.message);
}

bool NcclCore::wait_for_end() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, options_.end_bound, [this] { return ended_ || is_stuck_; });
  return ended_;
}

}  // namespace muster::worker

// The running state of a group on NCCL: the communicator, the operations in flight on the GPU, and
// the first failure. A thread of its own checks these a hundred times a second. Calling threads do
// not wait for the GPU, so this thread must notice that an operation missed its deadline or that
// NCCL lost a peer, and then stop the kernels, or else the GPU waits for ever. A call into NCCL may
// block too: the first operation of a kind, and the first message to a peer, open connections, for
// which NCCL waits without a time-out.
//
//   begin ──▶ usable ──fail()──▶ failed ──▶ the communicator is aborted, within end_bound,
//                │                          or the process exits and prints the reason
//                └──close()──▶ operations in flight complete, then the communicator is destroyed
//
// Shared by the backend, by works, and by its own thread, so that operations in flight when the
// group is dropped still complete normally. Any thread may call anything.
//
// The thread calls CUDA and NCCL only while operations are in flight, so it is idle when the
// program exits without having left the group.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/backends/nccl/gpu_events.h"
#include "worker_lib/backends/nccl/nccl_communicator.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class NcclCore : public std::enable_shared_from_this<NcclCore> {
 public:
  using MarkPtr = std::shared_ptr<GpuEvents::Mark>;

  struct Options {
    std::string group;  // For messages.
    std::unique_ptr<NcclCommunicator> communicator;
    // Finds the missing ranks, since NCCL does not report them; may be empty.
    std::function<Failure(const Failure& suspected, uint64_t sequence)> name_stragglers = {};
    // How long NCCL may take to stop the operations in flight.
    std::chrono::milliseconds end_bound = std::chrono::seconds{10};
    // Called if it does not stop. Default: prints the reason and ends the process; tests replace
    // it.
    std::function<void(const std::string& reason)> on_stuck = {};
  };

  static Outcome<std::shared_ptr<NcclCore>> begin(Options options);
  explicit NcclCore(Options options);
  NcclCore(const NcclCore&) = delete;
  NcclCore& operator=(const NcclCore&) = delete;
  ~NcclCore();

  NcclCommunicator& communicator() { return *options_.communicator; }
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }
  std::byte* barrier_word() const { return reinterpret_cast<std::byte*>(barrier_word_); }

  // A launched operation, for its deadline and for messages.
  struct Call {
    OpKind kind;
    uint64_t sequence;  // 0: a message.
    Deadline deadline;
  };
  // Puts an operation on the stream that it is given.
  using Put = std::function<Outcome<>(CudaStream)>;

  // Calls `put` to put an operation on `stream` and watches it until it is complete (unless the
  // stream is being captured into a graph: then nothing is in flight). Fails with the group's
  // failure, or with the error of `put`, which fails the group.
  Outcome<> launch(CudaStream stream, const Call& call, const Put& put);
  // The same, with a mark of its end.
  Outcome<MarkPtr> launch_marked(CudaStream stream, const Call& call, const Put& put);
  // The same on a stream of the core's own, for operations that the call's stream does not wait for
  // at once: ordered after what is on `after` by now.
  Outcome<MarkPtr> launch_aside(CudaStream after, const Call& call, const Put& put);

  // Whether no collective is in flight, or one has failed; wait_idle() blocks until then.
  bool is_all_done();
  void wait_idle();

  // The number of the first collective that is not known to be complete. Takes no lock.
  std::optional<uint64_t> first_under_way() const;

  // The outcome of a launched operation; nullopt: still in flight.
  std::optional<Outcome<>> outcome_of(GpuEvents::Mark& mark);
  // Waits for that outcome, at most until `until`.
  std::optional<Outcome<>> wait_for(GpuEvents::Mark& mark, Deadline until);

  // The first failure counts. Returns at once; the core's thread stops the operations in flight.
  void fail(const Failure& failure);
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  std::optional<Failure> failure() const;

  // Returns when the communicator is gone, within about end_bound. If operations are still in
  // flight after 200 ms, leaves them to the core's thread. REQUIRES: no later launch().
  void close();

 private:
  struct UnderWay {
    CudaEvent event;  // Null: a thread is still inside. Of `mark`, if there is one.
    MarkPtr mark;
    CudaStream stream;
    uint64_t serial;  // In launch order.
    Call call;
  };
  class Inside;

  Outcome<> make_resources();
  bool is_captured(CudaStream stream) const;
  Outcome<> put_and_watch(CudaStream stream, const Call& call, const Put& put, MarkPtr* mark);
  bool is_idle() const { return under_way_.empty() && inside_.empty(); }  // REQUIRES: mutex_.
  void watch();
  void look();
  std::optional<Failure> look_for_done();
  void note_first();
  size_t forget_done(const UnderWay& reached);
  std::optional<UnderWay> find_late() const;
  bool is_reached_late(const UnderWay& late);
  Failure explain_late(const Call& late) const;
  void end_communicator();
  void note(bool& what);  // Sets it, and wakes all that wait for a change.
  std::string stuck_text(const Failure& reason) const;
  bool wait_for_end();

  Options options_;
  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<GpuEvents> events_;
  CudaStream own_stream_ = nullptr;
  CudaPointer barrier_word_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> has_failed_{false};
  std::optional<Failure> failure_;
  std::vector<const Call*> inside_;  // Of threads in NCCL or waiting to enter it.
  std::deque<UnderWay> under_way_;
  std::vector<CudaEvent> spare_;  // Of operations without a mark.
  uint64_t launched_ = 0;
  std::atomic<uint64_t> first_{0};  // first_under_way(); 0: none.
  bool closing_ = false;
  bool ended_ = false;     // The communicator is gone.
  bool is_stuck_ = false;  // The communicator cannot be ended: a thread does not return from NCCL.
  bool finished_ = false;  // The core's thread is done.
};

}  // namespace muster::worker

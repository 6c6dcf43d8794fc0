// The running state of a group on NCCL: the communicator, the operations in flight on the GPU, and
// the first failure. Callers do not wait for the GPU, so the core's thread polls these a hundred
// times a second: if an operation misses its deadline or NCCL loses a peer, it must stop the
// kernels, or the GPU would wait for ever. A call into NCCL may block too: the first operation of a
// kind, and the first message to a peer, open connections, for which NCCL waits without a time-out.
//
//   begin ──▶ usable ──fail()──▶ failed ──▶ the communicator is aborted, within end_bound,
//                │                          or the process exits and prints the reason
//                └──close()──▶ operations in flight complete, then the communicator is destroyed
//
// Shared by the backend, the works and the core's thread, so that operations in flight when the
// group is dropped still complete. Any thread may call anything. The core's thread calls CUDA and
// NCCL only while operations are in flight: it is idle if the program exits without leaving.
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

#include "worker_lib/backends/nccl/cuda_driver.h"
#include "worker_lib/backends/nccl/nccl_communicator.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class NcclCore : public std::enable_shared_from_this<NcclCore> {
 public:
  using MarkPtr = std::shared_ptr<GpuEvents::Mark>;

  struct Options {
    std::string group;  // Name, for messages.
    std::unique_ptr<NcclCommunicator> communicator;
    // Finds the missing ranks, since NCCL does not report them; may be empty.
    std::function<Failure(const Failure& suspected, uint64_t sequence)> name_stragglers = {};
    // Time that NCCL may take to stop the operations in flight.
    std::chrono::milliseconds end_bound = std::chrono::seconds{10};
    // Called if NCCL does not stop; by default prints the reason and ends the process.
    std::function<void(const std::string& reason)> on_stuck = {};
  };

  static Outcome<std::shared_ptr<NcclCore>> begin(Options options);
  explicit NcclCore(Options options);
  NcclCore(NcclCore&&) = delete;
  ~NcclCore();

  NcclCommunicator& communicator() { return *options_.communicator; }
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }
  std::byte* barrier_word() const { return reinterpret_cast<std::byte*>(barrier_word_); }

  struct Call {
    OpKind kind;
    uint64_t sequence;  // 0 for sends and receives.
    Deadline deadline;
  };
  // Enqueues an operation on the given stream.
  using Put = std::function<Outcome<>(CudaStream)>;

  // Calls `put` on `stream` and watches the operation until it is complete (unless the stream is
  // being captured into a graph: then nothing is in flight). Fails with the group's failure, or
  // with the error of `put`, which fails the group.
  Outcome<> launch(CudaStream stream, const Call& call, const Put& put);
  // Launches, and returns a mark of the operation's end.
  Outcome<MarkPtr> launch_marked(CudaStream stream, const Call& call, const Put& put);
  // Launches on the core's own stream, after the work that is now on `after`: for operations that
  // the call's stream does not wait for at once. Returns a mark, too.
  Outcome<MarkPtr> launch_aside(CudaStream after, const Call& call, const Put& put);

  // True if no collective is in flight or the group has failed; wait_idle() blocks until then.
  bool is_all_done();
  void wait_idle();

  // Sequence number of the first collective not known to be complete. Takes no lock.
  std::optional<uint64_t> first_under_way() const;

  // Outcome of a launched operation; nullopt: still in flight.
  std::optional<Outcome<>> outcome_of(GpuEvents::Mark& mark);
  // Waits for that outcome, at most until `until`.
  std::optional<Outcome<>> wait_for(GpuEvents::Mark& mark, Deadline until);

  // Records the first failure and returns; the core's thread stops the operations in flight.
  void fail(const Failure& failure);
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  std::optional<Failure> failure() const;

  // Returns when the communicator is gone, within about end_bound; earlier if operations are still
  // in flight after 200 ms, which are left to the core's thread. REQUIRES: no later launch().
  void close();

 private:
  struct UnderWay {
    CudaEvent event;  // That of `mark`, if there is one; null: a thread is still inside.
    MarkPtr mark;
    CudaStream stream;
    uint64_t serial;  // Launch order.
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
  bool is_passed_late(const UnderWay& late);
  Failure explain_late(const Call& late) const;
  void end_communicator();
  void note(bool& what);  // Sets the flag and wakes all waiting threads.
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
  std::vector<const Call*> inside_;  // Calls of threads in NCCL or waiting to enter it.
  std::deque<UnderWay> under_way_;
  std::vector<CudaEvent> spare_;  // Events of finished operations without a mark.
  uint64_t launched_ = 0;
  std::atomic<uint64_t> first_{0};  // first_under_way(); 0: none.
  bool closing_ = false;
  bool ended_ = false;     // The communicator is gone.
  bool is_stuck_ = false;  // A thread does not return from NCCL, so the communicator cannot end.
  bool finished_ = false;  // The core's thread is done.
};

}  // namespace muster::worker

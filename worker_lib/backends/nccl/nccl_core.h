// What is alive of a group on NCCL: the communicator, what it has put on the GPU and is not done
// yet, and what went wrong. A thread of its own looks at these a hundred times a second: the
// calling threads do not wait for the GPU, so somebody has to notice that an operation missed its
// deadline or that NCCL lost a peer, and then to stop the kernels, without which the GPU waits for
// ever. A call into NCCL may block as well: the first operation of a kind, and the first message
// to a peer, make connections, for which NCCL waits without a limit.
//
//   begin ──▶ usable ──fail()──▶ failed ──▶ the communicator is aborted, within kEndBound,
//                │                          or the process ends with its reason
//                └──close()──▶ what is under way is waited for, then it is destroyed
//
// Shared by the backend, by works, and by its own thread, so that operations which are under way
// when the group is dropped still end as they should. Any thread may call anything.
//
// The thread asks CUDA and NCCL something only while operations are under way: so it is quiet when
// the program ends without having left the group.
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
    // Says which ranks did not come, since NCCL does not; may be empty.
    std::function<Failure(const Failure& suspected, uint64_t sequence)> name_stragglers = {};
    // How long NCCL may take to stop what is under way.
    std::chrono::milliseconds end_bound = std::chrono::seconds{10};
    // Then: prints the reason and ends the process, unless a test wants to see it.
    std::function<void(const std::string& reason)> on_stuck = {};
  };

  static Outcome<std::shared_ptr<NcclCore>> begin(Options options);
  explicit NcclCore(Options options);
  NcclCore(const NcclCore&) = delete;
  NcclCore& operator=(const NcclCore&) = delete;
  ~NcclCore();

  NcclCommunicator& communicator() { return *options_.communicator; }
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }
  // On which operations run that the calls' streams do not wait for.
  CudaStream own_stream() const { return own_stream_; }
  std::byte* barrier_word() const { return reinterpret_cast<std::byte*>(barrier_word_); }

  // Calls `put` to put something on `stream`, marks its end, and keeps an eye on it until it is
  // done (not where the stream is being captured into a graph: then nothing is under way). Kind and
  // sequence are for messages. Fails with what failed the group, or with what `put` says, which
  // fails the group.
  Outcome<MarkPtr> launch(CudaStream stream, OpKind kind, uint64_t sequence, Deadline deadline,
                          const std::function<Outcome<>()>& put);
  // The same on the own stream, after what is on `after` by now.
  Outcome<MarkPtr> launch_aside(CudaStream after, OpKind kind, uint64_t sequence, Deadline deadline,
                                const std::function<Outcome<>()>& put);

  // The number of the first collective that is not done.
  std::optional<uint64_t> first_under_way() const;

  // How something ended that was launched; nothing: under way.
  std::optional<Outcome<>> outcome_of(GpuEvents::Mark& mark);
  // Waits for that, at most until then.
  std::optional<Outcome<>> wait_for(GpuEvents::Mark& mark, Deadline until);

  // The first counts. Returns at once; what is under way is stopped meanwhile.
  void fail(const Failure& failure);
  std::optional<Failure> failure() const;

  // Nothing is launched any more. Returns when the communicator is gone, or at once where something
  // is under way, which then is waited for behind the scenes.
  void close();

 private:
  // What was called: for its deadline, and for messages.
  struct Call {
    OpKind kind;
    uint64_t sequence;
    Deadline deadline;
  };
  struct UnderWay {
    MarkPtr mark;
    Call call;
  };
  class Inside;

  Outcome<> make_resources();
  bool is_captured(CudaStream stream) const;
  bool is_idle() const { return under_way_.empty() && inside_.empty(); }  // REQUIRES: mutex_.
  void watch();
  void look();
  std::optional<Failure> look_for_done();
  std::optional<Call> find_late() const;
  Failure explain_late(const Call& late) const;
  void end_communicator();
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
  std::vector<const Call*> inside_;  // Of threads that are in NCCL, or wait to get there.
  std::deque<UnderWay> under_way_;
  bool closing_ = false;
  bool ended_ = false;     // The communicator is gone.
  bool is_stuck_ = false;  // It cannot go while somebody is in NCCL, who does not come out.
  bool finished_ = false;  // The thread is done.
};

}  // namespace muster::worker

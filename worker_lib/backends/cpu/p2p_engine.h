// Point-to-point transfers on one rank: any number of concurrent sends and receives, from any
// thread, with tags and receives from any source, over their own links.
//
// A blocking caller does the work itself: the first one drives (moves bytes, sleeps on the links),
// the others sleep until their request is done or they have to drive. One thread, started on
// demand, drives requests that no caller waits for. One mutex, never held in a sleep, guards all
// state.
//
// What a message costs does not depend on how many are under way: nothing looks through them, only
// the first request to or from a peer wakes a driver, and a finished one wakes its caller alone.
//
// A message without a matching receive stays with the sender and in the kernel's buffers (or the
// ring); it is kept here only if a later message is wanted. Any failure ends all requests for good.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker_lib/backends/cpu/links.h"
#include "worker_lib/backends/cpu/p2p_matching.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

class TransferEngine {
 public:
  // `members` outlives it.
  TransferEngine(std::unique_ptr<ByteLinks> links, const Members& members);
  TransferEngine(TransferEngine&&) = delete;
  // Ends requests in progress with ErrorCode::aborted.
  ~TransferEngine();

  Outcome<int> transfer(const Transfer& transfer, Deadline deadline);
  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(const std::vector<Transfer>& transfers,
                                                         Deadline deadline);
  void abort(const Failure& failure);

 private:
  struct Outgoing {
    std::deque<RequestPtr> queue;
    MessageHead head;  // Head of the first request.
    size_t moved = 0;  // Bytes sent of its head and data together.
  };
  struct Incoming {
    MessageHead head;
    size_t moved = 0;    // Bytes received of head and data together.
    RequestPtr request;  // The receive that the data goes to; if null,
    EarlyPtr early;      // where the data is kept.
    bool ended = false;
  };
  using Lock = std::unique_lock<std::mutex>;

  // All REQUIRE mutex_ held.
  RequestPtr enter(const Transfer& transfer, Deadline deadline,
                   std::shared_ptr<HostWork> work = nullptr);
  bool queue_send(const RequestPtr& request);
  bool post_receive(const RequestPtr& request);
  void pass();
  bool push(int peer);
  bool pull(int peer);
  void activate(int peer);
  bool sends_to(int peer) const { return !outs_[static_cast<size_t>(peer)].queue.empty(); }
  bool receives_from(int peer) const;
  bool pull_head(int peer, Incoming& in);
  void begin_message(int peer, Incoming& in);
  void end_message(int peer, Incoming& in);
  void peer_ended(int peer);
  void deliver(const RequestPtr& request, int from, const EarlyMessage& early);
  bool check_head(const TransferRequest& request, int from, const MessageHead& head);
  void finish(const RequestPtr& request);
  void fail(const Failure& failure);
  void hand_over();
  void wake_driver();
  void check_deadlines(Deadline now);
  Failure late_failure(const TransferRequest& request) const;
  void arm();
  template <typename Done>
  void drive(Lock& lock, bool patient, const Done& done);
  void serve();

  std::unique_ptr<ByteLinks> links_;
  const Members& members_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // serve() has to drive, or to end.
  std::vector<Outgoing> outs_;
  std::vector<Incoming> ins_;
  TransferMatching matching_;
  RequestsByDeadline under_way_;
  std::vector<int> active_;      // Peers that requests under way may move data to or from.
  std::vector<bool> is_active_;  // By peer: is in active_.
  std::optional<Failure> failure_;
  const TransferRequest* entered_ = nullptr;  // During enter(): no driver waits for it yet.
  bool moved_ = false;                        // Something moved in this pass.
  bool is_driven_ = false;
  bool is_asleep_ = false;  // The driver sleeps on the links and has not been woken.
  bool stops_ = false;
  size_t unattended_ = 0;  // Requests of begin() in progress.
  std::vector<int> reading_, writing_;
  std::thread thread_;
};

}  // namespace muster::worker

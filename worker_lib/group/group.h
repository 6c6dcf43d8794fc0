// The implementation behind a ProcessGroup handle.
//
// A synchronous collective runs on the caller's thread if no asynchronous one is in flight;
// otherwise it takes its turn in the group's queue, whose thread the first asynchronous call starts
// (collective_queue.h). The first failure ends the group: it is kept, aborts every backend, and is
// returned from every later call (group_state.h). Failures come from a backend, from abort(), from
// a deadline in the queue, and, on the watch's thread, from the watch.
//
// Owned by its handles; after the last one, GroupHost::retire() keeps the group until its work is
// complete. Any thread may call anything. Failures already name the operation and the group.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/process_group.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/failure.h"
#include "worker_lib/group/collective_queue.h"
#include "worker_lib/group/group_agreements.h"
#include "worker_lib/group/group_checks.h"
#include "worker_lib/group/group_host.h"
#include "worker_lib/group/group_p2p.h"
#include "worker_lib/group/group_plan.h"
#include "worker_lib/group/group_recorder.h"
#include "worker_lib/group/group_shutdown.h"
#include "worker_lib/group/group_state.h"
#include "worker_lib/group/monitored_barrier.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/stragglers/rank_progress.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

class Group : public std::enable_shared_from_this<Group> {
 public:
  // Makes the group of all ranks; blocks until they arrive. `host`: state shared with the job.
  static Outcome<std::shared_ptr<Group>> make_world(std::shared_ptr<GroupHost> host,
                                                    Deadline deadline);
  // Makes any group; blocks until its members arrive. `limit`: time to the deadline, for messages.
  static Outcome<std::shared_ptr<Group>> make(std::shared_ptr<GroupHost> host, GroupPlan plan,
                                              Deadline deadline, std::chrono::milliseconds limit);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // ---- members

  bool is_member() const noexcept { return members_.me >= 0; }
  const Members& members() const { return members_; }  // me == -1: not a member.
  const std::vector<GlobalRank>& ranks() const { return plan_.ranks; }
  const std::string& name() const { return plan_.name; }
  const KnownRanks& known_ranks() const { return state_->known_ranks(); }  // Used in errors.
  std::chrono::milliseconds timeout() const { return plan_.timeout; }
  // For GPU memory, or for host memory; nullopt: refused.
  std::optional<Backend> backend(bool on_gpu) const;

  // ---- operations

  Outcome<> perform(const CollectiveCall& call, const CallOptions& options);
  Outcome<std::shared_ptr<WorkState>> begin(const CollectiveCall& call, const CallOptions& options);
  // Returns the group rank of the sender.
  Outcome<int> transfer(const Transfer& transfer, const CallOptions& options);
  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(std::vector<Transfer> transfers,
                                                         const CallOptions& options);
  Outcome<SharedBlock> allocate_shared(size_t bytes, const CallOptions& options);
  Outcome<> monitored_barrier(const CallOptions& options, bool wait_all_ranks);

  // ---- other groups. On a rank that is not in it, the result has is_member() == false.

  // Takes any ranks of the job, even outside this group.
  Outcome<std::shared_ptr<Group>> new_group(std::span<const GlobalRank> ranks,
                                            const GroupOptions& options);
  Outcome<std::shared_ptr<Group>> split(int color, int key, const GroupOptions& options);

  GroupAgreements& agreements() { return agreements_; }

  // ---- the end

  void abort(std::string_view reason);
  std::optional<Failure> failure() const { return state_->failure(); }
  // Why every call is refused, whatever its arguments; nullopt: it is not.
  std::optional<Failure> refusal(const char* operation) const;

  // destroy_process_group() calls these for all groups (GroupHost::close_groups()): it waits for
  // collectives, announces how many were performed, waits for the sends and receives that peers can
  // still complete, and closes the group, which then gets no updates and refuses calls.
  void wait_collectives();
  ShutdownNotice notice() const;
  PendingOfGroup pending() { return {plan_.id, transfers_.pending()}; }
  // True if no send or receive in flight can still complete.
  bool transfers_over();
  void wait_for_transfers() { transfers_.wait_some(); }
  void close();
  bool idle();

  // ---- for other ranks that ask (group_stragglers.cc); any thread

  GroupProgress progress();
  std::optional<Trouble> trouble() const;

 private:
  struct Retire {
    void operator()(Group* group) const;
  };
  // A checked call, ready for its queue.
  struct Prepared {
    Operation operation = {};
    const char* name = nullptr;  // The user's call.
    CollectiveQueue* queue = nullptr;
    Deadline deadline = {};
  };

  Group(std::shared_ptr<GroupHost> host, GroupPlan plan, Members members);

  GroupShape shape() const { return {members_.size(), members_.me}; }
  std::chrono::milliseconds limit_of(const CallOptions& options) const {
    return options.timeout.value_or(plan_.timeout);
  }
  Deadline deadline_of(const CallOptions& options) const;
  std::string label(std::string_view operation) const;
  tl::unexpected<Failure> refuse(std::string_view operation, std::string why) const;

  bool prepare(const CollectiveCall& call, const CallOptions& options, Prepared& prepared,
               Failure& failure);
  Outcome<CollectiveQueue*> prepare_transfer(const Transfer& transfer, const CallOptions& options);
  std::string transfer_label(const Transfer& transfer) const;
  Failure transfer_failed(const Transfer& transfer, const Failure& own,
                          std::chrono::milliseconds limit);
  std::shared_ptr<WorkState> adopt(const Transfer& transfer, std::shared_ptr<WorkState> state,
                                   const CallRecord& record);
  // Why this group cannot use memory on `device`; empty: it can.
  std::string check_device(const Device& device, bool is_service) const;
  bool device_is_sound(const Device& device, bool is_service, std::string& why) const;
  // The queue for memory on `device`, made on first use.
  Outcome<CollectiveQueue*> queue_of(const Device& device, const char* operation,
                                     const CallOptions& options);
  Outcome<CollectiveQueue*> make_queue(size_t index, const char* operation, Deadline deadline,
                                       std::chrono::milliseconds limit);
  Outcome<std::unique_ptr<GroupBackend>> make_backend(size_t index, Deadline deadline,
                                                      std::chrono::milliseconds limit);
  void publish(size_t index, std::unique_ptr<GroupBackend> backend, const LaneRecorder& recorder);
  // Why the set-up of a queue must stop; nullopt: it continues.
  std::optional<Failure> interruption(size_t index) const;
  Outcome<std::shared_ptr<Group>> make_other(const char* made_by, std::span<const GlobalRank> ranks,
                                             const GroupOptions& options, Deadline deadline);
  Outcome<> agree_on_bytes(size_t bytes, const CallOptions& options);

  void note_calls(size_t index, GroupProgress& progress) const;
  GroupState::NameStragglers asker() const;

  void subscribe();
  void unsubscribe();
  void on_failed(const Failure& failure, GroupState::Source source);
  void on_news(const Watch::News& news);
  void on_left(int member);
  void on_leaving(int member, const Watch::News& news);
  // Calls end_waits() after kLastMessage.
  void end_waits_later(int member);
  // Fails the group if its messages with `member` (-1: with any), which leaves, cannot complete.
  void end_waits(int member);
  // Fails the group if a departed member takes no part in an operation that it has begun.
  void end_missing();
  OperationCounts begun() const;
  int member_of(GlobalRank rank) const;

  const std::shared_ptr<GroupHost> host_;
  const GroupPlan plan_;
  const Members members_;
  GroupRecorder recorder_;
  const std::weak_ptr<Watch> watch_;
  const std::shared_ptr<GroupState> state_;
  GroupShutdown departures_;
  GroupTransfers transfers_;
  std::atomic<bool> closing_{false};  // This rank is in destroy_process_group().
  std::mutex making_;                 // Held while a queue is made.
  std::array<std::atomic<CollectiveQueue*>, kCollectiveQueues> queues_{};
  std::array<std::unique_ptr<CollectiveQueue>, kCollectiveQueues> queue_owners_;
  std::array<std::atomic<bool>, kCollectiveQueues> setting_up_{};  // Indexed by queue.
  std::atomic<bool> made_{false};
  MonitoredBarrier monitored_;
  GroupAgreements agreements_;
  std::mutex subscription_mutex_;
  std::optional<int> subscription_;
};

}  // namespace muster::worker

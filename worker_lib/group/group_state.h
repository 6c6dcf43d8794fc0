// Whether a group can still be used: what failed it first, and whether it was closed. Shared by the
// group, its queues and the works that were handed out, which may outlive the group.
//
// Any thread may call anything. The first failure counts; `on_failed` is called with it once, by
// the thread that brought it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "worker_lib/failure.h"
#include "worker_lib/operation.h"
#include "worker_lib/stragglers/rank_progress.h"

namespace muster::worker {

class GroupState {
 public:
  enum class Source : uint8_t {
    here,   // A backend or a deadline on this rank: the other members do not know of it.
    abort,  // abort() on this rank: the same, and the others are told in its words.
    known,  // The watch.
    told,   // Another member failed and said so.
  };
  using OnFailed = std::function<void(const Failure& failure, Source source)>;

  // The call that failed, for those who are asked about it: see StragglerQuery.
  struct Call {
    Lane lane = Lane::host;
    uint64_t number = 0;  // 0: what is under way in its lane.
    bool is_message = false;
    bool from_anybody = false;
    std::chrono::milliseconds limit{0};
  };
  // Who is to blame for what this rank suspects; may take its time, until `over` says that nobody
  // needs to know any more.
  using NameStragglers = std::function<Failure(const Failure& suspected, const Call& call,
                                               const std::function<bool()>& over)>;

  // `watched`: whether news of deaths come, so that it is worth to wait a moment for them.
  GroupState(std::string group_name, GlobalRank self, bool watched)
      : group_name_(std::move(group_name)), self_(self), watched_(watched) {}

  // Set before the group is used. After detach() returned it is not called any more.
  void attach(OnFailed on_failed);
  void detach();
  // Before the group is used. Called by any thread, also when the group is gone.
  void name_stragglers_with(NameStragglers name_stragglers) {
    name_stragglers_ = std::move(name_stragglers);
  }

  const std::string& group_name() const { return group_name_; }

  // One load.
  bool usable() const noexcept { return state_.load(std::memory_order_acquire) == State::usable; }
  bool failed() const noexcept { return state_.load(std::memory_order_acquire) == State::failed; }

  // False: something else was first. `during`: the label of the operation that failed, if any.
  bool fail(const Failure& failure, Source source, const std::string& during = {});
  // As a call that comes later is told; nothing: nothing failed.
  std::optional<Failure> failure() const;
  void close();
  // Why a call is refused. REQUIRES: !usable().
  Failure refusal() const;

  // What an operation that failed with `own` on this rank is to return: own, with the label in
  // front, after failing the group with it; or what failed the group before. Of a suspicion it is
  // found out first who is to blame. Where `own` may be the echo of a death (a closed connection, a
  // store that is gone), news of it are waited for a moment, since they know better what happened;
  // where another member has met the same failure and said so first, the words of `own` stay. A
  // refused argument fails nothing.
  Failure settle(const Failure& own, const std::string& label) { return settle(own, label, {}); }
  Failure settle(const Failure& own, const std::string& label, const Call& call);
  // The same for a suspicion alone, and fails nothing; anything else stays as it is.
  Failure name_stragglers(const Failure& suspected, const Call& call) const;
  // The same for what fails no group, a monitored barrier: only says what is known.
  Failure explain(const Failure& own, const std::string& label) const;

 private:
  enum class State : uint8_t { usable, failed, closed };

  Failure refusal_locked() const;
  bool wait_failed(Deadline until) const;
  Failure with_origin(Failure own) const;
  void wait_for_news(const Failure& own) const;
  // True: what had failed the group was second hand and the same; now it is in these words.
  bool replace_told(const Failure& own, const std::string& label);

  const std::string group_name_;
  const GlobalRank self_;
  const bool watched_;
  NameStragglers name_stragglers_;
  std::atomic<State> state_{State::usable};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Failure> failure_;  // State::failed, and closed after it.
  std::string during_;
  bool second_hand_ = false;  // Source::told
  std::mutex calling_;        // Held while on_failed_ is called or changed.
  OnFailed on_failed_;
};

}  // namespace muster::worker

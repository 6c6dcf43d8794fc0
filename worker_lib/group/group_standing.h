// Whether a group can still be used: what failed it first, and whether it was closed. Shared by the
// group, its carriers and the works that were handed out, which may outlive the group.
//
// Any thread may call anything. The first failure counts; `on_failed` is called with it once, by
// the thread that brought it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class GroupStanding {
 public:
  enum class Source : uint8_t {
    here,   // A backend or a deadline on this rank: the other members do not know of it.
    known,  // The watch, or abort(), which has told them.
    told,   // Another member failed and said so.
  };
  using OnFailed = std::function<void(const Failure& failure, Source source)>;

  // `watched`: whether news of deaths come, so that it is worth to wait a moment for them.
  GroupStanding(std::string group_name, bool watched)
      : group_name_(std::move(group_name)), watched_(watched) {}

  // Set before the group is used. After detach() returned it is not called any more.
  void attach(OnFailed on_failed);
  void detach();

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
  // front, after failing the group with it; or what failed the group before. Where `own` may be
  // the echo of a death (a closed connection, a store that is gone), news of it are waited for a
  // moment, since they know better what happened; where another member has met the same failure and
  // said so first, `own` stays. A refused argument fails nothing.
  Failure settle(const Failure& own, const std::string& label);
  // The same for what fails no group, a monitored barrier: only says what is known.
  Failure explain(const Failure& own, const std::string& label) const;

 private:
  enum class State : uint8_t { usable, failed, closed };

  Failure refusal_locked() const;
  bool wait_failed(Deadline until) const;
  void wait_for_news(const Failure& own) const;
  // True: what had failed the group was second hand and of the same kind; now it is this.
  bool replace_told(const Failure& own, const std::string& label);

  const std::string group_name_;
  const bool watched_;
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

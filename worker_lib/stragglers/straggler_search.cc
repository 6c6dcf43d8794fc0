#include "worker_lib/stragglers/straggler_search.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

namespace muster::worker {
namespace {

using std::chrono::steady_clock;
// Maximum of ranks queried: chains are short, and a thousand ranks must not make a million dials.
constexpr size_t kAskedMax = 64;
// Limit after a mismatch for members that have not made the call yet.
constexpr std::chrono::milliseconds kComing{250};
// The same limit while the members that made the call do not show which one most make: the next
// member decides.
constexpr std::chrono::milliseconds kDeciding{750};
// The same limit while a member has ended, for the report about it: it most likely found out.
constexpr std::chrono::milliseconds kNewsOfEnd{2000};
// Pause before members that have not made the call are queried again; doubles up to the longest.
constexpr std::chrono::milliseconds kFirstPause{25};
constexpr std::chrono::milliseconds kLongestPause{100};

class ProgressAsker {
 public:
  ProgressAsker(const StragglerQuery& question, const StragglerSearch& setting)
      : question_(question),
        setting_(setting),
        own_(setting.own()),
        questions_(setting.watch.questions()),
        begun_(steady_clock::now()) {}

  // Returns false if this process has no descriptor for queries, or the result is no longer needed.
  bool ask_for_stragglers() {
    for (;;) {
      own_ = setting_.own();  // Reports of others' failures may have changed it.
      question_.waited = question_.limit + std::chrono::duration_cast<std::chrono::milliseconds>(
                                               steady_clock::now() - begun_);
      findings_ = find_stragglers(setting_.world.me, question_, own_, answers_);
      if (findings_.to_ask.empty()) return true;
      ask(findings_.to_ask);
      if (!hear(begun_ + 2 * setting_.limit)) return false;
      give_up_on_silent();
    }
  }

  // Queries until all members have made the call, or time is up.
  bool ask_all_calls(const Members& members) {
    std::chrono::milliseconds pause = kFirstPause;
    Deadline look = begun_;
    for (;;) {
      const std::set<int> open = on_their_way();
      const size_t ended = count_ended();
      const bool decided = is_decided(members, open.size() + ended);
      const Deadline until = begun_ + (decided ? kComing : ended > 0 ? kNewsOfEnd : kDeciding);
      const Deadline now = steady_clock::now();
      if (now >= until || (open.empty() && (decided || ended == 0))) return true;
      if (now >= look) {
        ask_again(open);
        look = std::min(until, now + pause);
        pause = std::min(2 * pause, kLongestPause);
      }
      if (!hear(look)) return false;
    }
  }

  // Returns the mismatch among the group's members, as far as the answers show it.
  std::optional<Failure> mismatch(const Members& members) const {
    return compare_calls(question_, members, own_, answers_);
  }

  const StragglerFindings& findings() const { return findings_; }
  bool can_ask() const { return questions_ != nullptr; }

 private:
  void ask(const std::set<int>& ranks) {
    for (const int rank : ranks) {
      if (rank == setting_.world.me || asked_.size() >= kAskedMax || !asked_.insert(rank).second)
        continue;
      // Its watch cannot answer.
      if (questions_->state_of(rank) == ProcessState::stopped) {
        answers_[rank] = NoAnswer::stopped;
      } else {
        questions_->ask(rank);
      }
    }
  }

  // Queries only those that have answered; the others' first query is still open.
  void ask_again(const std::set<int>& ranks) {
    for (const int rank : ranks) {
      if (answers_.erase(rank) > 0) asked_.erase(rank);
    }
    ask(ranks);
  }

  bool hear(Deadline until) {
    constexpr std::chrono::milliseconds kGlance{20};
    if (setting_.over()) return false;
    for (Watch::Questions::Reply& reply :
         questions_->wait(std::min(until, steady_clock::now() + kGlance))) {
      if (reply.kind == Watch::Questions::Reply::Kind::unasked) return false;
      if (reply.kind == Watch::Questions::Reply::Kind::refused)
        answers_[reply.rank] = NoAnswer::gone;
      if (reply.kind == Watch::Questions::Reply::Kind::said)
        answers_[reply.rank] = RankProgress::decode(reply.text).value_or(blameless());
    }
    return true;
  }

  // Settles ranks whose time is up, and those beyond kAskedMax.
  void give_up_on_silent() {
    const auto past = steady_clock::now() - begun_;
    for (const int rank : findings_.to_ask) {
      if (answers_.contains(rank)) continue;
      const ProcessState state = questions_->state_of(rank);
      const bool is_slow = state == ProcessState::running && past < 2 * setting_.limit;
      if (state == ProcessState::stopped) {
        answers_[rank] = NoAnswer::stopped;
      } else if (!asked_.contains(rank)) {
        answers_[rank] = blameless();
      } else if (past >= setting_.limit && !is_slow) {
        answers_[rank] = state == ProcessState::over ? NoAnswer::gone : NoAnswer::mute;
      }
    }
  }

  // Makes the progress of a rank of unknown state, which is not blamed.
  RankProgress blameless() const {
    RankProgress progress;
    GroupProgress& group = progress.groups.emplace_back();
    group.id = question_.group_id;
    for (LaneProgress& lane : group.lanes)
      lane.begun = lane.ended = UINT64_MAX;
    return progress;
  }

  // Returns members that may still make the call.
  std::set<int> on_their_way() const {
    std::set<int> open(question_.members.begin(), question_.members.end());
    open.erase(setting_.world.me);
    for (const auto& [rank, answer] : answers_) {
      const auto* const progress = std::get_if<RankProgress>(&answer);
      const GroupProgress* const group =
          progress == nullptr ? nullptr : progress->group(question_.group_id);
      const bool has_come =
          group != nullptr && group->lane(question_.lane).begun >= question_.number;
      if (progress == nullptr || has_come) open.erase(rank);
    }
    return open;
  }

  // Counts members that have ended, whose end is about to be reported.
  size_t count_ended() const {
    return static_cast<size_t>(std::ranges::count_if(answers_, [](const auto& answer) {
      const auto* const why = std::get_if<NoAnswer>(&answer.second);
      return why != nullptr && *why == NoAnswer::gone;
    }));
  }

  // True if one call has more of the members that made it than every other. `others`: the rest.
  bool is_decided(const Members& members, size_t others) const {
    const std::optional<Failure> found = mismatch(members);
    return found && found->ranks.size() + others < members.peers.size();
  }

  StragglerQuery question_;
  const StragglerSearch& setting_;
  RankProgress own_;
  const std::unique_ptr<Watch::Questions> questions_;
  const Deadline begun_;
  std::set<int> asked_;
  ProgressAnswers answers_;
  StragglerFindings findings_;
};

Members members_of(const StragglerQuery& question, const Members& world) {
  Members members;
  for (const int rank : question.members) {
    if (rank == world.me) members.me = members.size();
    members.peers.push_back(world[rank]);
  }
  return members;
}

// Finds which members of a mismatch to blame. `suspected` names both ends of what was compared, and
// is returned if no more can be found out.
Failure other_call(const Failure& suspected, const StragglerQuery& question,
                   const StragglerSearch& setting) {
  ProgressAsker asker(question, setting);
  const Members members = members_of(question, setting.world);
  if (!asker.can_ask() || !asker.ask_all_calls(members)) return suspected;
  return asker.mismatch(members).value_or(suspected);
}

}  // namespace

Failure name_stragglers(const Failure& suspected, const StragglerQuery& question,
                        const StragglerSearch& setting) {
  Failure known = suspected;
  known.is_suspicion = false;
  if (suspected.code == ErrorCode::mismatch) {
    known = other_call(known, question, setting);
  } else {
    ProgressAsker asker(question, setting);
    if (!asker.can_ask() || !asker.ask_for_stragglers()) return known;
    if (!asker.findings().differs) {
      return describe_stragglers(known, question, asker.findings(), setting.world);
    }
    Failure other{ErrorCode::mismatch, {}, {}};
    other = other_call(other, question, setting);
    if (!other.ranks.empty()) known = other;
  }
  return known;
}

}  // namespace muster::worker

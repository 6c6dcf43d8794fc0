#include "worker_lib/watch/agreements.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "rendezvous/base/error.h"
#include "rendezvous/base/planted.h"

namespace muster::worker::watch {
namespace {

// Interval at which the coordinator says who is missing.
constexpr Duration kTellAbsence = std::chrono::milliseconds(100);

auto age_of(const Vote& vote) {
  return std::tuple(vote.number, vote.ballot, vote.accepted);
}

// The verdict to be proposed: the newest that a member has accepted, else a new one.
Verdict verdict_of(const std::vector<const Vote*>& votes) {
  const Vote& newest = **std::ranges::max_element(votes, {}, &Vote::accepted);
  if (newest.accepted >= 0 && !PLANTED(AgreementBug::fresh_start)) return newest.verdict;
  Verdict verdict;
  const Vote* speaker = nullptr;
  for (const Vote* const vote : votes) {
    verdict.value &= vote->value;
    verdict.kinds |= static_cast<uint8_t>(1U << static_cast<unsigned>(vote->kind));
    verdict.voters.push_back(vote->rank);
    const bool goes_first = speaker == nullptr || (vote->value == 0 && speaker->value != 0);
    if (!vote->text.empty() && goes_first) speaker = vote;
  }
  if (speaker != nullptr) verdict.text = speaker->text;
  return verdict;
}

}  // namespace

int Agreements::coordinator() const {
  return static_cast<int>(std::ranges::find(gone_, false) - gone_.begin());
}

bool Agreements::is_valid(const Vote& vote) const {
  const auto size = static_cast<int>(gone_.size());
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < size; };
  return is_rank(vote.rank) && std::ranges::all_of(vote.members, is_rank) &&
         std::ranges::count(vote.members, vote.rank) == 1;
}

// This rank's vote of the agreement that is in progress; nullptr: it has none.
Vote* Agreements::own_vote(Agreement& agreement) {
  const auto mine = agreement.votes.find(me_);
  return mine == agreement.votes.end() ? nullptr : &mine->second;
}

Agreements::Step Agreements::cast(Instant now, Vote mine) {
  CHECK(is_valid(mine) && mine.rank == me_);
  Step step;
  Agreement& agreement = agreements_[mine.group_id];
  if (mine.number < agreement.next()) {
    // The others took this rank for dead, and did without its vote.
    step.decided.push_back(*agreement.decision);
    return step;
  }
  mine.ballot = coordinator();
  agreement.votes[me_] = std::move(mine);
  accept(agreement);
  send_own(now, agreement, step);
  return step;
}

void Agreements::send_own(Instant now, Agreement& agreement, Step& step) {
  if (coordinator() == me_) return coordinate(now, agreement, step);
  step.up.push_back(*own_vote(agreement));
}

// Accepts the proposal; false: there is none, this rank has no vote, or voted to a later
// coordinator.
bool Agreements::accept(Agreement& agreement) {
  Vote* const mine = own_vote(agreement);
  const std::optional<Proposal>& proposal = agreement.proposal;
  if (!proposal || mine == nullptr || proposal->ballot < mine->ballot) return false;
  mine->ballot = mine->accepted = proposal->ballot;
  mine->verdict = proposal->verdict;
  return true;
}

Agreements::Step Agreements::take(Instant now, const Vote& vote) {
  Step step;
  if (!is_valid(vote) || vote.rank == me_) return step;
  Agreement& agreement = agreements_[vote.group_id];
  if (vote.number < agreement.next()) return step;
  const auto known = agreement.votes.find(vote.rank);
  if (known != agreement.votes.end() && age_of(known->second) >= age_of(vote)) return step;
  agreement.votes[vote.rank] = vote;
  if (coordinator() == me_) {
    coordinate(now, agreement, step);
  } else {
    step.up.push_back(vote);
  }
  return step;
}

Agreements::Step Agreements::take(Instant now, const Proposal& proposal) {
  Step step;
  Agreement& agreement = agreements_[proposal.group_id];
  const bool is_known = agreement.proposal && agreement.proposal->ballot >= proposal.ballot;
  if (proposal.number != agreement.next() || is_known) return step;
  agreement.proposal = proposal;
  step.onward.emplace_back(proposal);
  if (accept(agreement)) send_own(now, agreement, step);
  return step;
}

Agreements::Step Agreements::take(Instant, const Decision& decision) {
  Step step;
  Agreement& agreement = agreements_[decision.group_id];
  if (decision.number < agreement.next() && !PLANTED(AgreementBug::old_decisions)) return step;
  step.onward.emplace_back(decision);
  decide(agreement, decision, step);
  return step;
}

void Agreements::decide(Agreement& agreement, const Decision& decision, Step& step) {
  const Vote* const mine = own_vote(agreement);
  if (mine != nullptr && mine->number == decision.number) step.decided.push_back(decision);
  agreement.decision = decision;
  agreement.proposal.reset();
  agreement.missing.reset();
  agreement.tell_at = kNever;
  std::erase_if(agreement.votes,
                [&](const auto& one) { return one.second.number <= decision.number; });
}

// Members vote again whichever rank is gone: it may have been the one that passes their votes on.
Agreements::Step Agreements::gone(Instant now, int rank) {
  Step step;
  gone_[static_cast<size_t>(rank)] = true;
  for (auto& [id, agreement] : agreements_) {
    if (Vote* const mine = own_vote(agreement); mine && !PLANTED(AgreementBug::votes_once)) {
      mine->ballot = std::max(mine->ballot, coordinator());
      send_own(now, agreement, step);
    } else if (coordinator() == me_) {
      coordinate(now, agreement, step);
    }
  }
  return step;
}

// The members that are there and have not voted to this rank yet, or not for its proposal.
std::vector<int> Agreements::awaited(const Agreement& agreement) const {
  const bool has_proposed = agreement.proposal && agreement.proposal->ballot == me_;
  std::vector<int> missing;
  for (const int member : agreement.votes.begin()->second.members) {
    const auto vote = agreement.votes.find(member);
    const bool has_voted = vote != agreement.votes.end() && vote->second.ballot == me_ &&
                           vote->second.number == agreement.next() &&
                           (!has_proposed || vote->second.accepted == me_);
    if (is_there(member) && !has_voted) missing.push_back(member);
  }
  return missing;
}

// Goes on with an agreement as its coordinator, as far as the votes allow.
void Agreements::coordinate(Instant now, Agreement& agreement, Step& step) {
  agreement.tell_at = kNever;
  if (agreement.votes.empty()) return;
  const std::string id = agreement.votes.begin()->second.group_id;
  const bool has_proposed = agreement.proposal && agreement.proposal->ballot == me_;
  if (!has_proposed && awaited(agreement).empty()) {
    std::vector<const Vote*> votes;
    for (const auto& [rank, vote] : agreement.votes) {
      if (is_there(rank)) votes.push_back(&vote);
    }
    if (votes.empty()) return;
    agreement.proposal = Proposal{id, agreement.next(), me_, verdict_of(votes)};
    step.all.emplace_back(*agreement.proposal);
    accept(agreement);
  }
  if (awaited(agreement).empty() || (agreement.proposal && PLANTED(AgreementBug::one_phase))) {
    const Decision decision{id, agreement.next(), agreement.proposal->verdict};
    step.all.emplace_back(decision);
    return decide(agreement, decision, step);
  }
  agreement.tell_at = instant_after(now, kTellAbsence);
}

Agreements::Step Agreements::take(Instant, const Missing& missing) {
  Step step;
  Agreement& agreement = agreements_[missing.group_id];
  if (missing.number != agreement.next() || agreement.missing == missing) return step;
  agreement.missing = missing;
  step.onward.emplace_back(missing);
  step.missing.push_back(missing);
  return step;
}

Agreements::Step Agreements::tick(Instant now) {
  Step step;
  for (auto& [id, agreement] : agreements_) {
    if (agreement.tell_at > now) continue;
    agreement.tell_at = kNever;
    Missing missing{id, agreement.next(), awaited(agreement)};
    if (agreement.missing == missing) continue;
    agreement.missing = missing;
    step.all.emplace_back(missing);
    step.missing.push_back(std::move(missing));
  }
  return step;
}

Instant Agreements::next_deadline() const {
  Instant next = kNever;
  for (const auto& [id, agreement] : agreements_)
    next = std::min(next, agreement.tell_at);
  return next;
}

std::vector<Message> Agreements::known() const {
  std::vector<Message> messages;
  if (PLANTED(AgreementBug::silent_new_links)) return messages;
  for (const auto& [id, agreement] : agreements_) {
    if (agreement.decision) messages.emplace_back(*agreement.decision);
    if (agreement.proposal) messages.emplace_back(*agreement.proposal);
    for (const auto& [rank, vote] : agreement.votes)
      messages.emplace_back(vote);
  }
  return messages;
}

}  // namespace muster::worker::watch

#include "agent/report/judge.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>

#include "rendezvous/base/enum_name.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr Duration kSameMoment = std::chrono::milliseconds(1);
// A process that exits loses its connections before its end is observed.
constexpr Duration kLeaves = std::chrono::seconds(2);
// A silent exit this long after another worker's last words has another reason.
constexpr Duration kSilentExitFollows = std::chrono::milliseconds(500);

enum class Order : uint8_t { before, same, after };

// The signal that ended a process; 0: none. An exit with 128 + n counts as signal n for faults and
// SIGKILL, since a shell that ran the program reports them like that.
int fatal_signal(const WorkerSigns& worker) {
  if (!worker.status || worker.by_stop) return 0;
  if (worker.status->kind == ExitStatus::Kind::signaled) return worker.status->value;
  const int signal = worker.status->value - 128;
  const bool reported =
      is_one_of(signal, {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV});
  return reported ? signal : 0;
}

// Rules a and b. What a process printed before a fault or a kill is not why it ended.
bool is_victim(const WorkerSigns& worker) {
  const int signal = fatal_signal(worker);
  if (signal == SIGPIPE) return !worker.lost_console;
  return worker.blame && (signal == 0 || signal == SIGABRT);
}

// Judges a worker by its own signs alone. The culprit is then chosen among the failed_later.
Part part_of(const WorkerSigns& worker) {
  if (worker.declared) return Part::failed_later;
  if (worker.status && worker.status->success()) return Part::bystander;
  const bool failed = worker.status && !worker.by_stop;
  if (!failed && !worker.raised) return Part::bystander;
  if (worker.at_stop == AtStop::running && !worker.raised) return Part::crashed;
  if (worker.presumed && worker.by_stop && worker.blame) return Part::bystander;
  return is_victim(worker) ? Part::victim : Part::failed_later;
}

Instant began(const WorkerSigns& worker) {
  return worker.raised.value_or(worker.ended);
}

// The largest difference at which instants of two workers count as the same.
Duration doubt(const WorkerSigns& a, const WorkerSigns& b) {
  const bool one_clock = a.node_rank == b.node_rank;
  return kSameMoment + a.raised_error + b.raised_error +
         (one_clock ? Duration{0} : a.clock_error + b.clock_error);
}

Order compare_times(const WorkerSigns& a, const WorkerSigns& b) {
  const Duration apart = began(b) - began(a);
  if (apart > doubt(a, b)) return Order::before;
  return apart < -doubt(a, b) ? Order::after : Order::same;
}

// Rule b, except if the signalled process printed something after the other one's exception, or if
// it aborted: like an exception, an abort is a program's own way to end.
bool signal_is_first(const WorkerSigns& signalled, const WorkerSigns& other) {
  if (!other.raised) return true;
  if (fatal_signal(signalled) == SIGABRT) return false;
  if (!signalled.active_until) return true;
  return *signalled.active_until <= *other.raised + doubt(signalled, other);
}

struct Comparison {
  Order order = Order::same;
  Reason reason = Reason::died_first;
};

// A victim may exit without a message at the moment when the culprit prints its error.
bool is_silent_exit(const WorkerSigns& worker) {
  return !worker.raised && fatal_signal(worker) == 0;
}

// Rules b to d and f.
Comparison compare(const WorkerSigns& a, const WorkerSigns& b) {
  const bool a_by_signal = fatal_signal(a) != 0;
  const bool b_by_signal = fatal_signal(b) != 0;
  if (a_by_signal && !b_by_signal && signal_is_first(a, b))
    return {Order::before, Reason::fatal_signal};
  if (b_by_signal && !a_by_signal && signal_is_first(b, a))
    return {Order::after, Reason::fatal_signal};
  const Order order = compare_times(a, b);
  if (!a.raised && !b.raised) return {order, Reason::died_first};
  if (order == Order::same && is_silent_exit(b)) return {Order::before, Reason::raised_first};
  if (order == Order::same && is_silent_exit(a)) return {Order::after, Reason::raised_first};
  return {order, Reason::raised_first};
}

// A strict order even of failures at the same moment, since one of them must be named.
bool stands_before(const WorkerSigns& a, const WorkerSigns& b, Order order) {
  if (order != Order::same) return order == Order::before;
  if (a.node_rank == b.node_rank && !a.raised && !b.raised) return a.order < b.order;
  return began(a) < began(b);
}

bool contains_rank(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

bool is_second_hand(const WorkerSigns& worker) {
  return worker.blame && worker.blame->is_hearsay;
}

// A time-out that blames no rank.
bool is_plain_timeout(const WorkerSigns& worker) {
  const std::optional<Blame>& blame = worker.blame;
  return blame && blame->ranks.empty() &&
         (blame->is_hearsay || blame->about == Blame::About::timeout);
}

// One attempt to be judged.
class Case {
 public:
  Case(const std::vector<WorkerSigns>& workers, const std::vector<LostNode>& lost,
       const std::vector<DetectedCulprit>& detected)
      : workers_(workers), lost_(lost), detected_(detected) {
    for (const WorkerSigns& worker : workers)
      verdict_.parts.push_back(part_of(worker));
    verdict_.findings.resize(workers.size());
  }

  AttemptVerdict decide() {
    weigh_presumed();
    note_detected();
    const std::vector<size_t> own = all_of(Part::failed_later);
    const std::vector<size_t> victims = all_of(Part::victim);
    if (!(own.empty() && victims.empty()) && name_detected()) return std::move(verdict_);
    const bool victims_decide = own.empty() || is_echo_only(own, victims);
    if (victims_decide && name_the_named(victims)) return std::move(verdict_);
    if (!own.empty()) {
      name_first(own);
      if (is_explained_by_loss(workers_[*verdict_.culprit])) name_lost(0);
    } else if (victims.empty()) {
      if (!lost_.empty()) name_lost(0);
    } else if (is_explained_by_loss(workers_[first_of_victims(victims)])) {
      name_lost(0);
    } else if (!name_first_to_leave(victims)) {
      const size_t first = first_of_victims(victims);
      const std::optional<Blame>& blame = workers_[first].blame;
      const bool blames_nobody = victims.size() == 1 && blame && blame->any_connection;
      if (blames_nobody || !name_awaited(workers_[first]))
        name(first, blames_nobody ? Reason::only_failure : Reason::first_victim);
    }
    return std::move(verdict_);
  }

 private:
  std::vector<size_t> all_of(Part part) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (verdict_.parts[i] == part) found.push_back(i);
    }
    return found;
  }

  // Rule c for presumed errors, from which a worker may have recovered.
  void weigh_presumed() {
    bool has_own_error = false;
    std::optional<Instant> first_silent;
    for (const size_t index : all_of(Part::failed_later)) {
      const WorkerSigns& worker = workers_[index];
      if (worker.presumed) continue;
      if (is_silent_exit(worker) && !worker.declared) {
        first_silent = std::min(first_silent.value_or(worker.ended), worker.ended);
      } else {
        has_own_error = true;
      }
    }
    for (const size_t index : all_of(Part::failed_later)) {
      const WorkerSigns& worker = workers_[index];
      if (!worker.presumed) continue;
      if (has_own_error || (first_silent && *worker.raised + kSilentExitFollows < *first_silent))
        verdict_.parts[index] = worker.by_stop ? Part::bystander : Part::crashed;
    }
  }

  void name(size_t worker, Reason reason) {
    verdict_.culprit = worker;
    verdict_.parts[worker] = Part::culprit;
    verdict_.reason = reason;
  }

  void name_lost(size_t node) {
    if (verdict_.culprit) verdict_.parts[*verdict_.culprit] = Part::failed_later;
    std::ranges::replace(verdict_.parts, Part::simultaneous, Part::failed_later);
    verdict_.culprit.reset();
    verdict_.lost = node;
    verdict_.reason = Reason::node_lost;
  }

  // The worker library's own report comes first, unless a rank had been made to fail by then: ranks
  // hear of that from each other, before their own node is told to stop.
  void note_detected() {
    Instant over = Instant::max();
    for (const DetectedCulprit& one : detected_)
      over = std::min(over, one.failed.value_or(over));
    const auto has_spoken = [over](const WorkerSigns& worker) {
      return worker.told_by_library && *worker.told_by_library + worker.clock_error < over;
    };
    if (std::ranges::any_of(workers_, has_spoken)) return;
    for (size_t i = 0; i < detected_.size(); ++i) {
      const std::optional<size_t> worker = worker_of(detected_[i].rank);
      if (worker && detected_[i].waiting.empty()) verdict_.findings[*worker] = i;
    }
  }

  // Rule g.
  bool name_detected() {
    std::vector<size_t> found;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (verdict_.findings[i]) found.push_back(i);
    }
    if (found.empty()) return false;
    const size_t first = first_of(found, compare_times);
    name_found(first, *verdict_.findings[first]);
    return true;
  }

  void name_found(size_t worker, size_t finding) {
    verdict_.findings[worker] = finding;
    name(worker, detected_[finding].is_mismatch ? Reason::mismatch : Reason::hang);
  }

  // Rule h: the only rank for which the victim waited, or the ranks that it has heard of.
  bool name_awaited(const WorkerSigns& victim) {
    if (!is_plain_timeout(victim)) return false;
    std::map<int, size_t> awaited;
    for (size_t i = 0; i < detected_.size(); ++i) {
      const DetectedCulprit& one = detected_[i];
      const bool is_meant = is_second_hand(victim) || contains_rank(one.waiting, victim.rank);
      if (is_meant && !one.waiting.empty()) awaited.try_emplace(one.rank, i);
    }
    std::erase_if(awaited, [&](const auto& one) {
      const std::optional<size_t> worker = worker_of(one.first);
      return !worker || is_waiting(one.first) ||
             (workers_[*worker].blame && !is_second_hand(workers_[*worker]));
    });
    if (awaited.size() != 1) return false;
    name_found(*worker_of(awaited.begin()->first), awaited.begin()->second);
    return true;
  }

  bool is_waiting(int rank) const {
    return std::ranges::any_of(
        detected_, [rank](const DetectedCulprit& one) { return contains_rank(one.waiting, rank); });
  }

  std::optional<size_t> worker_of(int rank) const {
    const auto found = std::ranges::find(workers_, rank, &WorkerSigns::rank);
    if (found == workers_.end()) return std::nullopt;
    return static_cast<size_t>(found - workers_.begin());
  }

  // The reason is the weakest rule needed to set the first failure apart from all others.
  void name_first(const std::vector<size_t>& own) {
    const size_t first = first_of(
        own, [](const WorkerSigns& a, const WorkerSigns& b) { return compare(a, b).order; });
    Reason reason = Reason::only_failure;
    for (const size_t other : own) {
      if (other == first) continue;
      const Comparison with = compare(workers_[first], workers_[other]);
      reason = std::max(reason, with.reason);
      if (with.order == Order::same) verdict_.parts[other] = Part::simultaneous;
    }
    name(first, reason);
  }

  // True if each of `own` exited silently after a victim had named another rank: a victim itself.
  bool is_echo_only(const std::vector<size_t>& own, const std::vector<size_t>& victims) const {
    return std::ranges::all_of(own, [&](size_t silent) {
      const WorkerSigns& worker = workers_[silent];
      if (worker.raised || worker.declared || fatal_signal(worker) != 0) return false;
      return std::ranges::any_of(victims, [&](size_t victim) {
        const std::vector<int>& named =
            workers_[victim].blame ? workers_[victim].blame->ranks : std::vector<int>{};
        const bool names_another =
            !named.empty() && std::ranges::find(named, worker.rank) == named.end();
        return names_another && compare_times(workers_[victim], worker) == Order::before;
      });
    });
  }

  // Rule e: the rank that most victims name and that may have kept them waiting: it left, it still
  // ran when the stop came, or its node was lost. Ranks that do not exist are ignored.
  bool name_the_named(const std::vector<size_t>& victims) {
    std::map<int, int> votes;
    for (const WorkerSigns& worker : workers_)
      votes[worker.rank] = 0;
    for (const LostNode& node : lost_) {
      for (const int rank : node.ranks)
        votes[rank] = 0;
    }
    for (const size_t victim : victims) {
      if (!workers_[victim].blame) continue;
      for (const int rank : workers_[victim].blame->ranks) {
        const auto found = votes.find(rank);
        if (found != votes.end() && rank != workers_[victim].rank) ++found->second;
      }
    }
    std::erase_if(votes, [](const auto& one) { return one.second == 0; });
    std::vector<std::pair<int, int>> most_first(votes.begin(), votes.end());
    std::ranges::sort(most_first, {},
                      [](const auto& one) { return std::pair(-one.second, one.first); });
    return std::ranges::any_of(most_first,
                               [this](const auto& one) { return name_rank(one.first); });
  }

  bool name_rank(int rank) {
    for (size_t i = 0; i < lost_.size(); ++i) {
      if (std::ranges::find(lost_[i].ranks, rank) == lost_[i].ranks.end()) continue;
      name_lost(i);
      return true;
    }
    const std::optional<size_t> worker = worker_of(rank);
    if (!worker || !is_one_of(verdict_.parts[*worker], {Part::bystander, Part::crashed}))
      return false;
    name(*worker, Reason::named);
    return true;
  }

  // When the worker left the others, without an error of its own.
  std::optional<Instant> left_at(size_t index) const {
    const WorkerSigns& worker = workers_[index];
    if (worker.left && is_one_of(verdict_.parts[index], {Part::bystander, Part::crashed}))
      return worker.left;
    const bool has_left = worker.status && worker.status->success() && !worker.declared &&
                          worker.at_stop != AtStop::running;
    return has_left ? std::optional(worker.ended) : std::nullopt;
  }

  // Rule e: the rank that left first; none if all victims' errors may concern any host.
  bool name_first_to_leave(const std::vector<size_t>& victims) {
    const bool of_ranks = std::ranges::any_of(victims, [this](size_t victim) {
      return workers_[victim].blame && !workers_[victim].blame->any_connection;
    });
    if (!of_ranks) return false;
    const WorkerSigns& first_victim = workers_[first_of_victims(victims)];
    std::optional<std::pair<Instant, size_t>> first;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const std::optional<Instant> left = left_at(i);
      if (!left || *left > began(first_victim) + kLeaves + doubt(workers_[i], first_victim))
        continue;
      first = std::min(first.value_or(std::pair(*left, i)), std::pair(*left, i));
    }
    if (first) name(first->second, Reason::left_early);
    return first.has_value();
  }

  // REQUIRES: `some` is not empty.
  template <typename OrderOf>
  size_t first_of(const std::vector<size_t>& some, OrderOf order_of) const {
    return *std::ranges::min_element(some, [&](size_t a, size_t b) {
      return stands_before(workers_[a], workers_[b], order_of(workers_[a], workers_[b]));
    });
  }

  size_t first_of_victims(const std::vector<size_t>& victims) const {
    return first_of(victims, compare_times);
  }

  // A worker that failed while the node was still heard failed first. From then until the node was
  // gone, a fault is the worker's own, but the loss may have caused an exit code.
  bool is_explained_by_loss(const WorkerSigns& worker) const {
    if (lost_.empty()) return false;
    const Instant failed = began(worker) + worker.clock_error + worker.raised_error;
    if (failed < lost_.front().last_heard) return false;
    return is_victim(worker) || fatal_signal(worker) == 0 || failed >= lost_.front().gone_by;
  }

  const std::vector<WorkerSigns>& workers_;
  const std::vector<LostNode>& lost_;
  const std::vector<DetectedCulprit>& detected_;
  AttemptVerdict verdict_;
};

}  // namespace

AttemptVerdict judge(const std::vector<WorkerSigns>& workers, const std::vector<LostNode>& lost,
                     const std::vector<DetectedCulprit>& detected) {
  return Case(workers, lost, detected).decide();
}

const char* part_name(Part part) {
  return name_in<Part::crashed>(
      {"bystander", "culprit", "simultaneous", "failed_later", "victim", "crashed"}, part);
}

const char* reason_name(Reason reason) {
  return name_in<Reason::hang>(
      {"only_failure", "fatal_signal", "raised_first", "died_first", "named", "left_early",
       "node_lost", "first_victim", "mismatch", "hang"},
      reason);
}

}  // namespace muster

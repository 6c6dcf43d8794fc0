// Drives a hang detector in tests, on its own clock: the test sets the calls, lives and ends of
// ranks, and FakeJob reads and samples them as an agent does.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "agent/hang/detector.h"
#include "agent/hang/hang_text.h"
#include "agent/report/text.h"

namespace muster::hang {

inline ring::Call sum_of(uint64_t count) {
  return {.kind = ring::CallKind::all_reduce,
          .type = ring::ElementType::float32,
          .reduction = ring::Reduction::sum,
          .is_synchronous = true,
          .count = count};
}

inline ring::Call call_of(ring::CallKind kind, int root = -1, uint64_t count = 8) {
  return {.kind = kind,
          .type = ring::ElementType::float32,
          .is_synchronous = true,
          .root = root,
          .count = count};
}

inline const ring::Call kBarrier = {.kind = ring::CallKind::barrier, .is_synchronous = true};

// Text of the first call after that of running_job().
inline constexpr auto kSum = "all_reduce (sum) of 8 float32 #2 world";

inline std::vector<int> named(const Finding& finding) {
  std::vector<int> ranks;
  for (const Suspect& suspect : finding.ranks)
    ranks.push_back(suspect.rank);
  return ranks;
}

// "busy 5 <- 0-4 all_reduce #2 world time high"
inline std::string to_text(const Finding& finding) {
  const char* const sure[] = {"low", "medium", "high"};
  return fmt::format(
      "{} {}{} <- {} {} #{} {} {} {}", name_of(finding.what), fmt::join(named(finding), ","),
      finding.is_tie ? " tie" : "", rank_ranges(finding.waiting), operation_text(finding),
      finding.operation.ordinal, finding.operation.group.text,
      finding.by == By::proof ? "proof" : "time", sure[static_cast<size_t>(finding.confidence)]);
}

inline std::string to_text(const Effect& effect) {
  struct Text {
    std::string operator()(const LookAt& one) const { return "look " + rank_ranges(one.ranks); }
    std::string operator()(const Notice& one) const { return "notice " + to_text(one.finding); }
    std::string operator()(const Verdict& one) const { return "verdict " + to_text(one.finding); }
    std::string operator()(const WaitEnded& one) const {
      return fmt::format("{} {}", one.have_come ? "came" : "gave up", rank_ranges(one.ranks));
    }
    std::string operator()(const WentOn& one) const {
      return fmt::format("{} went on", one.number);
    }
    std::string operator()(const Withdrawn& one) const {
      return fmt::format("withdrawn {}, limit {}", rank_ranges(one.ranks),
                         duration_text(one.limit));
    }
    std::string operator()(const Explained& one) const {
      return fmt::format("explained by {}", one.number);
    }
  };
  return std::visit(Text{}, effect);
}

// The text of a notice and of the verdict on the same wait.
inline std::string notice_and_verdict(std::string_view who, std::string_view operation,
                                      std::string_view sure = "high") {
  const std::string finding = fmt::format("{} {} time {}", who, operation, sure);
  return fmt::format("notice {} | verdict {}", finding, finding);
}

// A rank, with the content of its ring.
class FakeRank {
 public:
  explicit FakeRank(int rank) {
    digest.rank = rank;
    digest.generation = 1;
    digest.source = 1;
  }

  GroupDigest& group(const std::string& id) {
    const auto found = std::ranges::find(digest.groups, id, &GroupDigest::id);
    CHECK(found != digest.groups.end());
    return *found;
  }

  RankDigest digest;
  bool records = true;
  LifeState life = LifeState::running;
  std::string waits_at;  // Life::target.
  std::optional<int> code;
};

class FakeJob {
 public:
  explicit FakeJob(int world, const Limits& limits = {}) : limits_(limits), detector_(limits) {
    for (int rank = 0; rank < world; ++rank)
      ranks.emplace_back(rank);
    step(Begun{world});
  }

  // ---- what ranks do
  void open(const std::string& id, const std::vector<int>& members,
            GroupPhase phase = GroupPhase::ready) {
    for (const int rank : members)
      open_on(rank, id, members, phase);
  }
  void open_on(int rank, const std::string& id, const std::vector<int>& members,
               GroupPhase phase = GroupPhase::ready) {
    GroupDigest group;
    group.id = group.name = id;
    group.ranks = members;
    group.size = static_cast<int>(members.size());
    group.own_rank = static_cast<int>(std::ranges::find(members, rank) - members.begin());
    group.phase = phase;
    group.since = now_;
    at(rank).digest.groups.push_back(group);
  }
  void call(int rank, const std::string& id, const ring::Call& what) {
    GroupDigest& group = at(rank).group(id);
    group.calls.push_back({++group.called, what, now_, fmt::format("train.py:{}", group.called)});
    if (group.calls.size() > 32) group.calls.erase(group.calls.begin());
    if (what.is_synchronous && at(rank).life == LifeState::running) life(rank, LifeState::blocked);
  }
  void complete(int rank, const std::string& id) {
    at(rank).group(id).completed = at(rank).group(id).called;
    life(rank, LifeState::running);
  }
  // All `members` make the call and complete it.
  void all(const std::vector<int>& members, const std::string& id, const ring::Call& what) {
    for (const int rank : members)
      call(rank, id, what);
    for (const int rank : members)
      complete(rank, id);
  }
  void message(int rank, const std::string& id, int peer, bool is_recv, bool completed,
               bool is_synchronous = true) {
    std::vector<MessageDigest>& all = at(rank).digest.messages;
    auto one = std::ranges::find_if(all, [&](const MessageDigest& m) {
      return m.group == id && m.peer == peer && m.is_recv == is_recv;
    });
    if (one == all.end())
      one = all.insert(one, {.group = id, .peer = peer, .is_recv = is_recv, .site = "p2p.cc:1"});
    ++one->called;
    one->completed += completed ? 1 : 0;
    one->is_synchronous = is_synchronous;
    one->called_at = now_;
  }
  void life(int rank, LifeState state) { at(rank).life = state; }
  void end(int rank, int code, bool is_read = true) {
    at(rank).code = code;
    if (is_read && at(rank).records) {
      RankDigest digest = at(rank).digest;
      digest.at = now_;
      digest.is_last = true;
      step(Digested{digest});
    }
    step(Ended{rank, code});
  }

  // ---- what the agent does
  // Lets time pass; per look interval, rings are read four times and processes looked at once.
  void pass(Duration duration) {
    const Instant end = now_ + duration;
    while (now_ < end) {
      now_ += std::min<Duration>(limits_.look / 4, end - now_);
      read();
      look();
      step(Tick{});
    }
  }
  void read() {
    for (FakeRank& rank : ranks) {
      if (!rank.records || rank.code) continue;
      rank.digest.at = now_;
      step(Digested{rank.digest});
    }
  }
  void look() {
    if (now_ - looked_ < limits_.look) return;
    looked_ = now_;
    for (const int rank : looked_at) {
      if (at(rank).code) continue;
      if (!std::ranges::binary_search(looked_before_, rank)) continue;
      Life life{.state = at(rank).life, .target = at(rank).waits_at};
      if (!life.target.empty()) life.call = {.is_known = true, .name = "recvfrom"};
      step(LifeSeen{rank, life});
    }
    looked_before_ = looked_at;
  }
  void step(const Event& event) {
    std::vector<Effect> out;
    detector_.step(now_, event, out);
    for (const Effect& effect : out) {
      if (const auto* const list = std::get_if<LookAt>(&effect)) {
        looked_at = list->ranks;
        continue;
      }
      effects.push_back(effect);
    }
  }

  // The effects since the last call, joined by " | ".
  std::string said() {
    std::vector<std::string> texts;
    for (const Effect& effect : effects)
      texts.push_back(to_text(effect));
    effects.clear();
    return fmt::format("{}", fmt::join(texts, " | "));
  }
  // Lets time pass until the next effect, but at most `most`; returns how long that took.
  Duration until_said(Duration most) {
    const Instant begin = now_;
    while (effects.empty() && now_ - begin < most)
      pass(limits_.look / 4);
    return now_ - begin;
  }
  template <typename Kind>
  const Kind* last() const {
    for (auto effect = effects.rbegin(); effect != effects.rend(); ++effect) {
      if (const auto* const found = std::get_if<Kind>(&*effect)) return found;
    }
    return nullptr;
  }
  // Returns the last verdict. Fails the test if there is none, and returns a blank one.
  Finding verdict() const {
    if (const auto* const found = last<Verdict>()) return found->finding;
    ADD_FAILURE() << "no verdict";
    Suspect nobody;
    nobody.call.emplace();
    Finding blank;
    blank.ranks = {nobody, nobody};
    return blank;
  }

  FakeRank& at(int rank) { return ranks[static_cast<size_t>(rank)]; }
  Instant now() const { return now_; }
  Detector& detector() { return detector_; }

  std::vector<FakeRank> ranks;
  std::vector<int> looked_at;
  std::vector<Effect> effects;  // All but LookAt.

 private:
  Limits limits_;
  Detector detector_;
  Instant now_{std::chrono::seconds(1000)};
  Instant looked_{};
  std::vector<int> looked_before_;
};

inline std::vector<int> all_of(int world) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(rank);
  return ranks;
}

// A job that has opened the group "world" and made one call in it.
inline FakeJob running_job(int world, const Limits& limits = {}) {
  FakeJob job(world, limits);
  job.open("world", all_of(world));
  job.pass(std::chrono::seconds(1));
  job.all(all_of(world), "world", sum_of(8));
  job.pass(std::chrono::seconds(1));
  return job;
}

// All ranks but `late` make a call.
inline void call_without(FakeJob& job, const std::vector<int>& late,
                         const ring::Call& what = sum_of(8)) {
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    if (std::ranges::count(late, static_cast<int>(rank)) == 0)
      job.call(static_cast<int>(rank), "world", what);
  }
}

// A running job in which all ranks but `late` make a call; those processes are in these states.
inline FakeJob job_with_late(int world, const std::map<int, LifeState>& late,
                             const Limits& limits = {}) {
  FakeJob job = running_job(world, limits);
  std::vector<int> ranks;
  for (const auto& [rank, life] : late) {
    ranks.push_back(rank);
    job.life(rank, life);
  }
  call_without(job, ranks);
  return job;
}

}  // namespace muster::hang

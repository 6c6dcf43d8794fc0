// Random programs: every rank performs the same list of operations on overlapping groups, some of
// them asynchronous, and compares each result with the computed one. One seed makes one program.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/base/prng.h"
#include "tests/unit/worker_lib/group/fake_backend.h"

namespace muster::worker::group_test {
namespace {

constexpr int kMixedRanks = 4;

struct Step {
  enum class Kind { all_reduce, broadcast, all_gather, message, bytes, barrier };
  Kind kind;
  size_t group;
  bool async;
  int root;      // Group rank; the sender of a message.
  int64_t salt;  // Makes the values of each step unique.
};

struct Program {
  std::vector<std::vector<GlobalRank>> groups;
  std::vector<Step> steps;
};

int below(Prng& prng, size_t end) {
  return static_cast<int>(prng.below(end));
}

Program make_program(uint64_t seed) {
  Prng prng(seed);
  Program program;
  program.groups.push_back({{0}, {1}, {2}, {3}});
  for (int i = 0; i < 4; ++i) {
    std::vector<GlobalRank> ranks;
    for (int rank = 0; rank < kMixedRanks; ++rank) {
      if (below(prng, 3) > 0) ranks.insert(ranks.begin() + below(prng, ranks.size() + 1), {rank});
    }
    if (!ranks.empty()) program.groups.push_back(ranks);
  }
  for (int64_t i = 0; i < 80; ++i) {
    const auto group = static_cast<size_t>(below(prng, program.groups.size()));
    program.steps.push_back({static_cast<Step::Kind>(below(prng, 6)), group, below(prng, 2) == 0,
                             below(prng, program.groups[group].size()), i * 1000});
  }
  return program;
}

// Buffers and expected result of a step.
struct Pending {
  std::vector<int64_t> in;
  std::vector<int64_t> out;
  std::vector<int64_t> expected;
  Work work;
};

class RankRun {
 public:
  RankRun(FakeRank& rank, const Program& program) : program_(program) {
    for (const auto& ranks : program.groups)
      groups_.push_back(rank.new_group(ranks));
  }

  void run() {
    pending_.reserve(program_.steps.size());  // Buffers must not move.
    for (const Step& step : program_.steps) {
      if (groups_[step.group].is_member()) perform(step);
    }
    for (Pending& one : pending_) {
      if (one.work.valid()) one.work.wait();
      EXPECT_EQ(one.out, one.expected);
    }
  }
  size_t performed() const { return pending_.size(); }

 private:
  void perform(const Step& step) {
    ProcessGroup& group = groups_[step.group];
    const int me = group.rank().value;
    const int n = group.size();
    Pending& now = pending_.emplace_back();
    now.in = {step.salt + me};
    now.out = {-1};
    switch (step.kind) {
      case Step::Kind::all_reduce:
        now.expected = {step.salt * n + n * (n - 1) / 2};
        return call(step, now, &ProcessGroup::all_reduce_async, ReduceOp::sum);
      case Step::Kind::broadcast:
        now.out = now.in;
        now.expected = {step.salt + step.root};
        if (step.async) {
          now.work = group.broadcast_async(now.out, GroupRank{step.root});
        } else {
          group.broadcast(now.out, GroupRank{step.root});
        }
        return;
      case Step::Kind::all_gather:
        now.out.assign(static_cast<size_t>(n), -1);
        for (int rank = 0; rank < n; ++rank)
          now.expected.push_back(step.salt + rank);
        if (step.async) {
          now.work = group.all_gather_async(now.in, now.out);
        } else {
          group.all_gather(now.in, now.out);
        }
        return;
      case Step::Kind::message:
        return message(step, now);
      case Step::Kind::bytes: {
        std::string text = me == step.root ? std::to_string(step.salt) : "";
        group.broadcast_bytes(text, GroupRank{step.root});
        EXPECT_EQ(text, std::to_string(step.salt));
        now.expected = now.out;
        return;
      }
      case Step::Kind::barrier:
        now.expected = now.out;
        step.async ? static_cast<void>(now.work = group.barrier_async()) : group.barrier();
        return;
    }
  }

  using Reduce = Work (ProcessGroup::*)(ConstBuffer, Buffer, ReduceOp, const CallOptions&);
  void call(const Step& step, Pending& now, Reduce async, ReduceOp op) {
    ProcessGroup& group = groups_[step.group];
    if (step.async) {
      now.work = (group.*async)(now.in, now.out, op, {});
    } else {
      group.all_reduce(now.in, now.out, op);
    }
  }

  // Sends from the root to all others.
  void message(const Step& step, Pending& now) {
    ProcessGroup& group = groups_[step.group];
    const int me = group.rank().value;
    const int tag = static_cast<int>(step.salt / 1000);
    now.expected = me == step.root ? now.out : std::vector<int64_t>{step.salt + step.root};
    if (me != step.root) {
      if (step.async) {
        now.work = group.irecv(now.out, GroupRank{step.root}, tag);
      } else {
        group.recv(now.out, GroupRank{step.root}, tag);
      }
      return;
    }
    for (int to = 0; to < group.size(); ++to) {
      if (to != me) group.send(now.in, GroupRank{to}, tag);
    }
  }

  const Program& program_;
  std::vector<ProcessGroup> groups_;
  std::vector<Pending> pending_;
};

TEST(GroupMix, RandomProgramsOnOverlappingGroupsGiveTheExpectedResults) {
  const char* const chosen = std::getenv("MUSTER_SEED");
  const uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const uint64_t last = chosen != nullptr ? first : 20;
  std::atomic<size_t> performed{0};
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(seed);
    const Program program = make_program(seed);
    FakeJob job(kMixedRanks);
    job.each([&](FakeRank& rank) {
      RankRun run(rank, program);
      run.run();
      performed += run.performed();
      rank.host->close_groups();
    });
    EXPECT_EQ(job.watch().listeners(), 0U);
  }
  std::printf("seeds %llu to %llu, %zu operations performed\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(last),
              performed.load());
}

}  // namespace
}  // namespace muster::worker::group_test

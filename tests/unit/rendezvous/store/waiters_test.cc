#include "rendezvous/store/waiters.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

using Ids = std::vector<ClientId>;

Ids wake(Waiters& waiters, std::string_view name, WakeKind kind = WakeKind::all) {
  Ids woken;
  waiters.wake(name, kind, woken);
  return woken;
}

TEST(Waiters, WakesAWaiterAtItsLastMissingName) {
  Waiters waiters(1);
  waiters.park(3, {"a", "b", "c"});
  EXPECT_EQ(wake(waiters, "b"), Ids{});
  EXPECT_EQ(wake(waiters, "b"), Ids{});  // A name counts once.
  EXPECT_EQ(wake(waiters, "a"), Ids{});
  EXPECT_EQ(waiters.waiting(), 1u);
  EXPECT_EQ(wake(waiters, "c"), Ids{3});
  EXPECT_TRUE(waiters.empty());
  EXPECT_EQ(wake(waiters, "c"), Ids{});
}

TEST(Waiters, AppendsWokenClients) {
  Waiters waiters(1);
  waiters.park(1, {"a"});
  waiters.park(2, {"b"});
  Ids woken{7};
  waiters.wake("b", WakeKind::all, woken);
  waiters.wake("a", WakeKind::all, woken);
  waiters.wake("c", WakeKind::all, woken);
  EXPECT_EQ(woken, (Ids{7, 2, 1}));
}

TEST(Waiters, WakesTheFirstThatMissesNothingElseForAnItem) {
  Waiters waiters(1);
  waiters.park(1, {"queue", "key"});
  waiters.park(2, {"queue"});
  waiters.park(3, {"queue"});
  EXPECT_EQ(wake(waiters, "queue", WakeKind::one), Ids{2});
  EXPECT_EQ(wake(waiters, "key"), Ids{1});
  EXPECT_EQ(wake(waiters, "queue", WakeKind::one), Ids{3});
  EXPECT_EQ(waiters.bytes(), 0u);
  EXPECT_EQ(wake(waiters, "queue", WakeKind::one), Ids{});
}

TEST(Waiters, ForgetsAnUnknownClient) {
  Waiters waiters(1);
  waiters.forget(0);
  waiters.forget(std::numeric_limits<ClientId>::max());
  waiters.park(1, {"k"});
  waiters.forget(0);
  EXPECT_EQ(wake(waiters, "k"), Ids{1});
}

TEST(Waiters, CopiesNamesOfAnyBytes) {
  Waiters waiters(1);
  std::string name("a\0b", 3);
  waiters.park(1, {name, ""});
  name = "xyz";
  EXPECT_EQ(wake(waiters, "xyz"), Ids{});
  EXPECT_EQ(wake(waiters, "a"), Ids{});
  EXPECT_EQ(wake(waiters, std::string_view("a\0b", 3)), Ids{});
  EXPECT_EQ(wake(waiters, ""), Ids{1});
}

TEST(Waiters, CountsALongNameOnceAndFreesItWithItsLastWaiter) {
  Waiters waiters(1);
  const std::string name(8192, 'k');
  waiters.park(1, {name});
  const size_t one = waiters.bytes();
  EXPECT_GE(one, name.size());
  waiters.park(2, {name});
  EXPECT_LT(waiters.bytes(), one + 1024);
  EXPECT_GT(waiters.bytes(), one);
  waiters.forget(1);
  EXPECT_EQ(waiters.bytes(), one);
  waiters.forget(2);
  EXPECT_EQ(waiters.bytes(), 0u);
}

TEST(Waiters, ChecksThatAWaitNamesSomething) {
  Waiters waiters(1);
  EXPECT_DEATH(waiters.park(1, {}), "internal error: CHECK");
}

// A model: a list in order of arrival, searched from its start.
class SlowWaiters {
 public:
  void park(ClientId id, const std::vector<std::string>& names, bool at_barrier) {
    forget(id);
    waiting_.push_back({id, at_barrier, {names.begin(), names.end()}});
  }
  void forget(ClientId id) {
    std::erase_if(waiting_, [&](const One& one) { return one.id == id; });
  }
  Ids wake(const std::string& name, WakeKind kind) {
    Ids woken;
    for (One& one : waiting_) {
      if (kind == WakeKind::existing && one.at_barrier) continue;
      if (one.missing.erase(name) == 0 || !one.missing.empty()) continue;
      woken.push_back(one.id);
      if (kind == WakeKind::one) break;
    }
    std::erase_if(waiting_, [](const One& one) { return one.missing.empty(); });
    return woken;
  }
  size_t waiting() const { return waiting_.size(); }

 private:
  struct One {
    ClientId id;
    bool at_barrier;
    std::set<std::string> missing;
  };
  std::vector<One> waiting_;
};

void step_both(Waiters& waiters, SlowWaiters& slow) {
  const auto id = *rc::gen::inRange<ClientId>(0, 6);
  const std::string name(1, *rc::gen::inRange('a', 'e'));
  switch (*rc::gen::inRange(0, 5)) {
    case 0:
    case 1: {
      auto names = *rc::gen::container<std::vector<std::string>>(
          rc::gen::map(rc::gen::inRange('a', 'e'), [](char c) { return std::string(1, c); }));
      names.push_back(name);
      waiters.park(id, {names.begin(), names.end()});
      return slow.park(id, names, false);
    }
    case 2:
      waiters.park_at_barrier(id, name);
      return slow.park(id, {name}, true);
    case 3:
      waiters.forget(id);
      return slow.forget(id);
    default: {
      const auto kind = *rc::gen::element(WakeKind::all, WakeKind::existing, WakeKind::one);
      RC_ASSERT(wake(waiters, name, kind) == slow.wake(name, kind));
    }
  }
}

RC_GTEST_PROP(Waiters, AgreeWithASearchedList, (uint64_t seed)) {
  Waiters waiters(seed);
  SlowWaiters slow;
  for (int steps = *rc::gen::inRange(0, 40); steps > 0; steps--) {
    step_both(waiters, slow);
    RC_ASSERT(waiters.waiting() == slow.waiting());
    RC_ASSERT((waiters.bytes() == 0) == waiters.empty());
  }
  for (ClientId id = 0; id < 6; id++)
    waiters.forget(id);
  RC_ASSERT(waiters.bytes() == 0u);
}

}  // namespace
}  // namespace muster

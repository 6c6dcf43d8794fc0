// Walks every cell of the table of stages and events above Membership::step.
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership/membership_harness.h"

namespace muster {
namespace {

using namespace membership;  // NOLINT: the words of the protocol
using std::chrono::milliseconds;

// Brings a machine for 1:2 nodes with one restart into a stage.
struct StageCase {
  std::string name;
  std::function<void(MembershipDriver&)> enter;
  std::string status_says;
};

void enter_forming(MembershipDriver& m) {  // a is ready, b is not.
  m.join("a");
  m.join("b");
  m.ready("a");
}
void enter_opening(MembershipDriver& m) {
  enter_forming(m);
  m.ready("b");
}
void enter_running(MembershipDriver& m) {
  m.run({"a", "b"});
}
void enter_stopping(MembershipDriver& m) {  // The workers of both nodes are still alive.
  enter_running(m);
  m.fail("b", 1, boom(1));
}
void enter_ended(MembershipDriver& m) {
  enter_running(m);
  m.done("a", 1);
  m.done("b", 1);
}

const std::vector<StageCase> kStages = {
    {"forming", enter_forming, "1 of 2 nodes; here: a; not ready yet: b; starts with 1 in 30 s"},
    {"opening", enter_opening, "epoch 1 is formed by 2 nodes; its store is being opened"},
    {"running", enter_running, "epoch 1 runs on 2 nodes"},
    {"stopping", enter_stopping, "epoch 1 is being stopped; workers may be alive on 2 nodes"},
    {"ended", enter_ended,
     "the job has ended (all workers of all nodes succeeded); 2 nodes have not said goodbye yet"},
};

struct EventCase {
  std::string name;
  std::function<std::string(MembershipDriver&)> hear;
  std::vector<std::string> cells;  // One per stage.
};

const std::string kSuccess =
    "End{success, exit 0, \"all workers of all nodes succeeded\", 0 restarts, 0 changes}";
const std::string kRefusedClosed =
    "n: Refused{closed, \"the job of this id has ended (all workers of all nodes succeeded); "
    "restart all nodes, or give this job an id of its own (--rdzv-id)\"} | n: Hangup";
const std::string kRoundA =
    "a: Round{epoch 1, node 0 of 2, ranks 0+ of 2, role ranks 0+ of 2, master 10.0.0.1:4001, 0 "
    "restarts, 0 changes}";
const std::string kRoundB =
    "b: Round{epoch 1, node 1 of 2, ranks 1+ of 2, role ranks 1+ of 2, master 10.0.0.1:4001, 0 "
    "restarts, 0 changes}";
const std::string kStopFailure =
    "Stop{epoch 1, failure, \"rank 1 on b (node rank 1) exited with 3: boom; all ranks are "
    "stopped, 1 "
    "of 1 restarts left\"}";
const std::string kStopFailureA =
    "Stop{epoch 1, failure, \"rank 0 on a (node rank 0) exited with 3: boom; all ranks are "
    "stopped, 1 "
    "of 1 restarts left\"}";
const std::string kUnfit =
    "n: Refused{contradiction, \"the job continues without this node: n does not take part: cannot "
    "run x.py: no such file\"} | n: Hangup";
const std::string kSpare = "n: Wait{spare, \"2 of 2 nodes run; this one is a spare\"}";
const std::string kFormedAnew = "CloseStore{1} | OpenStore{2, 10.0.1.b}";

std::string stop(const std::string& why, const std::string& text) {
  return "Stop{epoch 1, " + why + ", \"" + text + "\"}";
}
std::string both(const std::string& what) {
  return "a: " + what + " | b: " + what;
}

const std::string kGoesOn = "; a new round forms with 1 node";
const std::string kLost =
    "a (node rank 0) was lost: its connection broke and it did not reconnect within 250 ms";
const std::string kStoreFailed =
    "End{timeout, exit 121, \"the store of epoch 1 could not be opened: busy\", 0 restarts, 0 "
    "changes}";

const std::vector<EventCase> kEvents = {
    {"Joined, new",
     [](MembershipDriver& m) { return m.join("n"); },
     {"", "", "", "", kRefusedClosed}},
    {"Joined, known",
     [](MembershipDriver& m) { return m.join("a"); },
     {"a: Hangup", "a: Hangup", "a: Hangup | " + kRoundA, "a: Hangup | a: " + kStopFailure,
      "a: Hangup | a: " + kSuccess}},
    {"Joined, wants a rank beyond the job",
     [](MembershipDriver& m) {
       m.job.node_rank = 7;
       return m.join("n").substr(0, 26);
     },
     {"n: Refused{contradiction, ", "n: Refused{contradiction, ", "n: Refused{contradiction, ",
      "n: Refused{contradiction, ", kRefusedClosed.substr(0, 26)}},
    {"Reported ready, the last one",
     [](MembershipDriver& m) { return m.ready("b"); },
     {"OpenStore{1, 10.0.1.a 10.0.1.b}", "", "", "", ""}},
    {"Reported ready, a newcomer",
     [](MembershipDriver& m) {
       if (!m.join("n").empty()) return std::string("refused");
       return m.ready("n");
     },
     {"OpenStore{1, 10.0.1.a 10.0.1.n}", kSpare, kSpare, "", "refused"}},
    {"Reported ready, of this epoch",
     [](MembershipDriver& m) { return m.ready("a", 1); },
     {"", "",
      both(stop("lost",
                "a (node rank 0) abandoned the round: it had lost contact with this host; a new "
                "round forms with 2 nodes")),
      "", ""}},
    {"Reported running, of this epoch",
     [](MembershipDriver& m) { return m.running("a", 1); },
     {"a: Stop{epoch 1, host, \"the host of the job was restarted: epoch 1 is over\"}", "", "", "",
      ""}},
    {"Reported running, of another epoch",
     [](MembershipDriver& m) { return m.running("a", 5); },
     {"a: Stop{epoch 5, host, \"the host of the job was restarted: epoch 5 is over\"}", "", "", "",
      ""}},
    {"Reported done, the last one",
     [](MembershipDriver& m) {
       m.done("b", 1);
       return m.done("a", 1);
     },
     {"a: Stop{epoch 1, host, \"the host of the job was restarted: epoch 1 is over\"}", "",
      both(kSuccess), "", ""}},
    {"Reported failure",
     [](MembershipDriver& m) { return m.fail("a", 1, boom(0)); },
     {"a: Stop{epoch 1, host, \"the host of the job was restarted: epoch 1 is over\"}", "",
      both(kStopFailureA), "", ""}},
    {"Reported leaving",
     [](MembershipDriver& m) { return m.leaving("a", 1, SIGTERM, true); },
     {"a: " + stop("left", "a leaves (SIGTERM)"),
      "a: " + stop("left", "a (node rank 0) leaves (SIGTERM)" + kGoesOn) + " | " + kFormedAnew,
      both(stop("left", "a (node rank 0) leaves (SIGTERM)" + kGoesOn)),
      "a: " + stop("left", "a (node rank 0) leaves (SIGTERM)"), ""}},
    {"Reported that it cannot start",
     [](MembershipDriver& m) {
       m.join("n");
       return m.cannot_start("n");
     },
     {kUnfit + " | a: Wait{\"1 of 2 nodes; here: a; not ready yet: b; n does not take part: cannot "
               "run x.py: no such file; starts with 1 in 30 s\"}",
      kUnfit, kUnfit, kUnfit, ""}},
    {"Parted",
     [](MembershipDriver& m) { return m.goodbye("a"); },
     {"a: Hangup", "a: Hangup | " + kFormedAnew,
      "a: Hangup | b: " + stop("left", "a (node rank 0) has left" + kGoesOn), "a: Hangup",
      "a: Hangup"}},
    {"Disconnected", [](MembershipDriver& m) { return m.disconnect("a"); }, {"", "", "", "", ""}},
    {"Disconnected, and lost",
     [](MembershipDriver& m) {
       m.disconnect("a");
       return m.live(milliseconds{250}, {"b"});
     },
     {"", kFormedAnew, "b: " + stop("lost", kLost + kGoesOn), "", ""}},
    {"StoreOpened",
     [](MembershipDriver& m) { return m.open_store(1); },
     {"", kRoundA + " | " + kRoundB, "", "", ""}},
    {"StoreOpened, of another epoch",
     [](MembershipDriver& m) { return m.open_store(2); },
     {"", "", "", "", ""}},
    {"StoreFailed",
     [](MembershipDriver& m) { return m.hear(StoreFailed{1, {ExitCode::environment, "busy"}}); },
     {"", both(kStoreFailed), "", "", ""}},
    {"Neighbours",
     [](MembershipDriver& m) { return m.hear(Neighbours{"; another job waits"}); },
     {"a: Wait{\"1 of 2 nodes; here: a; not ready yet: b; another job waits; starts with 1 in 30 "
      "s\"}",
      "", "", "", ""}},
    {"Neighbours, that are gone",
     [](MembershipDriver& m) { return m.hear(Neighbours{}); },
     {"", "", "", "", ""}},
    {"Tick, too early", [](MembershipDriver& m) { return m.tick(); }, {"", "", "", "", ""}},
    {"Tick, a lease later",
     [](MembershipDriver& m) { return m.live(milliseconds{3000}, {"a", "b"}); },
     {"b: Hangup | a: Wait{\"1 of 2 nodes; here: a; starts with 1 in 27 s\"}", "", "", "",
      "CloseStore{1}"}},
};

TEST(MembershipTable, EveryStageHandlesEveryEvent) {
  for (const EventCase& tested : kEvents) {
    ASSERT_EQ(tested.cells.size(), kStages.size()) << tested.name;
    for (size_t i = 0; i < kStages.size(); ++i) {
      MembershipDriver m(1, 2);
      m.job.max_restarts = 1;
      kStages[i].enter(m);
      ASSERT_EQ(m.status(), kStages[i].status_says);
      EXPECT_EQ(tested.hear(m), tested.cells[i]) << tested.name << " while " << kStages[i].name;
    }
  }
}

TEST(MembershipTable, ATickAtTheDeadlineMovesItAfterAnyEvent) {
  for (const EventCase& tested : kEvents) {
    for (const StageCase& stage : kStages) {
      MembershipDriver m(1, 2);
      m.job.max_restarts = 1;
      stage.enter(m);
      tested.hear(m);
      for (int ticks = 0; m.machine().next_deadline() != kNever && ticks < 100; ++ticks) {
        const Instant deadline = m.machine().next_deadline();
        m.pass(std::max(deadline - m.now(), Duration::zero()));
        m.tick();
        ASSERT_GT(m.machine().next_deadline(), deadline) << tested.name << " in " << stage.name;
      }
    }
  }
}

}  // namespace
}  // namespace muster

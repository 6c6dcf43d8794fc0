// Walks every cell of the two tables above Member::step.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership/member_harness.h"

namespace muster {
namespace {

using membership::End;
using membership::Order;
using membership::RefusalKind;
using membership::Refused;
using membership::Stop;
using membership::StopWhy;

struct State {
  std::string name;
  std::function<void(MemberDriver&)> enter;
};

struct Row {
  std::string name;
  std::function<MemberEffects(MemberDriver&)> hear;
  std::vector<std::string> cells;  // The names of the effects, by state.
};

const Error kError{ExitCode::rendezvous, "timed out"};

void walk(const std::vector<State>& states, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    ASSERT_EQ(row.cells.size(), states.size()) << row.name;
    for (size_t i = 0; i < states.size(); ++i) {
      MemberDriver member;
      states[i].enter(member);
      EXPECT_EQ(names_of(row.hear(member)), row.cells[i]) << states[i].name << " x " << row.name;
    }
  }
}

MemberEffects tick_until_said(MemberDriver& member) {
  for (int ticks = 0; ticks < 100 && !member.waits_for_ever(); ++ticks) {
    MemberEffects effects = member.tick_at_deadline();
    if (!effects.empty()) return effects;
  }
  return {};
}

// ---- The connection.

const std::vector<State> kLinks = {
    {"idle", [](MemberDriver&) {}},
    {"connecting", [](MemberDriver& m) { m.step(member::Begin{}); }},
    {"joining", [](MemberDriver& m) { m.dial(); }},
    {"joined", [](MemberDriver& m) { m.join(); }},
    {"pausing",
     [](MemberDriver& m) {
       m.join();
       m.step(connection_lost("reset"));
     }},
    {"over",
     [](MemberDriver& m) {
       m.dial();
       m.hear(Refused{RefusalKind::closed, "ended"});
     }},
};

const std::vector<Row> kLinkRows = {
    {"Begin",
     [](MemberDriver& m) { return m.step(member::Begin{}); },
     {"Connect", "", "", "", "", ""}},
    {"ConnectionUp",
     [](MemberDriver& m) { return m.step(member::ConnectionUp{"a", "b"}); },
     {"", "", "", "", "", ""}},
    {"ConnectionFailed",
     [](MemberDriver& m) { return m.step(member::ConnectionFailed{kError, false, false}); },
     {"", "", "", "", "", ""}},
    {"ConnectionFailed, refused: no round runs",
     [](MemberDriver& m) { return m.step(member::ConnectionFailed{kError, true, false}); },
     {"", "", "", "", "", ""}},
    {"ConnectionFailed, fatal",
     [](MemberDriver& m) { return m.step(member::ConnectionFailed{kError, false, true}); },
     {"", "GaveUp", "Disconnect GaveUp", "Disconnect GaveUp", "", ""}},
    {"Welcome", [](MemberDriver& m) { return m.welcome(); }, {"", "", "Report", "", "", ""}},
    {"Challenge",
     [](MemberDriver& m) { return m.hear(membership::Challenge{}); },
     {"", "", "", "", "", ""}},
    {"Refused",
     [](MemberDriver& m) { return m.hear(Refused{RefusalKind::full, "no"}); },
     {"", "", "Disconnect GaveUp", "Disconnect GaveUp", "", ""}},
    {"Refused, rank taken",
     [](MemberDriver& m) { return m.hear(Refused{RefusalKind::rank_taken, "no"}); },
     {"", "", "Disconnect", "Disconnect", "", ""}},
    {"Order",
     [](MemberDriver& m) { return m.order(round_of(1)); },
     {"", "", "", "RoundFormed Report", "", ""}},
    {"Alive", [](MemberDriver& m) { return m.alive(1); }, {"", "", "", "", "", ""}},
    {"Tick, too early",
     [](MemberDriver& m) { return m.step(member::Tick{}); },
     {"", "", "", "", "", ""}},
    {"Tick",
     [](MemberDriver& m) { return tick_until_said(m); },
     {"", "Say", "Disconnect Say", "Report", "Connect", ""}},
};

TEST(MemberTable, EveryLinkStateHandlesEveryEvent) {
  walk(kLinks, kLinkRows);
}

// ConnectionUp and ConnectionFailed have no effects; later events show what they changed.
TEST(MemberTable, OnlyAPendingConnectionComesUp) {
  const std::vector<Row> rows = {
      {"ConnectionUp, Welcome",
       [](MemberDriver& m) {
         m.step(member::ConnectionUp{"a", "b"});
         return m.welcome();
       },
       {"", "Report", "Report", "", "", ""}},
      {"ConnectionFailed, Tick",
       [](MemberDriver& m) {
         m.step(connection_lost("reset"));
         return tick_until_said(m);
       },
       {"", "Connect", "Connect", "Connect", "Connect", ""}},
  };
  walk(kLinks, rows);
}

// ---- The workers, while connected.

constexpr membership::Epoch kEpoch = 7;

const std::vector<State> kPhases = {
    {"ready", [](MemberDriver& m) { m.join(); }},
    {"running", [](MemberDriver& m) { m.run(kEpoch); }},
    {"stopping",
     [](MemberDriver& m) {
       m.run(kEpoch);
       m.order(Stop{kEpoch, StopWhy::failure, "rank 0 failed"});
     }},
    {"testified",
     [](MemberDriver& m) {
       m.run(kEpoch);
       m.order(Stop{kEpoch, StopWhy::failure, "rank 0 failed"});
       m.step(member::Testified{kEpoch});
     }},
    {"done",
     [](MemberDriver& m) {
       m.run(kEpoch);
       m.step(member::WorkersDone{kEpoch});
     }},
    {"leaving",
     [](MemberDriver& m) {
       m.run(kEpoch);
       m.step(member::Leaving{15, false});
     }},
};

// Ticks past the lease and returns the effects at its end.
MemberEffects fall_silent(MemberDriver& member) {
  MemberEffects effects;
  do {
    effects = member.tick_at_deadline();
  } while (names_of(effects).find("Disconnect") == std::string::npos);
  return effects;
}

MemberEffects meet_another_host(MemberDriver& member) {
  member.step(connection_lost("reset"));
  member.tick_at_deadline();
  member.step(member::ConnectionUp{"a", "b"});
  return member.welcome(MemberDriver::kHost + 1);
}

const std::vector<Row> kPhaseRows = {
    {"Order Wait",
     [](MemberDriver& m) { return m.order(membership::Wait{}); },
     {"Report", "Report", "Report", "Report", "Report", "Report"}},
    {"Order Round",
     [](MemberDriver& m) { return m.order(round_of(kEpoch + 1)); },
     {"RoundFormed Report", "Report", "Report", "Report", "Report", "Report"}},
    {"Order Stop",
     [](MemberDriver& m) { return m.order(Stop{kEpoch, StopWhy::lost, "node0 was lost"}); },
     {"Report", "StopWorkers Report", "Report", "Report", "StopWorkers Report",
      "LeaveAnnounced Report"}},
    {"Order Stop of another epoch",
     [](MemberDriver& m) { return m.order(Stop{kEpoch - 1, StopWhy::lost, "node0 was lost"}); },
     {"Report", "Report", "Report", "Report", "Report", "LeaveAnnounced Report"}},
    {"Order End",
     [](MemberDriver& m) { return m.order(End{}); },
     {"JobEnded Goodbye Disconnect", "JobEnded Report", "JobEnded Report",
      "JobEnded Goodbye Disconnect", "JobEnded Goodbye Disconnect",
      "JobEnded LeaveAnnounced Report"}},
    {"the host is silent",
     fall_silent,
     {"Disconnect", "Disconnect StopWorkers", "Disconnect", "Disconnect", "Disconnect Say",
      "Disconnect"}},
    {"the host is gone",
     [](MemberDriver& m) {
       m.step(connection_lost("reset"));
       m.tick_at_deadline();
       return m.step(member::ConnectionFailed{kError, true, false});
     },
     {"", "StopWorkers", "", "", "", ""}},
    {"the host is another",
     meet_another_host,
     {"Report", "StopWorkers Report", "Report", "Report", "StopWorkers Report", "Report"}},
    {"rank taken",
     [](MemberDriver& m) { return m.hear(Refused{RefusalKind::rank_taken, "no"}); },
     {"Disconnect", "Disconnect StopWorkers", "Disconnect", "Disconnect", "Disconnect StopWorkers",
      "LeaveAnnounced Disconnect"}},
    {"ReadyForRound",
     [](MemberDriver& m) { return m.step(member::ReadyForRound{}); },
     {"", "Report", "Report", "Report", "Report", "Report"}},
    {"WorkersDone",
     [](MemberDriver& m) { return m.step(member::WorkersDone{kEpoch}); },
     {"", "Report", "", "", "", ""}},
    {"WorkersDone of another epoch",
     [](MemberDriver& m) { return m.step(member::WorkersDone{kEpoch - 1}); },
     {"", "", "", "", "", ""}},
    {"WorkerFailed",
     [](MemberDriver& m) { return m.step(member::WorkerFailed{kEpoch, a_failure()}); },
     {"", "Report", "Report", "Report", "", "Report"}},
    {"WorkerFailed of another epoch",
     [](MemberDriver& m) { return m.step(member::WorkerFailed{kEpoch - 1, a_failure()}); },
     {"", "", "", "", "", ""}},
    {"Testified",
     [](MemberDriver& m) { return m.step(member::Testified{kEpoch}); },
     {"", "", "Report", "", "", ""}},
    {"Testified of another epoch",
     [](MemberDriver& m) { return m.step(member::Testified{kEpoch - 1}); },
     {"", "", "", "", "", ""}},
    {"Leaving",
     [](MemberDriver& m) { return m.step(member::Leaving{15, false}); },
     {"Report", "Report", "Report", "Report", "Report", ""}},
    {"Leaving, reaped",
     [](MemberDriver& m) { return m.step(member::Leaving{15, true}); },
     {"Report Report", "Report Report", "Report Report", "Report Report", "Report Report",
      "Report"}},
};

TEST(MemberTable, EveryPhaseHandlesEveryEvent) {
  walk(kPhases, kPhaseRows);
}

TEST(MemberTable, EveryStateHasAStatusText) {
  const std::vector<std::string> links = {
      "not begun",
      "waiting for the round to form; waiting for the host of the job at node0:29400: not answered "
      "yet; gives up in 60 s",
      "waiting for the round to form; waiting for the host of the job at node0:29400: not answered "
      "yet; gives up in 60 s",
      "waiting for the round to form",
      "waiting for the round to form; waiting for the host of the job at node0:29400: reset; gives "
      "up in 60 s",
      "over"};
  for (size_t i = 0; i < kLinks.size(); ++i) {
    MemberDriver member;
    kLinks[i].enter(member);
    EXPECT_EQ(member.status(), links[i]);
  }
  const std::vector<std::string> phases = {"waiting for the round to form",
                                           "in round 7 as node 1 of 2",
                                           "stopping the workers of round 7",
                                           "the workers of round 7 are gone",
                                           "done with round 7, waiting for the other nodes",
                                           "leaving, stopping the workers"};
  for (size_t i = 0; i < kPhases.size(); ++i) {
    MemberDriver member;
    kPhases[i].enter(member);
    EXPECT_EQ(member.status(), phases[i]);
  }
}

}  // namespace
}  // namespace muster

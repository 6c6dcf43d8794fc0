// Walks every cell of the table of phases and events above WorkerGroup::step.
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/transcripts/worker_group_transcript.h"
#include "tests/unit/agent/job/worker_group_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Brings a machine with two workers and two restarts into a phase; `attempt` is then current.
struct PhaseCase {
  std::string name;
  int attempt;
  std::function<void(GroupDriver&)> enter;
  std::string status_says;
};

void enter_starting(GroupDriver& g) {  // Rank 0 runs, rank 1 is being started.
  g.hear_all(group::Begin{}, group::RoundReady{0}, group::Spawned{0, 0, 100});
}

void enter_running(GroupDriver& g) {
  g.hear(group::Begin{});
  g.start(0, 2);
}

void enter_draining(GroupDriver& g) {
  enter_running(g);
  g.hear_all(group::Exited{0, 0, kGood}, group::Exited{0, 1, kGood});
}

void enter_stopping(GroupDriver& g) {  // Rank 0 has failed, rank 1 is being started.
  enter_starting(g);
  g.hear(group::Exited{0, 0, kCode3});
}

void enter_killing(GroupDriver& g) {  // Rank 0 has failed, rank 1 outlived the grace.
  enter_running(g);
  g.hear(group::Exited{0, 0, kCode3});
  while (g.hear(group::Tick{}).find("Kill{") == std::string::npos)
    g.pass(seconds{5});
}

void enter_waiting(GroupDriver& g) {  // Two attempts in a row died at once.
  g.hear(group::Begin{});
  for (int attempt = 0; attempt < 2; ++attempt) {
    g.start(attempt, 2);
    g.hear_all(group::Exited{attempt, 0, kCode3}, group::Exited{attempt, 1, kCode3},
               group::GroupEmpty{attempt});
  }
}

void enter_finished(GroupDriver& g) {
  enter_draining(g);
  g.hear(group::GroupEmpty{0});
}

const std::vector<PhaseCase> kPhases = {
    {"idle", 0, [](GroupDriver&) {}, "has not begun"},
    {"preparing", 0, [](GroupDriver& g) { g.hear(group::Begin{}); }, "waiting for the round"},
    {"starting", 0, enter_starting, "starting workers, 1 of 2"},
    {"running", 0, enter_running, "running, 2 of 2 workers alive"},
    {"draining", 0, enter_draining, "all workers succeeded"},
    {"stopping", 0, enter_stopping, "stopping, since a worker failed"},
    {"killing", 0, enter_killing, "giving up in 30.0 s"},
    {"waiting", 1, enter_waiting, "2 attempts in a row died at once"},
    {"finished", 0, enter_finished, "finished"},
};

// Cells: "-": exactly one Note that begins with the event's name; "!": the program ends; else the
// effects.
struct EventCase {
  std::string name;
  std::function<WorkerGroup::Event(int attempt)> event;
  std::vector<std::string> cells;  // In the order of kPhases.
};

const Error kError{ExitCode::not_found, "no such file"};

const std::string kStopFor =
    "Stop{attempt 0, SIGTERM} | ReportStopping{attempt 0, failure, SIGTERM, KILL in 30 s, live ";
const std::string kStopRegroup =
    "Stop{attempt 0, SIGTERM} | ReportStopping{attempt 0, regroup, SIGTERM, KILL in 30 s, live ";
const std::string kStopInt =
    "Stop{attempt 0, SIGINT} | ReportStopping{attempt 0, requested, SIGINT, KILL in 30 s, live ";
const std::string kKill =
    "Kill{attempt 0} | ReportStopping{attempt 0, requested, KILL only, give up in 30 s, live ";
const std::string kEndedEarly = "Finish{stopped, 0 attempts, 0 restarts, ";
const std::string kEndedPreparing = "Finish{stopped, 1 attempts, 0 restarts, ";
const std::string kFailed0 =
    "WorkerFailed{attempt 0 rank 0 pid 100 exited with 3, restart, 1 left} | " + kStopFor;

const std::vector<EventCase> kEvents = {
    {"Begin",
     [](int) { return group::Begin{}; },
     {"RequestRound{attempt 0, restart 0}", "-", "-", "-", "-", "-", "-", "-", ""}},
    {"RoundReady",
     [](int a) { return group::RoundReady{a}; },
     {"!", "Spawn{attempt 0, rank 0}", "-", "-", "-", "-", "-", "-", ""}},
    {"RoundFailed",
     [](int a) { return group::RoundFailed{a, kError}; },
     {"!", "Finish{round_failed, 1 attempts, 0 restarts, no such file}", "-", "-", "-", "-", "-",
      "-", ""}},
    {"Spawned",  // Awaited in starting and stopping.
     [](int a) { return group::Spawned{a, 1, 101}; },
     {"!", "!", "", "-", "-", "Stop{attempt 0, SIGTERM}", "-", "-", ""}},
    {"Spawned",  // Reported before.
     [](int a) { return group::Spawned{a, 0, 100}; },
     {"!", "!", "-", "-", "-", "-", "-", "-", ""}},
    {"SpawnFailed",  // Awaited in starting and stopping.
     [](int a) { return group::SpawnFailed{a, 1, kError}; },
     {"!", "-",
      "Stop{attempt 0, SIGTERM} | ReportStopping{attempt 0, spawn_failed, SIGTERM, KILL in 30 s, "
      "live [0]}",
      "-", "-", "", "-", "-", ""}},
    {"Exited",
     [](int a) { return group::Exited{a, 0, kGood}; },
     {"!", "!", "", "", "-", "-", "-", "-", ""}},
    {"Exited",
     [](int a) { return group::Exited{a, 0, kCode3}; },
     {"!", "!", kFailed0 + "[]}", kFailed0 + "[1]}", "-", "-", "-", "-", ""}},
    {"Exited",  // Rank 1 has not started yet in starting and stopping.
     [](int a) { return group::Exited{a, 1, kGood}; },
     {"!", "!", "!", "", "-", "!", "", "-", ""}},
    {"FailWorker",
     [](int a) { return group::FailWorker{a, 0, "it hangs"}; },
     {"!", "-",
      "WorkerFailed{attempt 0 rank 0 pid 100 it hangs, restart, 1 left} | " + kStopFor + "[0]}",
      "WorkerFailed{attempt 0 rank 0 pid 100 it hangs, restart, 1 left} | " + kStopFor + "[0,1]}",
      "-", "-", "-", "-", ""}},
    {"FailWorker",  // Not started yet in starting.
     [](int a) { return group::FailWorker{a, 1, "it hangs"}; },
     {"!", "-", "-",
      "WorkerFailed{attempt 0 rank 1 pid 101 it hangs, restart, 1 left} | " + kStopFor + "[0,1]}",
      "-", "-", "-", "-", ""}},
    {"GroupEmpty",  // Not enough alone: a start is unanswered, or an exit was not reported.
     [](int a) { return group::GroupEmpty{a}; },
     {"!", "-", "-", "-", "Finish{success, 1 attempts, 0 restarts}", "", "", "-", ""}},
    {"Regroup",
     [](int a) { return group::Regroup{a}; },
     {"!", "-", kStopRegroup + "[0]}", kStopRegroup + "[0,1]}", "-", "-", "-", "-", ""}},
    {"JobEnded",  // Only for a coordinated group; see worker_group_coordinated_test.cc.
     [](int) { return group::JobEnded{}; },
     {"!", "!", "!", "!", "!", "!", "!", "!", ""}},
    {"StopRequested",
     [](int) { return group::StopRequested{SIGINT}; },
     {kEndedEarly + "SIGINT}", kEndedPreparing + "SIGINT}", kStopInt + "[0]}", kStopInt + "[0,1]}",
      kStopInt + "[]}", "ReportStopping{attempt 0, requested, SIGTERM, KILL in 30 s, live []}",
      "ReportStopping{attempt 0, requested, SIGTERM, give up in 30 s, live [1]}",
      "Finish{stopped, 2 attempts, 1 restarts, SIGINT}", ""}},
    {"StopRepeated",  // Without a requested stop; see worker_group_stop_test.cc.
     [](int) { return group::StopRepeated{}; },
     {"-", "-", "-", "-", "-", "-", "-", "-", ""}},
    {"KillRequested",
     [](int) { return group::KillRequested{}; },
     {kEndedEarly + "SIGKILL}", kEndedPreparing + "SIGKILL}", kKill + "[0]}", kKill + "[0,1]}",
      kKill + "[]}",
      "Kill{attempt 0} | ReportStopping{attempt 0, requested, SIGTERM, give up in 30 s, live []}",
      "-", "Finish{stopped, 2 attempts, 1 restarts, SIGKILL}", ""}},
    {"KillRefused",
     [](int a) { return group::KillRefused{a}; },
     {"!", "-", "-", "-", "-", "-",
      "Finish{unkillable, 1 attempts, 0 restarts, stopped for failure}", "-", ""}},
    {"Suspend",
     [](int) { return group::Suspend{}; },
     {"-", "-", "SuspendWorkers{attempt 0}", "SuspendWorkers{attempt 0}",
      "SuspendWorkers{attempt 0}", "-", "-", "-", ""}},
    {"Resume",  // Not suspended.
     [](int) { return group::Resume{}; },
     {"-", "-", "-", "-", "-", "-", "-", "-", ""}},
    {"Forward",
     [](int) { return group::Forward{SIGUSR1}; },
     {"-", "-", "ForwardSignal{attempt 0, SIGUSR1}", "ForwardSignal{attempt 0, SIGUSR1}", "-", "-",
      "-", "-", ""}},
    {"Tick",  // Before the deadline.
     [](int) { return group::Tick{}; },
     {"", "", "", "", "", "", "", "", ""}},
};

const WorkerGroup::Options kTableOptions = options_for(2, 2);

TEST(WorkerGroupTable, EveryPhaseIsReached) {
  for (const PhaseCase& phase : kPhases) {
    GroupDriver group(kTableOptions);
    phase.enter(group);
    EXPECT_NE(group.status().find(phase.status_says), std::string::npos)
        << phase.name << ": " << group.status();
  }
}

TEST(WorkerGroupTable, EveryCellIsAsTheTableSays) {
  int cells = 0;
  for (const EventCase& row : kEvents) {
    ASSERT_EQ(row.cells.size(), kPhases.size()) << row.name;
    for (size_t i = 0; i < kPhases.size(); ++i) {
      SCOPED_TRACE(kPhases[i].name + " × " + group::to_text(row.event(kPhases[i].attempt)));
      GroupDriver group(kTableOptions);
      kPhases[i].enter(group);
      const WorkerGroup::Event event = row.event(kPhases[i].attempt);
      const std::string& expected = row.cells[i];
      if (expected == "!") continue;  // EveryImpossibleCellEndsTheProgram.
      const std::string before = group.status();
      const std::vector<WorkerGroup::Effect> effects = group.step(event);
      const std::string heard = GroupDriver::joined(effects);
      ++cells;
      if (row.name == "RoundFailed" && kPhases[i].name == "preparing") {
        EXPECT_EQ(outcome_in(effects).error, kError);
      }
      if (expected == "-") {
        EXPECT_EQ(heard.rfind("Note{" + row.name + ": ", 0), 0u) << heard;
        EXPECT_EQ(heard.find(" | "), std::string::npos) << heard;
      } else {
        EXPECT_EQ(heard, expected);
      }
      const bool sets_flag = row.name == "Suspend" || row.name == "KillRequested";
      if ((expected == "-" && !sets_flag) || row.name == "Tick") {
        EXPECT_EQ(group.status(), before);
      }
    }
  }
  EXPECT_EQ(cells, 170);
}

TEST(WorkerGroupTableDeathTest, EveryImpossibleCellEndsTheProgram) {
  for (const EventCase& row : kEvents) {
    for (size_t i = 0; i < kPhases.size(); ++i) {
      if (row.cells[i] != "!") continue;
      GroupDriver group(kTableOptions);
      kPhases[i].enter(group);
      EXPECT_DEATH(group.hear(row.event(kPhases[i].attempt)), "internal error: CHECK")
          << kPhases[i].name << " × " << row.name;
    }
  }
}

TEST(WorkerGroupTableDeathTest, EventsThatCannotHappenEndTheProgram) {
  GroupDriver group(kTableOptions);
  enter_running(group);
  EXPECT_DEATH(group.hear(group::GroupEmpty{1}), "internal error: CHECK");
  EXPECT_DEATH(group.hear(group::Exited{0, 2, kGood}), "internal error: CHECK");
  EXPECT_DEATH(group.hear(group::StopRequested{0}), "internal error: CHECK");
}

TEST(WorkerGroupTable, EventsOfAnOldAttemptAreDroppedWithANote) {
  const std::vector<WorkerGroup::Event> old = {group::RoundReady{0},
                                               group::RoundFailed{0, kError},
                                               group::Spawned{0, 0, 100},
                                               group::Exited{0, 0, kCode3},
                                               group::SpawnFailed{0, 1, kError},
                                               group::FailWorker{0, 0, "x"},
                                               group::GroupEmpty{0},
                                               group::Regroup{0}};
  GroupDriver group(kTableOptions);
  enter_running(group);
  group.hear_all(group::Regroup{0}, group::Exited{0, 0, kGood}, group::Exited{0, 1, kGood},
                 group::GroupEmpty{0});
  group.start(1, 2);
  for (const WorkerGroup::Event& event : old) {
    EXPECT_EQ(group.hear(event), "Note{event of attempt 0: that attempt is over}")
        << group::to_text(event);
  }
  EXPECT_EQ(group.status(), "attempt 1, restart 0 of 2: running, 2 of 2 workers alive");
}

}  // namespace
}  // namespace muster

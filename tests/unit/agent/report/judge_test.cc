// The judge's table of rules, rule by rule, on signs made up by hand. What real programs leave
// behind is replayed in judge_replay_test.cc.
#include "agent/report/judge.h"

#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/instants.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

// Reaped `ms` after some beginning, before the stop.
WorkerSigns ended(int rank, ExitStatus status, int64_t ms) {
  WorkerSigns signs;
  signs.rank = rank;
  signs.status = status;
  signs.at_stop = AtStop::ended;
  signs.ended = at_ms(ms);
  signs.order = static_cast<int>(ms);
  return signs;
}

// Running when the stop came, and ended by it.
WorkerSigns stopped(int rank, int64_t ms = 5000) {
  WorkerSigns signs = ended(rank, ExitStatus::signaled(SIGTERM), ms);
  signs.at_stop = AtStop::running;
  signs.by_stop = true;
  return signs;
}

// Its end had begun when the stop came.
WorkerSigns exiting(int rank, ExitStatus status, int64_t ms) {
  WorkerSigns signs = ended(rank, status, ms);
  signs.at_stop = AtStop::exiting;
  return signs;
}

WorkerSigns raising(WorkerSigns signs, int64_t ms) {
  signs.raised = at_ms(ms);
  return signs;
}

WorkerSigns presumed(WorkerSigns signs, int64_t ms) {
  signs.raised = at_ms(ms);
  signs.presumed = true;
  return signs;
}

WorkerSigns leaving(WorkerSigns signs, int64_t ms) {
  signs.left = at_ms(ms);
  return signs;
}

WorkerSigns blaming(WorkerSigns signs, std::vector<int> ranks = {}) {
  signs.blame = Blame{std::move(ranks)};
  return signs;
}

WorkerSigns on_node(int node, WorkerSigns signs, Duration clock_error = {}) {
  signs.node_rank = node;
  signs.clock_error = clock_error;
  return signs;
}

const ExitStatus kOne = ExitStatus::exited(1);
const ExitStatus kThree = ExitStatus::exited(3);
const ExitStatus kGood = ExitStatus::exited(0);
const ExitStatus kSegv = ExitStatus::signaled(SIGSEGV);

std::optional<int> culprit_rank(const std::vector<WorkerSigns>& workers,
                                const AttemptVerdict& verdict) {
  return verdict.culprit ? std::optional(workers[*verdict.culprit].rank) : std::nullopt;
}

// The rank that is named, and why.
std::string named(const std::vector<WorkerSigns>& workers, const std::vector<LostNode>& lost = {},
                  const std::vector<DetectedCulprit>& detected = {}) {
  const AttemptVerdict verdict = judge(workers, lost, detected);
  if (verdict.lost) return "node " + std::to_string(lost[*verdict.lost].node_rank);
  const auto rank = culprit_rank(workers, verdict);
  return rank ? std::to_string(*rank) + " " + reason_name(verdict.reason) : "nobody";
}

Part part_of(const std::vector<WorkerSigns>& workers, size_t worker) {
  return judge(workers).parts[worker];
}

// ---- No failure, one failure.

TEST(Judge, NamesNoWorkerIfNothingFailed) {
  EXPECT_EQ(named({}), "nobody");
  EXPECT_EQ(named({ended(0, kGood, 1), ended(1, kGood, 2)}), "nobody");
  EXPECT_EQ(named({stopped(0), stopped(1)}), "nobody");
}

TEST(Judge, NamesTheOnlyFailure) {
  EXPECT_EQ(named({stopped(0), ended(1, kThree, 10), stopped(2)}), "1 only_failure");
}

TEST(Judge, IgnoresACrashThatMustersStopCaused) {
  WorkerSigns crashed = ended(0, kSegv, 20);
  crashed.at_stop = AtStop::running;
  const std::vector<WorkerSigns> workers = {crashed, ended(1, kThree, 10)};
  EXPECT_EQ(named(workers), "1 only_failure");
  EXPECT_EQ(part_of(workers, 0), Part::crashed);
  EXPECT_EQ(named({crashed, stopped(1)}), "nobody");
}

TEST(Judge, CountsADeathThatTheStopDoesNotExplainIfTheStateIsUnknown) {
  WorkerSigns hidden = ended(0, kSegv, 20);
  hidden.at_stop = AtStop::unknown;
  EXPECT_EQ(named({hidden, ended(1, kThree, 10)}), "0 fatal_signal");
}

TEST(Judge, CountsADeclaredFailureHoweverTheWorkerEnds) {
  WorkerSigns declared = ended(0, kGood, 20);
  declared.declared = true;
  EXPECT_EQ(named({declared, stopped(1)}), "0 only_failure");
}

// ---- a: who blames another one is a victim.

TEST(Judge, PassesOverAVictimForAFailureThatCanBeItsCause) {
  const std::vector<WorkerSigns> workers = {blaming(raising(ended(0, kOne, 10), 5)),
                                            ended(1, kThree, 30), stopped(2)};
  EXPECT_EQ(named(workers), "1 only_failure");
  EXPECT_EQ(part_of(workers, 0), Part::victim);
}

TEST(Judge, FindsTheWorkerThatRaisedAndHangsBehindItsVictims) {
  EXPECT_EQ(named({blaming(raising(ended(0, kOne, 60), 55)), raising(stopped(1), 10),
                   blaming(raising(ended(2, kOne, 61), 56))}),
            "1 only_failure");
}

// Many programs print a traceback that they caught (a module that is not there), and then nothing.
TEST(Judge, PrefersAnErrorToOneThatARunningRankMayHaveSurvived) {
  const std::vector<WorkerSigns> workers = {presumed(stopped(0), 10),
                                            raising(ended(1, kOne, 60), 55)};
  EXPECT_EQ(named(workers), "1 only_failure");
  EXPECT_EQ(part_of(workers, 0), Part::bystander);
  EXPECT_EQ(named({presumed(stopped(0), 10), ended(1, kSegv, 60)}), "1 only_failure");
  EXPECT_EQ(named({blaming(presumed(stopped(0), 10)), ended(1, kThree, 60)}), "1 only_failure");
}

TEST(Judge, TakesAnErrorOfARunningRankIfAllOthersAreVictims) {
  EXPECT_EQ(named({blaming(raising(ended(0, kOne, 60), 55)), presumed(stopped(1), 10)}),
            "1 only_failure");
  EXPECT_EQ(named({ended(0, kOne, 60), presumed(stopped(1), 10)}), "1 raised_first");
  EXPECT_EQ(named({ended(0, kOne, 1000), presumed(stopped(1), 10)}), "0 only_failure");
}

TEST(Judge, TakesAnAbortAfterABlamingMessageForAVictims) {
  const ExitStatus abort = ExitStatus::signaled(SIGABRT);
  EXPECT_EQ(named({blaming(ended(0, abort, 10)), ended(1, kThree, 30)}), "1 only_failure");
  EXPECT_EQ(named({ended(0, abort, 30), ended(1, kThree, 10)}), "0 fatal_signal");
}

TEST(Judge, TakesASilentBrokenPipeForAVictims) {
  EXPECT_EQ(named({ended(0, ExitStatus::signaled(SIGPIPE), 10), ended(1, kThree, 30)}),
            "1 only_failure");
}

TEST(Judge, TakesABrokenPipeOfALostConsoleForItsOwn) {
  WorkerSigns writer = ended(0, ExitStatus::signaled(SIGPIPE), 10);
  writer.lost_console = true;
  EXPECT_EQ(named({writer, ended(1, kThree, 30)}), "0 fatal_signal");
  EXPECT_EQ(named({writer}), "0 only_failure");
}

TEST(Judge, IgnoresWhatAProcessPrintedBeforeAFault) {
  EXPECT_EQ(named({blaming(ended(0, kSegv, 30)), ended(1, kThree, 10)}), "0 fatal_signal");
  EXPECT_EQ(named({blaming(ended(0, ExitStatus::signaled(SIGKILL), 30)), ended(1, kOne, 10)}),
            "0 fatal_signal");
}

// ---- b: a fatal signal comes before an exit code.

TEST(Judge, PutsASignalThatIsReapedLateBeforeTheExitCodesThatItCaused) {
  EXPECT_EQ(named({ended(0, kThree, 10), exiting(1, kSegv, 900), ended(2, kThree, 11)}),
            "1 fatal_signal");
}

TEST(Judge, CountsAShellsExitCodeOfASignalAsTheSignal) {
  EXPECT_EQ(named({ended(0, kThree, 10), exiting(1, ExitStatus::exited(139), 30)}),
            "1 fatal_signal");
  EXPECT_EQ(named({ended(0, kThree, 10), exiting(1, ExitStatus::exited(143), 30)}), "0 died_first");
}

TEST(Judge, PutsAnExceptionBeforeASignalToAProcessThatOutlivedIt) {
  WorkerSigns alive = exiting(1, kSegv, 900);
  alive.active_until = at_ms(850);
  EXPECT_EQ(named({raising(ended(0, kOne, 60), 10), alive}), "0 raised_first");
  alive.active_until = at_ms(8);
  EXPECT_EQ(named({raising(ended(0, kOne, 60), 10), alive}), "1 fatal_signal");
}

TEST(Judge, ComparesAnAbortWithAnExceptionByTime) {
  const ExitStatus abort = ExitStatus::signaled(SIGABRT);
  EXPECT_EQ(named({raising(ended(0, kOne, 60), 10), ended(1, abort, 30)}), "0 raised_first");
  EXPECT_EQ(named({raising(ended(0, kOne, 60), 40), raising(ended(1, abort, 30), 29)}),
            "1 raised_first");
  EXPECT_EQ(named({ended(0, kThree, 10), ended(1, abort, 30)}), "1 fatal_signal");
}

TEST(Judge, TakesTheFirstOfTwoDeathsBySignals) {
  EXPECT_EQ(named({ended(0, kSegv, 30), ended(1, ExitStatus::signaled(SIGKILL), 10)}),
            "1 died_first");
}

// ---- c: a recorded exception counts from when it was recorded.

TEST(Judge, PutsTheEarlierExceptionFirstWhicheverWorkerDiesFirst) {
  EXPECT_EQ(named({raising(ended(0, kOne, 20), 18), raising(ended(1, kOne, 90), 5)}),
            "1 raised_first");
  EXPECT_EQ(named({ended(0, kThree, 20), raising(ended(1, kOne, 90), 5)}), "1 raised_first");
  EXPECT_EQ(named({ended(0, kThree, 2), raising(ended(1, kOne, 90), 5)}), "0 raised_first");
}

TEST(Judge, PutsAnExceptionBeforeASilentExitOfTheSameMoment) {
  const std::vector<WorkerSigns> workers = {ended(0, kThree, 20), raising(stopped(1), 21),
                                            ended(2, kThree, 21)};
  EXPECT_EQ(named(workers), "1 raised_first");
  EXPECT_EQ(judge(workers).parts,
            (std::vector<Part>{Part::failed_later, Part::culprit, Part::failed_later}));
  EXPECT_EQ(named({ended(0, ExitStatus::signaled(SIGABRT), 20), raising(stopped(1), 21)}),
            "0 raised_first");
}

TEST(Judge, OrdersTimesInWholeSecondsOnlyIfTheyAreSecondsApart) {
  WorkerSigns told = raising(ended(0, kOne, 20), 0);
  told.raised_error = std::chrono::seconds(1);
  EXPECT_EQ(named({told, raising(ended(1, kOne, 90), 2000)}), "0 raised_first");
  EXPECT_EQ(judge({told, raising(ended(1, kOne, 90), 900)}).parts,
            (std::vector<Part>{Part::culprit, Part::simultaneous}));
}

// ---- d: the order of deaths.

TEST(Judge, LetsTheOrderOfDeathsDecideLast) {
  EXPECT_EQ(named({ended(0, kOne, 30), ended(1, kThree, 10), ended(2, kOne, 31)}), "1 died_first");
}

TEST(Judge, TakesTheKernelsOrderAfterAStandstill) {
  WorkerSigns first = ended(1, kThree, 10);
  WorkerSigns second = ended(0, kThree, 10);
  second.order = 11;
  EXPECT_EQ(named({second, first}), "1 died_first");
}

// ---- e: all are victims.

TEST(Judge, NamesTheRankThatVictimsNameThoughOnlyTheStopEndedIt) {
  const std::vector<WorkerSigns> workers = {blaming(ended(0, kOne, 10), {2}),
                                            blaming(ended(1, kOne, 11), {2}), stopped(2)};
  EXPECT_EQ(named(workers), "2 named");
}

TEST(Judge, NamesTheRankThatMostVictimsName) {
  EXPECT_EQ(named({blaming(ended(0, kOne, 10), {3}), blaming(ended(1, kOne, 11), {3}),
                   blaming(ended(2, kOne, 9), {4}), stopped(3), stopped(4)}),
            "3 named");
}

TEST(Judge, FollowsAVictimThatIsNamed) {
  EXPECT_EQ(named({blaming(ended(0, kOne, 10), {1}), blaming(ended(1, kOne, 11), {2}), stopped(2)}),
            "2 named");
  // A circle leads nowhere.
  EXPECT_EQ(named({blaming(ended(0, kOne, 12), {1}), blaming(ended(1, kOne, 10), {0})}),
            "1 first_victim");
}

TEST(Judge, NamesARankThatLeftWith0BeforeItsVictimsFailed) {
  EXPECT_EQ(named({ended(0, kGood, 8), blaming(raising(ended(1, kOne, 90), 20)), stopped(2)}),
            "0 left_early");
  EXPECT_EQ(named({ended(0, kGood, 50), blaming(raising(ended(1, kOne, 90), 20)), stopped(2)}),
            "0 left_early");  // It closed its connections while it ended.
  EXPECT_EQ(named({ended(0, kGood, 5000), blaming(raising(ended(1, kOne, 90), 20)), stopped(2)}),
            "1 first_victim");
}

TEST(Judge, NamesARankThatDestroyedItsGroupsBeforeItsVictimsFailed) {
  const WorkerSigns victim = blaming(raising(ended(1, kOne, 90), 20));
  EXPECT_EQ(named({leaving(stopped(0), 8), victim, stopped(2)}), "0 left_early");
  // Both ended by themselves after the stop, which waited for them.
  WorkerSigns late = ended(0, kGood, 9000);
  late.at_stop = AtStop::running;
  EXPECT_EQ(named({late, victim, stopped(2)}), "1 first_victim");
  EXPECT_EQ(named({leaving(late, 8), victim, stopped(2)}), "0 left_early");
  EXPECT_EQ(named({leaving(late, 8), victim, leaving(stopped(2), 7)}), "2 left_early");
  EXPECT_EQ(named({ended(0, kGood, 6), victim, leaving(stopped(2), 7)}), "0 left_early");
  WorkerSigns crashed = ended(0, kThree, 9000);
  crashed.at_stop = AtStop::running;
  EXPECT_EQ(named({leaving(crashed, 8), victim, stopped(2)}), "0 left_early");
  EXPECT_EQ(named({leaving(stopped(0), 5000), victim, stopped(2)}), "1 first_victim");
  EXPECT_EQ(named({leaving(stopped(0), 8), ended(1, kThree, 90)}), "1 only_failure");
}

TEST(Judge, BlamesNoRankThatLeftWith0ForAConnectionToAnyHost) {
  WorkerSigns refused = raising(ended(1, kOne, 90), 20);
  refused.blame = Blame{{}, /*any_connection=*/true};  // By a database, perhaps.
  EXPECT_EQ(named({ended(0, kGood, 8), refused, stopped(2)}), "1 only_failure");
}

TEST(Judge, IgnoresRanksThatDoNotExist) {
  const WorkerSigns victim = blaming(ended(0, kOne, 90), {2, 4711, 5000});
  EXPECT_EQ(named({victim, stopped(1), stopped(2)}), "2 named");
  EXPECT_EQ(named({blaming(ended(0, kOne, 90), {4711}), stopped(1)}), "0 first_victim");
}

TEST(Judge, NamesTheFirstThatLeftUnlessVictimsNameAnother) {
  const std::vector<WorkerSigns> workers = {ended(0, kGood, 8), ended(1, kGood, 4),
                                            blaming(ended(2, kOne, 90))};
  EXPECT_EQ(named(workers), "1 left_early");
  EXPECT_EQ(named({workers[0], workers[1], blaming(ended(2, kOne, 90), {0})}), "0 named");
}

TEST(Judge, NamesTheFirstVictimIfNothingElseIsKnown) {
  EXPECT_EQ(named({blaming(ended(0, kOne, 30)), blaming(ended(1, kOne, 10)), stopped(2)}),
            "1 first_victim");
}

TEST(Judge, CountsASilentExitAfterAVictimNamedAnotherAsOneMoreVictim) {
  EXPECT_EQ(
      named({blaming(raising(ended(0, kOne, 30), 10), {2}), ended(1, kThree, 40), stopped(2)}),
      "2 named");
  // Not if it was the one that was named, or gone before.
  EXPECT_EQ(
      named({blaming(raising(ended(0, kOne, 30), 10), {1}), ended(1, kThree, 40), stopped(2)}),
      "1 only_failure");
  EXPECT_EQ(named({blaming(raising(ended(0, kOne, 30), 10), {2}), ended(1, kThree, 4), stopped(2)}),
            "1 only_failure");
}

// ---- What the hang detector found.

DetectedCulprit mismatched(int rank) {
  return {.rank = rank, .is_mismatch = true};
}

DetectedCulprit awaited(int rank, std::vector<int> waiting) {
  return {.rank = rank, .waiting = std::move(waiting)};
}

WorkerSigns timed_out(WorkerSigns signs) {
  signs.blame = Blame{.about = Blame::About::timeout};
  return signs;
}

TEST(Judge, NamesARankWhoseCallDidNotMatch) {
  EXPECT_EQ(named({ended(0, ExitStatus::signaled(SIGABRT), 10),
                   blaming(raising(ended(1, kOne, 30), 20)), stopped(2)},
                  {}, {mismatched(2)}),
            "2 mismatch");
}

TEST(Judge, NamesTheFirstToEndOfTwoRanksWhoseCallsDiffer) {
  EXPECT_EQ(
      named({blaming(raising(ended(0, kOne, 30), 20)), ended(1, ExitStatus::signaled(SIGABRT), 10)},
            {}, {mismatched(0), mismatched(1)}),
      "1 mismatch");
}

TEST(Judge, NamesARankThatHangsWhicheverWasMadeToFail) {
  WorkerSigns made_to_fail = stopped(1);
  made_to_fail.declared = true;
  const DetectedCulprit hanging{.rank = 0, .failed = at_ms(100)};
  EXPECT_EQ(named({stopped(0), made_to_fail}, {}, {hanging}), "0 hang");
}

TEST(Judge, PutsTheLibrarysReportBeforeAFindingUnlessARankHadBeenFailed) {
  WorkerSigns reporting = blaming(ended(1, kOne, 120));
  reporting.told_by_library = at_ms(90);
  DetectedCulprit hanging{.rank = 0, .failed = at_ms(80)};
  EXPECT_EQ(named({stopped(0), reporting}, {}, {hanging}), "0 hang");
  hanging.failed = at_ms(100);
  EXPECT_EQ(named({stopped(0), reporting}, {}, {hanging}), "1 first_victim");
  EXPECT_EQ(named({stopped(0), reporting}, {}, {mismatched(0)}), "1 first_victim");
}

TEST(Judge, ExplainsATimeoutByTheOnlyRankThatItWaitedFor) {
  const std::vector<WorkerSigns> workers{timed_out(ended(0, kOne, 30)), stopped(1), stopped(2)};
  EXPECT_EQ(named(workers, {}, {awaited(2, {0, 1})}), "2 hang");
  EXPECT_EQ(judge(workers, {}, {awaited(2, {0, 1})}).findings[2], 0U);
  EXPECT_EQ(named(workers, {}, {awaited(2, {1})}), "0 first_victim") << "another rank waited";
  EXPECT_EQ(named(workers, {}, {awaited(1, {0}), awaited(2, {0})}), "0 first_victim") << "two";
  EXPECT_EQ(named(workers, {}, {awaited(1, {0}), awaited(2, {0, 1})}), "2 hang")
      << "rank 1 waited itself";
  EXPECT_EQ(named({blaming(ended(0, kOne, 30)), stopped(1), stopped(2)}, {}, {awaited(2, {0})}),
            "0 first_victim")
      << "a lost connection is no time-out";
}

TEST(Judge, CountsACallThatDiffersAsNoFailure) {
  EXPECT_EQ(named({stopped(0), stopped(1)}, {}, {mismatched(0)}), "nobody");
}

// ---- Nodes: losses and clocks.

LostNode lost_node(int node, std::vector<int> ranks, int64_t heard, int64_t gone) {
  return {node, std::move(ranks), at_ms(heard), at_ms(gone)};
}

TEST(Judge, ExplainsTheVictimsThatCameAfterALostNodeByTheLoss) {
  const LostNode lost = lost_node(1, {2, 3}, 100, 3100);
  EXPECT_EQ(named({blaming(raising(ended(0, kOne, 300), 250))}, {lost}), "node 1");
  EXPECT_EQ(named({blaming(raising(ended(0, kOne, 90), 50))}, {lost}), "0 first_victim");
}

TEST(Judge, ExplainsAnExitCodeAfterTheLastSignOfALostNodeByTheLoss) {
  const LostNode lost = lost_node(1, {2, 3}, 100, 3100);
  EXPECT_EQ(named({ended(0, kThree, 300)}, {lost}), "node 1");
  EXPECT_EQ(named({ended(0, kThree, 90)}, {lost}), "0 only_failure");
}

TEST(Judge, TakesAFaultBeforeALossWasCompleteForTheWorkersOwn) {
  const LostNode lost = lost_node(1, {2, 3}, 100, 3100);
  EXPECT_EQ(named({ended(0, kSegv, 300)}, {lost}), "0 only_failure");
  EXPECT_EQ(named({ended(0, kSegv, 3300)}, {lost}), "node 1");
}

TEST(Judge, NamesTheLostNodeOfARankThatIsNamed) {
  const LostNode lost = lost_node(1, {2, 3}, 100, 3100);
  EXPECT_EQ(named({ended(0, kGood, 1), blaming(raising(ended(1, kOne, 90), 50), {3})}, {lost}),
            "node 1");
}

TEST(Judge, AddsTheErrorOfTheClocksAcrossNodes) {
  const auto verdict = [](int64_t second_ms, Duration error) {
    return judge(
        {on_node(0, ended(0, kThree, 100), error), on_node(1, ended(4, kThree, second_ms), error)});
  };
  EXPECT_EQ(verdict(120, milliseconds(2)).parts,
            (std::vector<Part>{Part::culprit, Part::failed_later}));
  EXPECT_EQ(verdict(80, milliseconds(2)).parts,
            (std::vector<Part>{Part::failed_later, Part::culprit}));
  EXPECT_EQ(verdict(104, milliseconds(2)).parts,
            (std::vector<Part>{Part::culprit, Part::simultaneous}));
  EXPECT_EQ(verdict(120, milliseconds(20)).parts,
            (std::vector<Part>{Part::culprit, Part::simultaneous}));
}

// ---- f: what cannot be told apart.

TEST(Judge, CallsFailuresWithinAMillisecondSimultaneous) {
  WorkerSigns first = raising(ended(0, kOne, 60), 10);
  WorkerSigns second = raising(ended(1, kOne, 20), 10);
  second.raised = at_ms(10) + std::chrono::microseconds(900);
  const AttemptVerdict verdict = judge({second, first});
  EXPECT_EQ(verdict.parts, (std::vector<Part>{Part::simultaneous, Part::culprit}));
  second.raised = at_ms(12);
  EXPECT_EQ(judge({second, first}).parts, (std::vector<Part>{Part::failed_later, Part::culprit}));
}

TEST(Judge, CallsNoFailureSimultaneousWithALoss) {
  WorkerSigns first = ended(0, kThree, 200);
  WorkerSigns second = ended(1, kThree, 200);
  EXPECT_EQ(judge({first, second}, {lost_node(1, {4}, 100, 3000)}).parts,
            (std::vector<Part>{Part::failed_later, Part::failed_later}));
}

}  // namespace
}  // namespace muster

#include "agent/output/stream_plan.h"

#include <gtest/gtest.h>

namespace muster {

namespace {

StreamPlan plan_for(const LogSpec& log, Streams stream = Streams::out, int local_rank = 0,
                    int rank = 0) {
  return plan_stream(log, {stream, local_rank, rank, false});
}

StreamPlan on_terminal(const LogSpec& log) {
  return plan_stream(log, {Streams::out, 0, 0, true});
}

StreamPlan without_files(LogSpec log) {
  log.dir = "/dev/null";
  return plan_stream(log, {Streams::out, 0, 0, false});
}

const StreamPlan kPlain{.to_console = true};
const StreamPlan kHidden{};
const StreamPlan kFileOnly{.to_file = true};
const StreamPlan kTeed{.to_console = true, .to_file = true, .prefix = ConsolePrefix::tee};

TEST(StreamPlan, AStreamReachesTheConsoleAsItIsByDefault) {
  EXPECT_EQ(plan_for({}), kPlain);
}

TEST(StreamPlan, ARedirectedStreamGoesToItsFileOnly) {
  LogSpec log;
  log.redirects.all = Streams::err;
  EXPECT_EQ(plan_for(log, Streams::err), kFileOnly);
  EXPECT_TRUE(plan_for(log, Streams::err).direct());
  EXPECT_EQ(plan_for(log, Streams::out), kPlain);
}

TEST(StreamPlan, ATeedStreamGoesToBothEvenIfRedirected) {
  LogSpec log;
  log.tee.all = Streams::both;
  EXPECT_EQ(plan_for(log), kTeed);
  log.redirects.all = Streams::both;
  EXPECT_EQ(plan_for(log), kTeed);
}

TEST(StreamPlan, TheMapNamesLocalRanks) {
  LogSpec log;
  log.tee.by_rank = {{1, Streams::out}};
  log.redirects.by_rank = {{2, Streams::both}};
  EXPECT_EQ(plan_for(log, Streams::out, 0), kPlain);
  EXPECT_EQ(plan_for(log, Streams::out, 1), kTeed);
  EXPECT_EQ(plan_for(log, Streams::err, 1), kPlain);
  EXPECT_EQ(plan_for(log, Streams::out, 2), kFileOnly);
}

TEST(StreamPlan, TheLocalFilterKeepsFilesAndHidesTheRest) {
  LogSpec log;
  log.local_ranks_filter = {0, 2};
  EXPECT_EQ(plan_for(log, Streams::out, 2), kPlain);
  EXPECT_EQ(plan_for(log, Streams::out, 1), kHidden);
  log.tee.all = Streams::both;
  EXPECT_EQ(plan_for(log, Streams::out, 1), kFileOnly);
}

TEST(StreamPlan, AFilterWithoutRanksFiltersNothing) {
  LogSpec log;
  log.local_ranks_filter = std::vector<int>{};
  EXPECT_EQ(plan_for(log, Streams::out, 7), kPlain);
}

TEST(StreamPlan, TheGlobalFilterNamesInclusiveRanges) {
  LogSpec log;
  log.ranks = {{0, 0}, {8, 15}};
  for (const int rank : {0, 8, 15})
    EXPECT_EQ(plan_for(log, Streams::out, 0, rank), kPlain) << rank;
  for (const int rank : {1, 7, 16})
    EXPECT_EQ(plan_for(log, Streams::out, 0, rank), kHidden) << rank;
}

TEST(StreamPlan, BothFiltersMustAgree) {
  LogSpec log;
  log.ranks = {{0, 3}};
  log.local_ranks_filter = {1};
  EXPECT_EQ(plan_for(log, Streams::out, 1, 1), kPlain);
  EXPECT_EQ(plan_for(log, Streams::out, 1, 9), kHidden);
  EXPECT_EQ(plan_for(log, Streams::out, 0, 0), kHidden);
}

TEST(StreamPlan, OnlyAPlainStreamOnATerminalGetsAPty) {
  LogSpec log;
  EXPECT_EQ(on_terminal(log), (StreamPlan{.to_console = true, .terminal = true}));
  log.tee.all = Streams::both;
  EXPECT_EQ(on_terminal(log), kTeed);
  log.tee.all = Streams::none;
  log.ranks = {{5, 5}};
  EXPECT_EQ(on_terminal(log), kHidden);
}

TEST(StreamPlan, TheLogPrefixAppliesToEveryStreamThatIsShown) {
  LogSpec log;
  log.prefix = "{rank}";
  EXPECT_EQ(plan_for(log), (StreamPlan{.to_console = true, .prefix = ConsolePrefix::log_prefix}));
  log.tee.all = Streams::both;
  EXPECT_EQ(plan_for(log).prefix, ConsolePrefix::log_prefix);
  log.ranks = {{5, 5}};
  EXPECT_EQ(plan_for(log), kFileOnly);
}

TEST(StreamPlan, DuplicatesAreTakenFromTeedStreamsThatAreShown) {
  LogSpec log;
  log.duplicate_stdout_filters = {"x"};
  EXPECT_FALSE(plan_for(log).filtered);
  log.tee.all = Streams::both;
  EXPECT_TRUE(plan_for(log, Streams::out).filtered);
  EXPECT_FALSE(plan_for(log, Streams::err).filtered);
  log.local_ranks_filter = {3};
  EXPECT_FALSE(plan_for(log, Streams::out).filtered);
}

TEST(StreamPlan, EveryStreamIsShownAsItIsIfThereAreNoFiles) {
  LogSpec log;
  log.tee.all = Streams::both;
  log.redirects.all = Streams::both;
  log.local_ranks_filter = {3};
  EXPECT_EQ(without_files(log), kPlain);
  log.ranks = {{3, 3}};
  EXPECT_EQ(without_files(log), kHidden);
}

}  // namespace

}  // namespace muster

// The report that a process leaves of the failures that its program saw: which failure it keeps,
// and which process may write it.

#include "worker_lib/failure_reports.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster::worker {
namespace {

Failure late(int rank) {
  return {ErrorCode::timeout, "barrier 3 of group world: rank 2 has not called it", {{rank}}};
}
Failure died(int rank) {
  return {ErrorCode::peer_failed, "send of group world: it died", {{rank}}};
}

class FailureReportsTest : public testing::Test {
 protected:
  // The report as the launcher reads it.
  std::optional<FailureRecord> written() const {
    const ring::Report& report = ring_->notes.report;
    if (report.time_ns == 0) return std::nullopt;
    FailureRecord record{.time_ns = static_cast<int64_t>(report.time_ns.load()),
                         .code = static_cast<FailureCode>(report.what & 0xff),
                         .rank = static_cast<int>(report.what >> 32) - 1};
    for (const uint64_t ranks : report.origin) {
      if ((ranks & UINT32_MAX) != 0) record.origin.push_back(static_cast<int>(ranks) - 1);
      if (ranks >> 32 != 0) record.origin.push_back(static_cast<int>(ranks >> 32) - 1);
    }
    record.message = ring::text_in(report.message, std::size(report.message));
    return record;
  }
  std::string message() const { return written() ? written()->message : ""; }
  // Runs `body` in a forked child; returns its exit code.
  static int in_child(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const ring::TestRing ring_;
};

TEST_F(FailureReportsTest, WritesTheFailureThatTheProgramSees) {
  FailureReports reports(ring_.text(), 7);
  reports.joins(3);
  const int64_t before = new_failure_time();
  reports.add(late(2));
  ASSERT_TRUE(written());
  EXPECT_EQ(written(), reports.last());
  EXPECT_EQ(written()->code, FailureCode::timeout);
  EXPECT_EQ(written()->origin, std::vector<int>{2});
  EXPECT_EQ(written()->rank, 3);
  EXPECT_EQ(written()->message, late(2).message);
  EXPECT_GT(written()->time_ns, before);
  EXPECT_LT(written()->time_ns, new_failure_time());
}

TEST_F(FailureReportsTest, KeepsTheFailureInMemoryWithoutARing) {
  FailureReports without_ring("", 0);
  without_ring.joins(0);
  FailureReports in_no_ring("3:77", 0);
  in_no_ring.joins(0);
  for (FailureReports* const reports : {&without_ring, &in_no_ring}) {
    errno = 77;
    reports->add(late(2));
    EXPECT_EQ(errno, 77);
    EXPECT_TRUE(reports->last());
    reports->overcome();
    EXPECT_FALSE(reports->last());
  }
  EXPECT_FALSE(written());
}

TEST_F(FailureReportsTest, CutsALongMessageAndManyRanks) {
  FailureReports reports(ring_.text(), 0);
  reports.joins(0);
  Failure failure{ErrorCode::peer_failed, std::string(2000, 'x'), {}};
  for (int rank = 300; rank > 0; --rank)
    failure.ranks.push_back({rank});
  reports.add(failure);
  ASSERT_TRUE(written());
  EXPECT_EQ(written()->message, std::string(1023, 'x'));
  ASSERT_EQ(written()->origin.size(), 128U);
  EXPECT_EQ(written()->origin.front(), 1);
  EXPECT_EQ(written()->origin.back(), 128);
  FailureReports among_them(ring_.text(), 0);
  among_them.joins(200);
  among_them.add(failure);
  ASSERT_EQ(written()->origin.size(), 128U);
  EXPECT_EQ(written()->origin.back(), 200) << "the own rank is an origin, too";
}

TEST_F(FailureReportsTest, TheOriginOfARanksOwnErrorIsThatRank) {
  for (const ErrorCode code : {ErrorCode::invalid_argument, ErrorCode::not_initialized,
                               ErrorCode::not_member, ErrorCode::environment, ErrorCode::system}) {
    FailureReports reports(ring_.text(), 3);
    reports.add({code, "no"});
    EXPECT_EQ(reports.last()->origin, std::vector<int>{3}) << name_of(code);
  }
  FailureReports reports(ring_.text(), 3);
  reports.add({ErrorCode::rendezvous, "the store is gone"});
  EXPECT_TRUE(reports.last()->origin.empty()) << "the origin is unknown";
}

TEST_F(FailureReportsTest, KeepsTheJobsRankInOtherGroups) {
  FailureReports unknown("", -1);
  unknown.joins_group(4);
  unknown.joins_group(5);
  unknown.add({ErrorCode::system, "no"});
  EXPECT_EQ(unknown.last()->rank, 4);
  FailureReports of_a_launcher("", 3);
  of_a_launcher.joins_group(4);
  of_a_launcher.add({ErrorCode::system, "no"});
  EXPECT_EQ(of_a_launcher.last()->rank, 3);
  unknown.joins(2);
  unknown.add({ErrorCode::system, "again"});
  EXPECT_EQ(unknown.last()->rank, 2);
}

TEST_F(FailureReportsTest, ListsEachOriginOnce) {
  FailureReports reports(ring_.text(), 0);
  reports.joins(0);
  reports.add({ErrorCode::mismatch, "no", {{2}, {1}, {2}}});
  EXPECT_EQ(written()->origin, (std::vector<int>{1, 2}));
}

TEST_F(FailureReportsTest, KeepsTheNewestFailure) {
  FailureReports reports(ring_.text(), 0);
  reports.joins(0);
  reports.add(late(2));
  reports.add({ErrorCode::invalid_argument, "root 9"});
  EXPECT_EQ(message(), "root 9");
}

TEST_F(FailureReportsTest, ARepeatedFailureKeepsItsTime) {
  FailureReports reports(ring_.text(), 0);
  reports.joins(0);
  Failure first = late(2);
  first.known_ns = new_failure_time();
  reports.add(first);
  Failure refusal = first;
  refusal.message = "all_reduce of group world: the group has failed: " + first.message;
  reports.add(refusal);
  EXPECT_EQ(message(), first.message);
  EXPECT_EQ(written()->time_ns, first.known_ns);
  // After another failure it is the newest again, with its old time.
  reports.add({ErrorCode::invalid_argument, "root 9"});
  reports.add(refusal);
  EXPECT_EQ(message(), refusal.message);
  EXPECT_EQ(written()->time_ns, first.known_ns);
}

TEST_F(FailureReportsTest, IgnoresLossesThatFollowAFailure) {
  FailureReports reports(ring_.text(), 0);
  reports.joins(0);
  reports.add(late(2));
  reports.add(died(1));
  reports.add({ErrorCode::stopped, "SIGTERM"});
  reports.add({ErrorCode::rendezvous, "the store is gone"});
  EXPECT_EQ(message(), late(2).message);
}

TEST_F(FailureReportsTest, ReportsALossThatComesFirst) {
  FailureReports reports(ring_.text(), 0);
  reports.joins(0);
  reports.add(died(1));
  EXPECT_EQ(written()->origin, std::vector<int>{1});
}

TEST_F(FailureReportsTest, RetractsAFailureOnceTheThreadOvercomesIt) {
  FailureReports reports(ring_.text(), 0);
  reports.joins(0);
  reports.overcome();
  reports.add(late(2));
  std::thread([&] { reports.overcome(); }).join();
  EXPECT_TRUE(written()) << "another thread's success does not retract it";
  reports.overcome();
  EXPECT_FALSE(written());
  EXPECT_FALSE(reports.last());
  reports.add(died(1));
  EXPECT_TRUE(written());
}

TEST_F(FailureReportsTest, RetractsNothingWhileTheExceptionIsHandled) {
  FailureReports reports(ring_.text(), 0);
  reports.joins(0);
  struct Unwinding {
    FailureReports& reports;
    ~Unwinding() { reports.overcome(); }
  };
  try {
    const Unwinding unwinding{reports};
    reports.add(late(2));
    throw std::runtime_error("it");
  } catch (const std::exception&) {
    reports.overcome();
    EXPECT_TRUE(written());
  }
  reports.overcome();
  EXPECT_FALSE(written());
}

TEST_F(FailureReportsTest, AForkedChildDoesNotOverwriteItsParentsReport) {
  FailureReports reports(ring_.text(), 0);
  reports.joins(0);
  reports.add(late(2));
  EXPECT_EQ(in_child([&] {
              reports.add({ErrorCode::invalid_argument, "the child's"});
              reports.overcome();
              return 0;
            }),
            0);
  EXPECT_EQ(message(), late(2).message);
}

TEST_F(FailureReportsTest, AProcessThatJoinedNothingKeepsTheReportOfARank) {
  FailureReports rank(ring_.text(), 0);
  rank.joins(0);
  rank.add(late(2));
  FailureReports helper(ring_.text(), 0);  // In a program that the rank started.
  helper.add({ErrorCode::not_initialized, "the helper's"});
  helper.overcome();
  EXPECT_EQ(message(), late(2).message);
  take_back_report(ring_->notes.report);
  FailureReports alone(ring_.text(), 0);
  alone.add({ErrorCode::not_initialized, "init was\nforgotten"});
  EXPECT_EQ(message(), "init was forgotten");
  alone.add({ErrorCode::not_initialized, "again"});
  EXPECT_EQ(message(), "again");
  rank.add(late(2));
  EXPECT_EQ(message(), late(2).message) << "the rank's report outranks it";
}

TEST_F(FailureReportsTest, TimesAreUniqueAndAscending) {
  std::array<int64_t, 1000> times{};
  std::ranges::generate(times, new_failure_time);
  EXPECT_TRUE(std::ranges::is_sorted(times, std::less_equal<>()) &&
              std::ranges::adjacent_find(times) == times.end());
}

}  // namespace
}  // namespace muster::worker

// What a process leaves of the failures that its program was told of: which of them counts, and who
// may write.

#include "worker_lib/failure_reports.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

Failure late(int rank) {
  return {ErrorCode::timeout, "barrier 3 of group world: rank 2 has not called it", {{rank}}};
}
Failure died(int rank) {
  return {ErrorCode::peer_failed, "send of group world: it died", {{rank}}};
}

class FailureReportsTest : public testing::Test {
 protected:
  FailureReportsTest()
      : folder_(fs::temp_directory_path() / ("failure-reports-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~FailureReportsTest() override { fs::remove_all(folder_); }

  std::string path() const { return folder_ / "record"; }
  std::optional<FailureRecord> written() const {
    std::ifstream file(path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return parse_failure_record(text);
  }
  std::string message() const { return written() ? written()->message : ""; }
  // How `body` ends in a forked child: its exit code.
  static int in_child(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const fs::path folder_;
};

TEST_F(FailureReportsTest, WritesWhatTheProgramIsTold) {
  FailureReports reports(path(), 7);
  reports.joins(3);
  const int64_t before = new_failure_time();
  reports.add(late(2), "barrier");
  ASSERT_TRUE(written());
  EXPECT_EQ(written(), reports.last());
  EXPECT_EQ(written()->code, "timeout");
  EXPECT_EQ(written()->origin, std::vector<int>{2});
  EXPECT_EQ(written()->rank, 3);
  EXPECT_EQ(written()->operation, "barrier 3 of group world");
  EXPECT_EQ(written()->message, late(2).message);
  EXPECT_GT(written()->time_ns, before);
  EXPECT_LT(written()->time_ns, new_failure_time());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nothing else is left";
}

TEST_F(FailureReportsTest, WithoutAFileItOnlyRemembers) {
  FailureReports reports("", 0);
  reports.add(late(2), "barrier");
  ASSERT_TRUE(reports.last());
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FailureReportsTest, ARanksOwnErrorsBeginWithIt) {
  for (const ErrorCode code : {ErrorCode::invalid_argument, ErrorCode::not_initialized,
                               ErrorCode::not_member, ErrorCode::environment, ErrorCode::system}) {
    FailureReports reports(path(), 3);
    reports.add({code, "no"}, {});
    EXPECT_EQ(reports.last()->origin, std::vector<int>{3}) << name_of(code);
  }
  FailureReports reports(path(), 3);
  reports.add({ErrorCode::rendezvous, "the store is gone"}, {});
  EXPECT_TRUE(reports.last()->origin.empty()) << "nobody knows";
}

TEST_F(FailureReportsTest, ARankOfTheJobStaysOneInOtherGroups) {
  FailureReports unknown("", -1);
  unknown.joins_group(4);
  unknown.joins_group(5);
  unknown.add({ErrorCode::system, "no"}, {});
  EXPECT_EQ(unknown.last()->rank, 4);
  FailureReports of_a_launcher("", 3);
  of_a_launcher.joins_group(4);
  of_a_launcher.add({ErrorCode::system, "no"}, {});
  EXPECT_EQ(of_a_launcher.last()->rank, 3);
  unknown.joins(2);
  unknown.add({ErrorCode::system, "again"}, {});
  EXPECT_EQ(unknown.last()->rank, 2);
}

TEST_F(FailureReportsTest, TheNewestCounts) {
  FailureReports reports(path(), 0);
  reports.joins(0);
  reports.add(late(2), "barrier");
  reports.add({ErrorCode::invalid_argument, "root 9"}, "broadcast");
  EXPECT_EQ(message(), "root 9");
}

TEST_F(FailureReportsTest, WhatIsToldAgainKeepsItsTime) {
  FailureReports reports(path(), 0);
  reports.joins(0);
  Failure first = late(2);
  first.known_ns = new_failure_time();
  reports.add(first, "barrier");
  Failure refusal = first;
  refusal.message = "all_reduce of group world: the group has failed: " + first.message;
  reports.add(refusal, "all_reduce");
  EXPECT_EQ(message(), first.message);
  EXPECT_EQ(written()->time_ns, first.known_ns);
  // After another failure it is the newest again, and as old as it was.
  reports.add({ErrorCode::invalid_argument, "root 9"}, "broadcast");
  reports.add(refusal, "all_reduce");
  EXPECT_EQ(message(), refusal.message);
  EXPECT_EQ(written()->time_ns, first.known_ns);
}

TEST_F(FailureReportsTest, TheLossesThatFollowAreItsEchoes) {
  FailureReports reports(path(), 0);
  reports.joins(0);
  reports.add(late(2), "barrier");
  reports.add(died(1), "send");
  reports.add({ErrorCode::stopped, "SIGTERM"}, "barrier");
  reports.add({ErrorCode::rendezvous, "the store is gone"}, "new_group");
  EXPECT_EQ(message(), late(2).message);
}

TEST_F(FailureReportsTest, ALossThatComesFirstCounts) {
  FailureReports reports(path(), 0);
  reports.joins(0);
  reports.add(died(1), "send");
  EXPECT_EQ(written()->origin, std::vector<int>{1});
}

TEST_F(FailureReportsTest, WhatTheThreadHasGotOverIsTakenBack) {
  FailureReports reports(path(), 0);
  reports.joins(0);
  reports.overcome();
  reports.add(late(2), "barrier");
  std::thread([&] { reports.overcome(); }).join();
  EXPECT_TRUE(written()) << "another thread's success says nothing of it";
  reports.overcome();
  EXPECT_FALSE(written());
  EXPECT_FALSE(reports.last());
  reports.add(died(1), "send");
  EXPECT_TRUE(written());
}

TEST_F(FailureReportsTest, NotWhileTheExceptionIsHandled) {
  FailureReports reports(path(), 0);
  reports.joins(0);
  struct Unwinding {
    FailureReports& reports;
    ~Unwinding() { reports.overcome(); }
  };
  try {
    const Unwinding unwinding{reports};
    reports.add(late(2), "barrier");
    throw std::runtime_error("it");
  } catch (const std::exception&) {
    reports.overcome();
    EXPECT_TRUE(written());
  }
  reports.overcome();
  EXPECT_FALSE(written());
}

TEST_F(FailureReportsTest, AForkedChildDoesNotOverwriteItsParents) {
  FailureReports reports(path(), 0);
  reports.joins(0);
  reports.add(late(2), "barrier");
  EXPECT_EQ(in_child([&] {
              reports.add({ErrorCode::invalid_argument, "the child's"}, {});
              reports.overcome();
              return 0;
            }),
            0);
  EXPECT_EQ(message(), late(2).message);
}

TEST_F(FailureReportsTest, WhoHasJoinedNothingLeavesAFileThatIsThereAlone) {
  FailureReports rank(path(), 0);
  rank.joins(0);
  rank.add(late(2), "barrier");
  FailureReports helper(path(), 0);  // Of a program that the rank started.
  helper.add({ErrorCode::not_initialized, "the helper's"}, {});
  helper.overcome();
  EXPECT_EQ(message(), late(2).message);
  fs::remove(path());
  FailureReports alone(path(), 0);
  alone.add({ErrorCode::not_initialized, "init was forgotten"}, {});
  alone.add({ErrorCode::not_initialized, "again"}, {});
  EXPECT_EQ(message(), "again");
}

TEST_F(FailureReportsTest, LinksAreReplacedAndNotFollowed) {
  const std::string other = folder_ / "precious";
  std::ofstream(other) << "kept";
  fs::create_symlink(other, path());
  fs::create_symlink(other, path() + "." + std::to_string(getpid()));
  FailureReports reports(path(), 0);
  reports.joins(0);
  reports.add(late(2), "barrier");
  EXPECT_TRUE(written());
  EXPECT_FALSE(fs::is_symlink(path()));
  std::string text;
  std::ifstream(other) >> text;
  EXPECT_EQ(text, "kept");
}

TEST_F(FailureReportsTest, WhatCannotBeWrittenMattersToNobody) {
  for (const std::string& bad :
       {std::string("/no/such/folder/record"), folder_.string(), std::string(5000, 'x')}) {
    FailureReports reports(bad, 0);
    reports.joins(0);
    errno = 77;
    reports.add(late(2), "barrier");
    EXPECT_EQ(errno, 77);
    EXPECT_TRUE(reports.last());
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FailureReportsTest, AFullDiskLeavesTheRecordThatWasThere) {
  FailureReports reports(path(), 0);
  reports.joins(0);
  reports.add(late(2), "barrier");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  reports.add({ErrorCode::invalid_argument, "root 9"}, {});
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(message(), late(2).message);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nor anything unfinished";
}

TEST_F(FailureReportsTest, TimesAreNeverTheSame) {
  std::array<int64_t, 1000> times{};
  std::ranges::generate(times, new_failure_time);
  EXPECT_TRUE(std::ranges::is_sorted(times, std::less_equal<>()) &&
              std::ranges::adjacent_find(times) == times.end());
}

}  // namespace
}  // namespace muster::worker

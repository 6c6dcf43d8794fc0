// Ranks that a program starts itself. Each test calls spawn(), whose ranks run this test program
// with a filter for the same test.
#include "worker_lib/spawn/spawn.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/store/store_client.h"
#include "tests/fakes/temp_tree.h"
#include "tests/wait_for.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/watch/process_life.h"

namespace muster {
namespace {

using ::testing::StartsWith;

// Options whose ranks run only the current test.
SpawnOptions to_this_test() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test.test_suite_name()) + "." + test.name();
  SpawnOptions options;
  options.name = name;
  options.arguments = {"--gtest_filter=" + name, "--gtest_brief=1"};
  return options;
}

// Files that ranks leave for the test, in one folder of the process that spawns them.
class Notes {
 public:
  explicit Notes(SpawnOptions& options) {
    const char* inherited = std::getenv("MUSTER_TEST_NOTES");
    path_ = inherited != nullptr ? inherited : tree_.root().string();
    options.environment.emplace_back("MUSTER_TEST_NOTES", path_);
  }

  void leave(const std::string& name, const std::string& text) const {
    const std::string draft = path_ + "/draft-" + name;
    std::ofstream(draft) << text;
    rename(draft.c_str(), (path_ + "/" + name).c_str());
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  bool is_there(const std::string& name) const {
    return access((path_ + "/" + name).c_str(), F_OK) == 0;
  }
  void await(const std::string& name) const {
    if (!test::wait_for([&] { return is_there(name); }, name)) std::abort();
  }

 private:
  TempTree tree_;
  std::string path_;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "(unset)";
}

// Only a signal ends it.
[[noreturn]] void stay_for_ever() {
  for (;;)
    pause();
}

TEST(WorkerSpawn, StartsThisProgramOnceForEachRank) {
  SpawnOptions options = to_this_test();
  const Notes notes(options);
  const SpawnResult result = spawn(
      3,
      [&](int rank) {
        notes.leave("rank" + std::to_string(rank),
                    variable("RANK") + " " + variable("WORLD_SIZE") + " " + variable("LOCAL_RANK") +
                        " " + variable("LOCAL_WORLD_SIZE") + " " + variable("MASTER_ADDR") + " " +
                        variable("TORCHELASTIC_USE_AGENT_STORE") + " " + variable("MUSTER_SPAWN"));
      },
      options);
  EXPECT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(result.exit_code(), 0);
  ASSERT_EQ(result.ranks.size(), 3U);
  EXPECT_NE(result.ranks[0].pid, result.ranks[1].pid);
  EXPECT_EQ(result.message(), "3 ranks ended well");
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_EQ(notes.read(std::string("rank") + rank),
              std::string(rank) + " 3 " + rank + " 3 127.0.0.1 True (unset)");
  }
}

TEST(WorkerSpawn, ServesAStoreToTheRanks) {
  SpawnOptions options = to_this_test();
  const SpawnResult result = spawn(
      4,
      [](int rank) -> int {
        Result<StoreClient> store = StoreClient::connect(
            {.host = variable("MASTER_ADDR"),
             .port = static_cast<uint16_t>(std::stoi(variable("MASTER_PORT")))});
        return store && store->set(std::to_string(rank), "here") &&
                       store->wait({"0", "1", "2", "3"})
                   ? 0
                   : 9;
      },
      options);
  EXPECT_TRUE(result.ok()) << result.message();
}

TEST(WorkerSpawn, RanksSkipEarlierCallsAndReachTheirOwn) {
  SpawnOptions first = to_this_test();
  SpawnOptions second = to_this_test();
  first.name += " first";
  second.name += " second";
  const Notes notes(second);
  first.environment = second.environment;
  const SpawnResult one = spawn(1, [](int) -> int { return 0; }, first);
  const bool was_passed = one.skipped();
  const SpawnResult two =
      spawn(2, [&](int rank) -> int { return was_passed && one.ok() ? 20 + rank : 1; }, second);
  EXPECT_EQ(one.ranks.size(), 1U);
  EXPECT_THAT(two.exit_code(), testing::AnyOf(20, 21)) << two.message();
  EXPECT_FALSE(one.skipped());
  EXPECT_FALSE(two.skipped());
}

TEST(WorkerSpawn, AFailureStopsTheRestAndIsNamed) {
  SpawnOptions options = to_this_test();
  const Notes notes(options);
  const SpawnResult result = spawn(
      3,
      [&](int rank) -> int {
        if (rank != 1) {
          notes.leave("rank" + std::to_string(rank), "");
          stay_for_ever();
        }
        notes.await("rank0");
        notes.await("rank2");
        return 7;
      },
      options);
  ASSERT_EQ(result.failed, GlobalRank{1});
  EXPECT_EQ(result.exit_code(), 7);
  for (const size_t other : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(result.ranks[other].signal, SIGTERM);
    EXPECT_EQ(result.ranks[other].code, 128 + SIGTERM);
    EXPECT_TRUE(result.ranks[other].stopped);
  }
  EXPECT_FALSE(result.ranks[1].stopped);
  EXPECT_EQ(result.message(), "rank 1 (pid " + std::to_string(result.ranks[1].pid) +
                                  ") exited with code 7; 2 others were stopped");
}

TEST(WorkerSpawn, ARankThatNeverReachesItsCallHasFailed) {
  SpawnOptions options = to_this_test();
  options.arguments = {"--gtest_filter=Nothing.ToRun", "--gtest_brief=1"};
  const SpawnResult result = spawn(1, [](int) -> int { return 0; }, options);
  ASSERT_TRUE(result.failed);
  EXPECT_EQ(result.exit_code(), 1);
  EXPECT_THAT(result.message(), StartsWith("rank 0 "));
}

TEST(WorkerSpawn, ASignalIsNamed) {
  const SpawnResult result = spawn(
      1,
      [](int) -> int {
        std::raise(SIGKILL);
        return 0;
      },
      to_this_test());
  ASSERT_EQ(result.failed, GlobalRank{0});
  EXPECT_EQ(result.exit_code(), 137);
  EXPECT_EQ(result.message(), "rank 0 (pid " + std::to_string(result.ranks[0].pid) +
                                  ") was killed by signal 9 (Killed)");
}

TEST(WorkerSpawn, ARankThatIgnoresSigtermIsKilledAfterTheStopTimeout) {
  SpawnOptions options = to_this_test();
  options.stop_timeout = std::chrono::milliseconds(50);
  const Notes notes(options);
  const SpawnResult result = spawn(
      2,
      [&](int rank) -> int {
        if (rank == 1) {
          notes.await("deaf");
          return 1;
        }
        std::signal(SIGTERM, SIG_IGN);
        notes.leave("deaf", "");
        stay_for_ever();
      },
      options);
  EXPECT_EQ(result.failed, GlobalRank{1});
  EXPECT_EQ(result.ranks[0].signal, SIGKILL);
}

TEST(WorkerSpawn, AnExceptionIsAFailureOfItsRank) {
  const SpawnResult result = spawn(
      2,
      [](int rank) {
        if (rank == 0) throw std::runtime_error("no data");
      },
      to_this_test());
  ASSERT_EQ(result.failed, GlobalRank{0});
  EXPECT_EQ(result.exit_code(), 1);
}

TEST(WorkerSpawn, ExceptionsArePrintedWithTheRank) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(detail::run_as_rank(2, [](int) -> int { throw std::runtime_error("no data"); }), 1);
  EXPECT_EQ(detail::run_as_rank(3, [](int) -> int { throw 5; }), 1);
  EXPECT_EQ(detail::run_as_rank(4, [](int rank) { return rank; }), 4);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rank 2: no data\nrank 3: an exception that is not a std::exception\n");
}

TEST(WorkerSpawn, ATimeoutStopsAllAndNamesTheRanksThatStillRan) {
  SpawnOptions options = to_this_test();
  const Notes notes(options);
  options.timeout = std::chrono::seconds(2);
  try {
    static_cast<void>(spawn(
        2,
        [&](int rank) {
          if (rank == 1) stay_for_ever();
        },
        options));
    ADD_FAILURE() << "it should not have ended well";
  } catch (const DistributedError& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_EQ(error.failed_ranks(), std::vector<GlobalRank>{GlobalRank{1}}) << error.what();
    EXPECT_STREQ(error.what(), "spawn: 1 of 2 ranks had not ended after 2 s and were stopped: 1");
  }
}

TEST(WorkerSpawn, TakesTheLargestTimeoutAsNone) {
  SpawnOptions options = to_this_test();
  options.timeout = std::chrono::milliseconds::max();
  EXPECT_TRUE(spawn(1, [](int) {}, options).ok());
}

TEST(WorkerSpawn, RanksDieWithTheirParent) {
  SpawnOptions outer = to_this_test();
  const Notes notes(outer);
  SpawnOptions inner = outer;
  outer.name += " outer";
  inner.name += " inner";
  // The outer rank spawns the inner one and is killed.
  const SpawnResult result = spawn(
      1,
      [&](int) {
        const std::thread killer([&] {
          notes.await("life");
          std::raise(SIGKILL);
        });
        static_cast<void>(spawn(1, [](int) {}, inner));
      },
      outer);
  // The inner rank skips the outer call and gets here.
  if (result.ranks.empty()) {
    const auto be_watched = [&](int) {
      notes.leave("life", worker::life_of_process(getpid()).to_string());
      stay_for_ever();
    };
    static_cast<void>(spawn(1, be_watched, inner));
  }
  EXPECT_EQ(result.ranks.at(0).signal, SIGKILL);
  const auto life = worker::ProcessLife::parse(notes.read("life"));
  ASSERT_TRUE(life.has_value());
  test::wait_for([&] { return !worker::may_still_live(*life); }, "its end: " + life->to_string());
}

TEST(WorkerSpawn, RefusesFewerThanOneRank) {
  for (const int nprocs : {0, -1}) {
    try {
      static_cast<void>(spawn(nprocs, [](int) {}));
      ADD_FAILURE() << nprocs;
    } catch (const DistributedError& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), StartsWith("spawn: "));
    }
  }
}

TEST(WorkerSpawn, RefusesInAForkedChild) {
  worker::arm_fork_guard();
  const pid_t child = fork();
  if (child == 0) {
    try {
      static_cast<void>(spawn(1, [](int) {}));
    } catch (const DistributedError& error) {
      _exit(error.code() == ErrorCode::forked ? 42 : 1);
    }
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

// ---- its pieces

TEST(WorkerSpawn, ARanksEnvironmentHasTheContractAndNoInheritedOne) {
  const std::vector<std::string> environment = worker::rank_environment(
      {"HOME=/h", "RANK=7", "RANKS=kept", "TORCHELASTIC_RESTART_COUNT=3", "ROLE_NAME=x",
       "TORCHELASTIC_ERROR_FILE=/e", "MUSTER_RECORD_FD=100:1", "MASTER_PORT=1", "odd",
       "MUSTER_WORKER_SECRET=the launcher's"},
      1, 2, {4242, "\x01\xfe"}, {"call", {"boot", 1, 2, 3}},
      {{"OMP_NUM_THREADS", "2"}, {"MASTER_ADDR", "::1"}});
  EXPECT_THAT(environment,
              testing::UnorderedElementsAre(
                  "HOME=/h", "RANKS=kept", "odd", "RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2",
                  "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0", "MASTER_ADDR=::1", "MASTER_PORT=4242",
                  "MUSTER_WORKER_SECRET=01fe", "TORCHELASTIC_USE_AGENT_STORE=True",
                  "OMP_NUM_THREADS=2", "MUSTER_SPAWN=4:call10:boot/1/2/3"));
}

TEST(WorkerSpawn, AMarkSurvivesEncoding) {
  const worker::SpawnMark mark{"a:call 1", {"boot", 1, 2, 3}};
  const auto decoded = worker::SpawnMark::decode(mark.encode());
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->call, mark.call);
  EXPECT_EQ(decoded->parent, mark.parent);
  EXPECT_FALSE(worker::SpawnMark::decode("junk").has_value());
}

TEST(WorkerSpawn, AMarkOfAProcessThatIsNotTheParentIsIgnored) {
  // A program that a rank started inherits such a mark: its process lives but is not our parent.
  const worker::SpawnMark mark{to_this_test().name, worker::life_of_process(getpid())};
  setenv("MUSTER_SPAWN", mark.encode().c_str(), 1);
  const SpawnResult result = spawn(
      1, [](int) -> int { return 0; },
      [] {
        SpawnOptions options = to_this_test();
        options.arguments = {"--gtest_filter=none"};
        return options;
      }());
  unsetenv("MUSTER_SPAWN");
  EXPECT_EQ(result.ranks.size(), 1U);
}

TEST(WorkerSpawn, ArgumentsThatAreTooLongAreAnError) {
  const std::vector<std::string> too_much(3, std::string(size_t{1} << 20, 'x'));
  const auto started = worker::start_rank(too_much, {});
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, ErrorCode::system);
  EXPECT_EQ(started.error().message,
            "cannot start a rank: execve of /proc/self/exe failed: Argument list too long");
}

}  // namespace
}  // namespace muster

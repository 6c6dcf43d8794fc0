// How ranks meet: the store that rank 0 hosts, the meeting file, and the meeting itself with
// threads as ranks, real sockets on loopback and real files. Whole processes are in the live tests.
#include "muster/init.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fakes/free_port.h"
#include "tests/fakes/temp_tree.h"
#include "tests/unit/worker_lib/joining/ended_process.h"
#include "tests/wait_for.h"
#include "worker_lib/fields.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/joining/file_meeting_point.h"
#include "worker_lib/joining/gpu_count.h"
#include "worker_lib/joining/host_store.h"
#include "worker_lib/joining/meeting.h"
#include "worker_lib/joining/own_address.h"
#include "worker_lib/joining/rank_record.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

Deadline due_in(Duration time) {
  return std::chrono::steady_clock::now() + time;
}

// ---- the store of rank 0

TEST(WorkerHostStore, ServesThisProcessWithoutAPort) {
  const auto store = HostStore::serve({});
  ASSERT_TRUE(store.has_value());
  EXPECT_EQ((*store)->port(), 0);
  Outcome<StoreClient> one = (*store)->connect(seconds(10));
  Outcome<StoreClient> other = (*store)->connect(seconds(10));
  ASSERT_TRUE(one && other);
  ASSERT_TRUE(one->set("key", "value").has_value());
  EXPECT_EQ(other->get("key").value_or(""), "value");
}

TEST(WorkerHostStore, ServesOtherProcessesOnAFreePort) {
  const auto store = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(store.has_value());
  Result<StoreClient> client =
      StoreClient::connect({.host = "127.0.0.1", .port = (*store)->port()});
  ASSERT_TRUE(client.has_value()) << client.error().message;
  Outcome<StoreClient> own = (*store)->connect(seconds(10));
  ASSERT_TRUE(client->set("key", "value").has_value());
  EXPECT_EQ(own->get("key").value_or(""), "value");
}

// A rank that finds no nonce would take the store for another's and try the next address.
TEST(WorkerHostStore, HoldsItsNonceBeforeAnyClientCanConnect) {
  const auto store = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(store.has_value());
  Result<StoreClient> client =
      StoreClient::connect({.host = "127.0.0.1", .port = (*store)->port()});
  ASSERT_TRUE(client.has_value());
  ASSERT_EQ(client->check({std::string(kHostNonceKey)}).value_or(false), true);
  EXPECT_EQ(client->get(kHostNonceKey).value_or(""), std::to_string((*store)->nonce()));
}

TEST(WorkerHostStore, TwoStoresShareNothing) {
  const auto one = HostStore::serve({});
  const auto other = HostStore::serve({});
  ASSERT_TRUE(one && other);
  EXPECT_NE((*one)->nonce(), (*other)->nonce());
  ASSERT_TRUE((*one)->connect(seconds(10))->set("key", "value").has_value());
  EXPECT_EQ((*other)->connect(seconds(10))->check({"key"}).value_or(true), false);
}

TEST(WorkerHostStore, ATakenPortIsNamed) {
  const auto first = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(first.has_value());
  const uint16_t port = (*first)->port();
  const auto second = HostStore::serve({{IpAddress::loopback_v4(), port}});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::environment);
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(port)));
}

TEST(WorkerHostStore, ARetiredStoreServesItsConnectedClients) {
  const std::vector<SocketAddress> at{{IpAddress::loopback_v4(), free_port()}};
  auto store = HostStore::serve(at);
  ASSERT_TRUE(store.has_value()) << store.error().message;
  const uint64_t nonce = (*store)->nonce();
  Result<StoreClient> client = StoreClient::connect({.host = "127.0.0.1", .port = at[0].port});
  ASSERT_TRUE(client.has_value());
  HostStore::retire(std::move(*store));
  ASSERT_TRUE(client->set("key", "value").has_value());
  EXPECT_EQ(client->get("key").value_or(""), "value");
  // The next store at the same address is the same one.
  auto again = HostStore::serve(at);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ((*again)->nonce(), nonce);
}

TEST(WorkerHostStore, ARetiredStoreEndsWithItsLastConnection) {
  const std::vector<SocketAddress> at{{IpAddress::loopback_v4(), free_port()}};
  auto store = HostStore::serve(at);
  ASSERT_TRUE(store.has_value()) << store.error().message;
  auto client = std::make_unique<Result<StoreClient>>(
      StoreClient::connect({.host = "127.0.0.1", .port = at[0].port}));
  ASSERT_TRUE(client->has_value());
  HostStore::retire(std::move(*store));
  client.reset();
  const auto is_gone = [&] {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_storage raw{};
    const socklen_t length = at[0].to_sockaddr(raw);
    const bool gone = connect(fd, reinterpret_cast<const sockaddr*>(&raw), length) != 0;
    close(fd);
    return gone;
  };
  test::wait_for(is_gone, "the end of the listener");
}

// ---- meetings, with threads as ranks

Identity rank_of(int rank, int world_size, MeetingPoint point) {
  Identity self;
  self.rank = rank;
  self.world_size = world_size;
  self.meeting_point = std::move(point);
  return self;
}

// Returns every rank's outcome, by rank; `adjust` may change a rank's identity.
std::vector<Outcome<Met>> meet_all(int world_size, const MeetingPoint& point, Deadline deadline,
                                   const std::function<void(Identity&)>& adjust = {}) {
  std::vector<std::future<Outcome<Met>>> pending;
  for (int rank = 0; rank < world_size; ++rank) {
    Identity self = rank_of(rank, world_size, point);
    if (adjust) adjust(self);
    pending.push_back(std::async(std::launch::async,
                                 [self, deadline] { return meet(self, {.deadline = deadline}); }));
  }
  std::vector<Outcome<Met>> outcomes;
  for (auto& each : pending)
    outcomes.push_back(each.get());
  return outcomes;
}

void expect_whole_world(const std::vector<Outcome<Met>>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    ASSERT_TRUE(outcomes[rank].has_value()) << rank << ": " << outcomes[rank].error().message;
    const Members& world = outcomes[rank]->world;
    EXPECT_EQ(world.me, static_cast<int>(rank));
    ASSERT_EQ(world.peers.size(), outcomes.size());
    EXPECT_EQ(world.peers, outcomes[0]->world.peers);
    EXPECT_EQ(world.self().pid, getpid());
    EXPECT_EQ(world.self().node, node_identity());
    EXPECT_EQ(outcomes[rank]->access.prefix, outcomes[0]->access.prefix);
  }
}

// Releases the stores as Job does.
void retire_all(std::vector<Outcome<Met>>& outcomes) {
  for (Outcome<Met>& met : outcomes) {
    if (met && met->hosted) HostStore::retire(std::move(met->hosted));
  }
  outcomes.clear();
}

MeetAtAddress loopback_meeting() {
  return {"127.0.0.1", free_port(), false};
}

TEST(WorkerMeeting, AWorldOfOneOpensNoStore) {
  const Outcome<Met> met = meet(rank_of(0, 1, MeetNobody{}), {.deadline = due_in(seconds(1))});
  ASSERT_TRUE(met.has_value());
  EXPECT_EQ(met->world.size(), 1);
  EXPECT_EQ(met->world.self().rank, GlobalRank{0});
  EXPECT_FALSE(met->store.has_value());
  EXPECT_EQ(met->hosted, nullptr);
}

TEST(WorkerMeeting, RanksMeetAtAnAddressThatRankZeroServes) {
  for (const int world_size : {1, 2, 5, 16}) {
    std::vector<Outcome<Met>> outcomes =
        meet_all(world_size, loopback_meeting(), due_in(seconds(60)));
    expect_whole_world(outcomes);
    EXPECT_NE(outcomes[0]->hosted, nullptr);
    EXPECT_EQ(outcomes[0]->world[0].address, "127.0.0.1");
    retire_all(outcomes);
  }
}

Identity of_job(Identity self, const std::string& run_id) {
  self.run_id = run_id;
  return self;
}

TEST(WorkerMeeting, RefusesARankOfAnotherJobAndTheJobStillMeets) {
  const MeetAtAddress at = loopback_meeting();
  const auto join = [&](int rank, const std::string& job) {
    return meet(of_job(rank_of(rank, 2, at), job), {.deadline = due_in(seconds(60))});
  };
  auto zero = std::async(std::launch::async, join, 0, "A");
  const Outcome<Met> stranger = join(1, "B");
  ASSERT_FALSE(stranger.has_value());
  EXPECT_EQ(stranger.error().code, ErrorCode::environment);
  EXPECT_EQ(stranger.error().message,
            "the store at 127.0.0.1:" + std::to_string(at.port) +
                " serves job A, and this rank belongs to job B: give each job a port of its own");
  std::vector<Outcome<Met>> outcomes;
  Outcome<Met> one = join(1, "A");
  outcomes.push_back(zero.get());
  outcomes.push_back(std::move(one));
  expect_whole_world(outcomes);
  retire_all(outcomes);
}

TEST(WorkerMeeting, RanksWithAndWithoutAJobIdMeet) {
  for (const int bearer : {0, 1}) {
    std::vector<Outcome<Met>> outcomes =
        meet_all(3, loopback_meeting(), due_in(seconds(60)), [&](Identity& self) {
          if (self.rank == bearer) self.run_id = "A";
        });
    expect_whole_world(outcomes);
    retire_all(outcomes);
  }
}

TEST(WorkerMeeting, OneProcessMayHostSeveralJobsInTurn) {
  const MeetAtAddress at = loopback_meeting();
  for (const char* job : {"A", "B", "A"}) {
    std::vector<Outcome<Met>> outcomes =
        meet_all(2, at, due_in(seconds(60)), [&](Identity& self) { self.run_id = job; });
    expect_whole_world(outcomes);
    retire_all(outcomes);
  }
}

TEST(WorkerMeeting, RanksMeetAtAnAgentsStore) {
  const auto agent = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(agent.has_value());
  const MeetAtAddress at{"127.0.0.1", (*agent)->port(), true};
  std::vector<Outcome<Met>> outcomes = meet_all(4, at, due_in(seconds(60)));
  expect_whole_world(outcomes);
  EXPECT_EQ(outcomes[0]->hosted, nullptr);
}

TEST(WorkerMeeting, ConnectionsMadeLaterShareTheKeysOfTheMeeting) {
  std::vector<Outcome<Met>> outcomes = meet_all(2, loopback_meeting(), due_in(seconds(60)));
  expect_whole_world(outcomes);
  Outcome<StoreClient> zero = outcomes[0]->access.connect(due_in(seconds(10)));
  Outcome<StoreClient> one = outcomes[1]->access.connect(due_in(seconds(10)));
  ASSERT_TRUE(zero && one);
  ASSERT_TRUE(zero->set("key", "value").has_value());
  EXPECT_EQ(one->get("key").value_or(""), "value");
  EXPECT_EQ(outcomes[1]->store->get("key").value_or(""), "value");
  retire_all(outcomes);
}

TEST(WorkerMeeting, DoesNotWaitForALostStore) {
  std::vector<Outcome<Met>> outcomes = meet_all(2, loopback_meeting(), due_in(seconds(60)));
  expect_whole_world(outcomes);
  const StoreAccess zero = outcomes[0]->access;
  const StoreAccess one = outcomes[1]->access;
  outcomes.clear();
  const auto begun = std::chrono::steady_clock::now();
  const Outcome<StoreClient> remote = one.connect(due_in(seconds(3600)));
  ASSERT_FALSE(remote.has_value());
  EXPECT_EQ(remote.error().code, ErrorCode::rendezvous);
  EXPECT_THAT(remote.error().message, HasSubstr("is gone"));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(100));
  const Outcome<StoreClient> own = zero.connect(due_in(seconds(3600)));
  ASSERT_FALSE(own.has_value());
  EXPECT_EQ(own.error().code, ErrorCode::not_initialized);
}

// Checking each of them would take a minute.
TEST(WorkerMeeting, ATimeOutLimitsTheSearchForMillionsOfMissingRanks) {
  const auto begun = std::chrono::steady_clock::now();
  const Outcome<Met> met = meet(rank_of(0, 4'000'000, loopback_meeting()),
                                {.deadline = due_in(std::chrono::milliseconds(100))});
  ASSERT_FALSE(met.has_value());
  EXPECT_EQ(met.error().code, ErrorCode::timeout);
  EXPECT_THAT(met.error().message, AllOf(HasSubstr(" and perhaps some from rank "),
                                         HasSubstr(" of 4000000 did not join")));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(30));
}

TEST(WorkerMeeting, ReportsTheTimeOutIfTheStoreIsLostDuringTheSearch) {
  Outcome<Met> met = tl::unexpected(Failure{});
  // On a busy machine the store may be gone before the search begins.
  for (int attempt = 0; attempt < 5 && met.error().code != ErrorCode::timeout; ++attempt) {
    auto agent = HostStore::serve({{IpAddress::loopback_v4(), 0}});
    ASSERT_TRUE(agent.has_value());
    const MeetAtAddress at{"127.0.0.1", (*agent)->port(), true};
    const Deadline due = due_in(milliseconds(500));
    std::jthread end([&] {
      test::pause_until(due + milliseconds(200) * (attempt + 1), "the search has begun");
      agent->reset();
    });
    met = meet(rank_of(1, 4'000'000, at), {.deadline = due});
    ASSERT_FALSE(met.has_value());
  }
  EXPECT_EQ(met.error().code, ErrorCode::timeout) << met.error().message;
  EXPECT_THAT(met.error().message, HasSubstr(" of 4000000 did not join"));
}

// Both would wait for rank 1 for the whole timeout.
TEST(WorkerMeeting, RefusesASecondThreadThatJoins) {
  const MeetAtAddress at = loopback_meeting();
  const auto join = [&]() -> std::string {
    try {
      init_process_group({.backend = Backend::cpu,
                          .init_method = "tcp://127.0.0.1:" + std::to_string(at.port),
                          .rank = 0,
                          .world_size = 2,
                          .timeout = seconds(2)});
    } catch (const DistributedError& error) {
      return error.what();
    }
    return "joined";
  };
  auto first = std::async(std::launch::async, join);
  const std::string second = join();
  const std::vector<std::string> ends{first.get(), second};
  EXPECT_THAT(ends,
              UnorderedElementsAre(
                  HasSubstr("another thread of this process is already in this call: only one"),
                  HasSubstr("did not join within 2 s")));
}

TEST(WorkerMeeting, RanksMeetRepeatedlyAtOneAddress) {
  const MeetAtAddress at = loopback_meeting();
  constexpr int kCycles = 30;
  constexpr int kRanks = 3;
  std::vector<std::future<int>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&at, rank] {
      // Ranks do not wait between two cycles: a fast one meets the former store of a slow one.
      for (int cycle = 0; cycle < kCycles; ++cycle) {
        Outcome<Met> met = meet(rank_of(rank, kRanks, at), {.deadline = due_in(seconds(60))});
        if (!met) return cycle;
        if (met->hosted) HostStore::retire(std::move(met->hosted));
      }
      return kCycles;
    }));
  }
  for (auto& rank : ranks)
    EXPECT_EQ(rank.get(), kCycles);
  std::printf("%d cycles of %d ranks\n", kCycles, kRanks);
}

TEST(WorkerMeeting, RanksMeetRepeatedlyAtOneFile) {
  const TempTree folder;
  const MeetAtFile at{folder.root().string() + "/meeting", false};
  for (int cycle = 0; cycle < 5; ++cycle) {
    std::vector<Outcome<Met>> outcomes = meet_all(3, at, due_in(seconds(60)));
    expect_whole_world(outcomes);
    EXPECT_FALSE(std::filesystem::exists(at.path)) << "removed once all have joined";
    retire_all(outcomes);
  }
}

TEST(WorkerMeeting, RanksOfOneNodeMeetAtADerivedFile) {
  const TempTree folder;
  const MeetAtFile at{folder.root().string() + "/own/job", true};
  std::vector<Outcome<Met>> outcomes = meet_all(4, at, due_in(seconds(60)));
  expect_whole_world(outcomes);
  EXPECT_EQ(outcomes[0]->world[0].address, "127.0.0.1");
  retire_all(outcomes);
}

TEST(WorkerMeeting, RanksWaitForAStaleFileToBeReplaced) {
  const TempTree folder;
  const MeetAtFile at{folder.root().string() + "/meeting", false};
  MeetingRecord stale;
  stale.nonce = 7;
  stale.port = free_port();
  stale.addresses = {"127.0.0.1"};
  stale.life = life_of_process(getpid());
  // On a machine that we cannot inspect, so only its silence shows that it is gone.
  stale.life.boot = "another machine";
  stale.host = "node9";
  std::ofstream(at.path) << stale.encode();
  auto early = std::async(std::launch::async, [&] {
    return meet(rank_of(1, 2, at), {.deadline = due_in(seconds(60))});
  });
  Outcome<Met> zero = meet(rank_of(0, 2, at), {.deadline = due_in(seconds(60))});
  ASSERT_TRUE(zero.has_value()) << zero.error().message;
  const Outcome<Met> one = early.get();
  ASSERT_TRUE(one.has_value()) << one.error().message;
  EXPECT_EQ(one->world.peers, zero->world.peers);
}

TEST(WorkerMeeting, AnotherStoreAtTheRecordedPortIsNotTakenForRankZero) {
  const TempTree folder;
  const MeetAtFile at{folder.root().string() + "/meeting", false};
  const auto stranger = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(stranger.has_value());
  ASSERT_TRUE((*stranger)->connect(seconds(10))->set("muster/host_nonce", "8").has_value());
  MeetingRecord stale;
  stale.nonce = 7;
  stale.port = (*stranger)->port();
  stale.addresses = {"127.0.0.1"};
  stale.life = life_of_process(getpid());
  stale.life.boot = "another machine";
  stale.host = "node9";
  std::ofstream(at.path) << stale.encode();
  const Outcome<Met> met = meet(rank_of(1, 2, at), {.deadline = due_in(milliseconds(300))});
  ASSERT_FALSE(met.has_value());
  EXPECT_EQ(met.error().code, ErrorCode::timeout);
  EXPECT_THAT(met.error().message, HasSubstr("its record names port"));
  EXPECT_THAT(met.error().message, HasSubstr("node9"));
}

TEST(WorkerMeeting, ATimeoutNamesAbsentRanks) {
  const MeetAtAddress at = loopback_meeting();
  // Only ranks 0 and 2 of 5 join.
  auto two = std::async(std::launch::async,
                        [&] { return meet(rank_of(2, 5, at), {.deadline = due_in(seconds(2))}); });
  const Outcome<Met> zero = meet(rank_of(0, 5, at), {.deadline = due_in(seconds(2))});
  const Outcome<Met> other = two.get();
  for (const Outcome<Met>* met : {&zero, &other}) {
    ASSERT_FALSE(met->has_value());
    EXPECT_EQ(met->error().code, ErrorCode::timeout) << met->error().message;
    EXPECT_THAT(met->error().message,
                StartsWith("ranks 1, 3 and 4 of 5 did not join within 2 s: "));
    EXPECT_EQ(met->error().ranks,
              (std::vector<GlobalRank>{GlobalRank{1}, GlobalRank{3}, GlobalRank{4}}));
  }
}

TEST(WorkerMeeting, ATimeoutNamesRankZeroIfItsStoreIsMissing) {
  const MeetAtAddress at = loopback_meeting();
  Outcome<Met> met = meet(rank_of(1, 2, at), {.deadline = due_in(milliseconds(200))});
  ASSERT_FALSE(met.has_value());
  EXPECT_EQ(met.error().code, ErrorCode::timeout);
  EXPECT_EQ(met.error().ranks, std::vector<GlobalRank>{GlobalRank{0}});
  EXPECT_THAT(met.error().message,
              StartsWith("rank 0 did not join: cannot reach the store 127.0.0.1:"));
  const TempTree folder;
  met = meet(rank_of(1, 2, MeetAtFile{folder.root().string() + "/meeting", false}),
             {.deadline = due_in(milliseconds(50))});
  ASSERT_FALSE(met.has_value());
  EXPECT_EQ(met.error().ranks, std::vector<GlobalRank>{GlobalRank{0}});
  EXPECT_THAT(met.error().message, StartsWith("rank 0 did not join at the meeting file "));
}

// ---- reports of a long wait

// Collects the lines of all ranks, and runs a function at the first.
class Listener {
 public:
  explicit Listener(std::function<void()> at_first) : at_first_(std::move(at_first)) {}

  MeetingOptions options(milliseconds patience = milliseconds(50)) {
    return {.deadline = due_in(seconds(60)), .patience = patience, .say = [this](const auto& line) {
              const std::lock_guard lock(mutex_);
              lines_.push_back(line);
              if (lines_.size() == 1) at_first_();
            }};
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  const std::function<void()> at_first_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST(WorkerMeetingNotice, OneRankPerNodeReportsTheAbsentRanksOnce) {
  const MeetAtAddress at = loopback_meeting();
  constexpr int kRanks = 5;
  std::vector<std::future<Outcome<Met>>> pending(kRanks);
  std::promise<void> said;
  Listener listener([&] { said.set_value(); });
  const auto come = [&](int rank) {
    pending[static_cast<size_t>(rank)] =
        std::async(std::launch::async, [self = rank_of(rank, kRanks, at), &listener] {
          return meet(self, listener.options(milliseconds(300)));
        });
  };
  for (int rank = 0; rank < kRanks - 1; ++rank)
    come(rank);
  said.get_future().wait();
  come(kRanks - 1);
  std::vector<Outcome<Met>> outcomes;
  for (auto& each : pending)
    outcomes.push_back(each.get());
  expect_whole_world(outcomes);
  EXPECT_THAT(listener.lines(),
              ElementsAre(MatchesRegex(
                  "muster: rank [0-3] has waited 300 ms for rank(s .*and)? 4 of 5: check that (it "
                  "is|they are) running, with the same meeting point and WORLD_SIZE")));
  retire_all(outcomes);
}

TEST(WorkerMeetingNotice, ARankThatCannotReachRankZeroSaysWhere) {
  const MeetAtAddress at = loopback_meeting();
  const TempTree folder;
  const MeetAtFile file{folder.root().string() + "/meeting", false};
  for (const MeetingPoint& point : {MeetingPoint(at), MeetingPoint(file)}) {
    std::vector<Outcome<Met>> outcomes;
    std::future<Outcome<Met>> zero;
    Listener listener([&] {
      zero = std::async(std::launch::async, [&] {
        return meet(rank_of(0, 2, point), {.deadline = due_in(seconds(60))});
      });
    });
    Outcome<Met> one = meet(rank_of(1, 2, point), listener.options());
    outcomes.push_back(zero.get());
    outcomes.push_back(std::move(one));
    expect_whole_world(outcomes);
    const std::string whom =
        std::holds_alternative<MeetAtFile>(point)
            ? "rank 0 to join at the meeting file " + file.path
            : fmt::format("rank 0 at 127.0.0.1:{}, which it cannot reach", at.port);
    EXPECT_THAT(listener.lines(),
                ElementsAre(StartsWith("muster: rank 1 has waited 50 ms for " + whom)));
    retire_all(outcomes);
  }
}

TEST(WorkerMeetingNotice, OnlyTheFirstLaunchedRanksOfANodeReport) {
  Listener listener([] {});
  MeetingOptions options = listener.options(milliseconds(10));
  options.deadline = due_in(milliseconds(100));
  Identity third = rank_of(2, 3, loopback_meeting());
  third.local_rank = 2;
  third.place_told.local_rank = true;
  EXPECT_FALSE(meet(third, options).has_value());
  EXPECT_THAT(listener.lines(), ElementsAre());
}

TEST(WorkerMeeting, AMissingAgentStoreIsARendezvousFailure) {
  MeetAtAddress at = loopback_meeting();
  at.agent_serves = true;
  const Outcome<Met> met = meet(rank_of(0, 2, at), {.deadline = due_in(milliseconds(100))});
  ASSERT_FALSE(met.has_value());
  EXPECT_EQ(met.error().code, ErrorCode::rendezvous);
}

TEST(WorkerMeeting, ATakenPortFailsRankZeroAtOnce) {
  const auto other = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(other.has_value());
  const Outcome<Met> met = meet(rank_of(0, 2, MeetAtAddress{"127.0.0.1", (*other)->port(), false}),
                                {.deadline = due_in(seconds(60))});
  ASSERT_FALSE(met.has_value());
  EXPECT_EQ(met.error().code, ErrorCode::environment);
}

TEST(WorkerMeeting, RefusesDifferentWorldSizesAtOnce) {
  const auto agent = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(agent.has_value());
  const MeetAtAddress at{"127.0.0.1", (*agent)->port(), true};
  const std::vector<Outcome<Met>> outcomes =
      meet_all(3, at, due_in(seconds(60)), [](Identity& self) {
        if (self.rank == 2) self.world_size = 4;
      });
  for (const Outcome<Met>& met : outcomes) {
    ASSERT_FALSE(met.has_value());
    EXPECT_EQ(met.error().code, ErrorCode::environment) << met.error().message;
    EXPECT_THAT(met.error().message, HasSubstr("WORLD_SIZE must be the same for all"));
  }
}

TEST(WorkerMeeting, ARankThatGaveUpIsNotCounted) {
  const auto agent = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(agent.has_value());
  const MeetAtAddress at{"127.0.0.1", (*agent)->port(), true};
  const Outcome<Met> early = meet(rank_of(1, 2, at), {.deadline = due_in(milliseconds(50))});
  ASSERT_FALSE(early.has_value());
  EXPECT_THAT(early.error().message, StartsWith("rank 0 of 2 did not join"));
  // Rank 0 arrives after that, and rank 1 tries again.
  std::vector<Outcome<Met>> outcomes = meet_all(2, at, due_in(seconds(60)));
  expect_whole_world(outcomes);
  EXPECT_EQ(outcomes[0]->access.prefix, "muster/0/2");
}

TEST(WorkerMeeting, RestartsDoNotMeetEarlierRanks) {
  const auto agent = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(agent.has_value());
  const MeetAtAddress at{"127.0.0.1", (*agent)->port(), true};
  for (const int restart : {0, 1}) {
    std::vector<Outcome<Met>> outcomes =
        meet_all(2, at, due_in(seconds(60)), [&](Identity& self) { self.restart_count = restart; });
    expect_whole_world(outcomes);
    EXPECT_EQ(outcomes[0]->access.prefix, "muster/" + std::to_string(restart) + "/1");
  }
}

// The record of `rank` as the process `life` on host9.
std::string record_of(int rank, const ProcessLife& life) {
  RankRecord record = own_record(rank, "127.0.0.1");
  record.peer.host = "host9";
  record.peer.pid = life.pid;
  record.life = life;
  return record.encode();
}

TEST(WorkerMeeting, RefusesASecondLiveProcessWithTheSameRank) {
  const auto agent = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(agent.has_value());
  const MeetAtAddress at{"127.0.0.1", (*agent)->port(), true};
  // The first rank 1 has joined and lives as long as this test.
  const pid_t other = fork();
  if (other == 0) {
    pause();
    _exit(0);
  }
  Outcome<StoreClient> store = (*agent)->connect(seconds(10));
  ASSERT_TRUE(store.has_value());
  StoreClient keys = store->with_prefix("muster/0");
  ASSERT_TRUE(keys.set("owner/1", record_of(1, life_of_process(other))).has_value());
  const Outcome<Met> met = meet(rank_of(1, 2, at), {.deadline = due_in(seconds(60))});
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  ASSERT_FALSE(met.has_value());
  EXPECT_EQ(met.error().code, ErrorCode::environment);
  EXPECT_EQ(met.error().message,
            "rank 1 (host9, pid " + std::to_string(other) +
                ") has joined this job already and is still there: two processes were given the "
                "same rank");
  EXPECT_EQ(keys.check({"joins/1"}), false) << "the second leaves no trace";
}

TEST(WorkerMeeting, ANewProcessMayTakeTheRankOfAnEndedOne) {
  const auto agent = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(agent.has_value());
  const MeetAtAddress at{"127.0.0.1", (*agent)->port(), true};
  Outcome<StoreClient> store = (*agent)->connect(seconds(10));
  ASSERT_TRUE(store.has_value());
  StoreClient keys = store->with_prefix("muster/0");
  ProcessLife unseen = life_of_process(getpid());
  unseen.boot = "another machine";
  ASSERT_TRUE(keys.set("owner/0", record_of(0, ended_process())).has_value());
  ASSERT_TRUE(keys.set("owner/1", record_of(1, unseen)).has_value());
  ASSERT_TRUE(keys.set("owner/2", "of another version").has_value());
  std::vector<Outcome<Met>> outcomes = meet_all(3, at, due_in(seconds(60)));
  expect_whole_world(outcomes);
}

TEST(WorkerMeeting, ATimeoutNamesTheEarlierProcessWithTheSameRank) {
  const auto agent = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(agent.has_value());
  const MeetAtAddress at{"127.0.0.1", (*agent)->port(), true};
  Outcome<StoreClient> store = (*agent)->connect(seconds(10));
  ASSERT_TRUE(store.has_value());
  ProcessLife unseen = life_of_process(getpid());
  unseen.boot = "another machine";
  unseen.pid = 4711;
  ASSERT_TRUE(store->with_prefix("muster/0").set("owner/1", record_of(1, unseen)).has_value());
  const Outcome<Met> met = meet(rank_of(1, 2, at), {.deadline = due_in(milliseconds(100))});
  ASSERT_FALSE(met.has_value());
  EXPECT_THAT(
      met.error().message,
      HasSubstr(
          "(rank 1 (host9, pid 4711) had joined before: were two processes given the same rank?)"));
}

TEST(WorkerMeeting, NamesARankOfAnotherVersion) {
  const auto agent = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(agent.has_value());
  const MeetAtAddress at{"127.0.0.1", (*agent)->port(), true};
  Outcome<StoreClient> store = (*agent)->connect(seconds(10));
  ASSERT_TRUE(store.has_value());
  StoreClient round = store->with_prefix("muster/0").with_prefix("1");
  ASSERT_TRUE(round.set("rank/1", encode_fields({"muster 2", "1"})).has_value());
  ASSERT_TRUE(round.add("came", 1).has_value());
  const Outcome<Met> met = meet(rank_of(0, 2, at), {.deadline = due_in(seconds(60))});
  ASSERT_FALSE(met.has_value());
  EXPECT_THAT(met.error().message, StartsWith("rank 1 speaks another version of muster"));
}

}  // namespace
}  // namespace muster::worker

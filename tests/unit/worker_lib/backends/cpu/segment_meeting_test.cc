// How ranks come to share a segment: threads as ranks with a store, unknown processes at the
// socket, and a process that is killed while it uses the memory.
#include <atomic>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/rendezvous/store/store_server_harness.h"
#include "tests/unit/worker_lib/backends/cpu/shm_world.h"
#include "worker_lib/backends/cpu/shm_meeting.h"

namespace muster::worker {
namespace {

using shm_test::members_of;
using shm_test::said;
using std::chrono::milliseconds;

using MetSegment = Outcome<std::shared_ptr<Segment>>;

StoreClient client_of(const store_test::RunningStore& store) {
  auto client = StoreClient::connect({.host = "127.0.0.1", .port = store.port()});
  if (!client) std::abort();
  return client->with_prefix("group");
}

MetSegment meet_as(int rank, int ranks, const store_test::RunningStore& store, Deadline deadline,
                   Interrupted interrupted = {}) {
  const Members local = members_of(ranks, rank);
  GroupSetup setup{.name = "group",
                   .members = local,
                   .store = client_of(store),
                   .deadline = deadline,
                   .interrupted = std::move(interrupted)};
  return meet_in_segment(setup, local, {.ranks = ranks, .extra_bytes = 4096});
}

std::string said_of(const MetSegment& met) {
  return said(met ? Outcome<>() : tl::unexpected(met.error()));
}

// Counts the kinds that a meeting opens: memory and Unix sockets.
int open_descriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    int domain = 0;
    socklen_t size = sizeof domain;
    const int fd = std::stoi(entry.path().filename());
    const bool is_unix =
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
    count += is_unix || target.find("memfd:muster") != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST(SegmentMeeting, AllRanksGetTheSameMemoryAndNoDescriptorStaysOpen) {
  const store_test::RunningStore store;
  const int before = open_descriptors();
  std::vector<MetSegment> met(5);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 5; ++rank) {
    threads.emplace_back(
        [&, rank] { met[static_cast<size_t>(rank)] = meet_as(rank, 5, store, soon()); });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (size_t rank = 0; rank < met.size(); ++rank) {
    ASSERT_EQ(said_of(met[rank]), "done");
    (*met[rank])->extra()[rank] = static_cast<std::byte>(rank + 1);
  }
  for (const MetSegment& one : met) {
    for (size_t rank = 0; rank < met.size(); ++rank) {
      EXPECT_EQ((*one)->extra()[rank], static_cast<std::byte>(rank + 1));
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SegmentMeeting, TheFirstRankNamesRanksThatDoNotArrive) {
  const store_test::RunningStore store;
  std::thread second([&] { EXPECT_EQ(said_of(meet_as(1, 4, store, soon())), "done"); });
  EXPECT_THAT(
      said_of(meet_as(0, 4, store, after(milliseconds{2000}))),
      testing::StartsWith("timeout [20 30]: rank 20 (host, pid 4002) and rank 30 (host, pid "
                          "4003) did not arrive in time to share this node's memory; "));
  second.join();
}

TEST(SegmentMeeting, OtherRanksNameAFirstRankThatDoesNotArrive) {
  const store_test::RunningStore store;
  EXPECT_THAT(said_of(meet_as(1, 2, store, after(milliseconds{200}))),
              testing::StartsWith("timeout [0]: rank 0 (host, pid 4000) did not arrive in time"));
}

TEST(SegmentMeeting, EndsWhenAPeerDies) {
  const store_test::RunningStore store;
  const Failure died{ErrorCode::peer_failed, "rank 10 (host, pid 4001) died", {GlobalRank{10}}};
  std::atomic<bool> dead{false};
  const Interrupted interrupted = [&]() -> std::optional<Failure> {
    if (!dead.exchange(true)) return std::nullopt;
    return died;
  };
  EXPECT_EQ(said_of(meet_as(0, 2, store, soon(), interrupted)),
            "peer_failed [10]: rank 10 (host, pid 4001) died");
  dead = false;
  EXPECT_EQ(said_of(meet_as(1, 2, store_test::RunningStore(), soon(), interrupted)),
            "peer_failed [10]: rank 10 (host, pid 4001) died");
}

// ---- at the socket

int connected_to(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  return fd;
}

TEST(SegmentMeeting, GivesNothingToUnknownProcessesAtTheSocket) {
  FdGiver giver = *FdGiver::listen();
  const std::shared_ptr<Segment> segment = *Segment::create({.ranks = 2});
  std::vector<int> strangers;
  for (const int32_t claim : {-1, 2, 0, 1 << 30}) {
    strangers.push_back(connected_to(giver.name()));
    ASSERT_EQ(send(strangers.back(), &claim, sizeof claim, 0), 4);
  }
  strangers.push_back(connected_to(giver.name()));
  ASSERT_EQ(send(strangers.back(), "xyz", 3, 0), 3);
  strangers.push_back(connected_to(giver.name()));
  close(strangers.back());
  strangers.pop_back();
  std::thread rightful([&] {
    const Outcome<UniqueFd> fd = take_fd(giver.name(), members_of(2, 1), soon(), {});
    ASSERT_TRUE(fd.has_value()) << fd.error().message;
    EXPECT_TRUE(Segment::open(fd->get(), {.ranks = 2}).has_value());
  });
  EXPECT_EQ(said(giver.give(segment->fd(), members_of(2), soon(), {})), "done");
  rightful.join();
  for (const int stranger : strangers) {
    char byte = 0;
    EXPECT_LE(recv(stranger, &byte, 1, MSG_DONTWAIT), 0);
    close(stranger);
  }
}

std::atomic<int> signals_taken;

// A signal handler of the program runs repeatedly while a connected rank has sent nothing yet.
TEST(SegmentMeeting, ToleratesSignalsWhileARankIsSilent) {
  struct sigaction counting{};
  struct sigaction before{};
  counting.sa_handler = [](int) { ++signals_taken; };
  counting.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &counting, &before), 0);
  FdGiver giver = *FdGiver::listen();
  const std::shared_ptr<Segment> segment = *Segment::create({.ranks = 2});
  std::thread giving(
      [&] { EXPECT_EQ(said(giver.give(segment->fd(), members_of(2), soon(), {})), "done"); });
  const int taker = connected_to(giver.name());
  for (int sent = 0; sent < 50; ++sent) {
    const int taken = signals_taken;
    pthread_kill(giving.native_handle(), SIGUSR1);
    while (signals_taken == taken)
      std::this_thread::yield();
  }
  const int32_t index = 1;
  char byte = 0;
  EXPECT_EQ(send(taker, &index, sizeof index, MSG_NOSIGNAL), 4);
  EXPECT_EQ(recv(taker, &byte, 1, 0), 1);
  close(taker);
  if (testing::Test::HasFailure()) {  // Lets the giving thread end.
    const Outcome<UniqueFd> fd = take_fd(giver.name(), members_of(2, 1), soon(), {});
    EXPECT_TRUE(fd.has_value());
  }
  giving.join();
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(SegmentMeeting, NamesTheRankThatCannotBeReached) {
  const Outcome<UniqueFd> fd = take_fd("muster-nobody-is-here", members_of(2, 1), soon(), {});
  ASSERT_FALSE(fd.has_value());
  EXPECT_EQ(fd.error().ranks, std::vector<GlobalRank>{GlobalRank{0}});
  EXPECT_THAT(fd.error().message,
              testing::StartsWith("cannot reach rank 0 (host, pid 4000) on this "
                                  "node to share its memory: "));
}

TEST(SegmentMeeting, ReportsASocketThatClosesWithoutADescriptor) {
  std::optional<FdGiver> giver = *FdGiver::listen();
  const std::string name = giver->name();
  std::thread closer([&] {
    const Outcome<> given = giver->give(0, members_of(2), soon(), []() -> std::optional<Failure> {
      return Failure{ErrorCode::aborted, "abort() was called"};
    });
    EXPECT_EQ(given.error().code, ErrorCode::aborted);
    giver.reset();
  });
  closer.join();
  const Outcome<UniqueFd> fd = take_fd(name, members_of(2, 1), soon(), {});
  ASSERT_FALSE(fd.has_value());
  EXPECT_EQ(fd.error().code, ErrorCode::peer_failed);
}

// ---- processes

[[noreturn]] void live_until_killed(const std::string& name) {
  const Outcome<UniqueFd> fd = take_fd(name, members_of(2, 1), soon(), {});
  if (!fd) _exit(3);
  const MetSegment segment = Segment::open(fd->get(), {.ranks = 2});
  if (!segment) _exit(4);
  ShmGroup group(*segment, members_of(2, 1));
  while (group.run({.kind = OpKind::barrier}, soon())) {
  }
  _exit(5);
}

TEST(SegmentMeeting, AKilledProcessIsNamedByATimeout) {
  FdGiver giver = *FdGiver::listen();
  const std::shared_ptr<Segment> segment = *Segment::create({.ranks = 2});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) live_until_killed(giver.name());
  ASSERT_EQ(said(giver.give(segment->fd(), members_of(2), soon(), {})), "done");
  ShmGroup group(segment, members_of(2));
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_EQ(said(group.run({.kind = OpKind::barrier}, soon())), "done");
  }
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  Outcome<> outcome;
  while (outcome)
    outcome = group.run({.kind = OpKind::barrier}, after(milliseconds{300}));
  EXPECT_THAT(said(outcome),
              testing::StartsWith("timeout [10]: rank 10 (host, pid 4001) did not arrive"));
}

}  // namespace
}  // namespace muster::worker

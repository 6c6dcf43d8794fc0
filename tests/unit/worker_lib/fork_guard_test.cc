#include "worker_lib/fork_guard.h"

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
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fakes/temp_tree.h"
#include "worker_lib/fields.h"
#include "worker_lib/joining/file_meeting_point.h"
#include "worker_lib/joining/gpu_count.h"
#include "worker_lib/joining/host_store.h"
#include "worker_lib/joining/meeting.h"
#include "worker_lib/joining/own_address.h"
#include "worker_lib/joining/rank_record.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {
namespace {

TEST(WorkerForkGuard, MarksTheChildAndSeversRegisteredDescriptors) {
  arm_fork_guard();
  std::array<int, 2> watched{};
  std::array<int, 2> other{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, watched.data()), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other.data()), 0);
  sever_in_forked_child(watched[0]);
  sever_in_forked_child(other[0]);
  forget_severed(other[0]);
  const pid_t child = fork();
  if (child == 0) {
    struct stat info{};
    const bool is_null = fstat(watched[0], &info) == 0 && S_ISCHR(info.st_mode);
    const bool is_kept = fstat(other[0], &info) == 0 && S_ISSOCK(info.st_mode);
    if (!is_null || !is_kept || !in_forked_child()) _exit(1);
    pause();
    _exit(0);
  }
  EXPECT_FALSE(in_forked_child());
  // The child lives but holds no copy, so the end of file arrives.
  close(watched[0]);
  char byte = 0;
  EXPECT_EQ(read(watched[1], &byte, 1), 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, WNOHANG), 0) << "the child found something else: " << status;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  forget_severed(watched[0]);
  for (const int fd : {watched[1], other[0], other[1]})
    close(fd);
}

TEST(WorkerForkGuard, SeveredDescriptorsCloseOnExec) {
  arm_fork_guard();
  std::array<int, 2> watched{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, watched.data()), 0);
  sever_in_forked_child(watched[0]);
  const std::string gone = "test ! -e /proc/self/fd/" + std::to_string(watched[0]);
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", gone.c_str(), nullptr);
    _exit(2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "descriptor " << watched[0] << " survived the exec";
  forget_severed(watched[0]);
  for (const int fd : watched)
    close(fd);
}

TEST(WorkerForkGuard, IgnoresInvalidDescriptors) {
  sever_in_forked_child(-1);
  sever_in_forked_child(65536);
  forget_severed(-1);
  forget_severed(1 << 30);
}

std::vector<int> open_sockets() {
  std::vector<int> found;
  struct stat info{};
  for (int fd = 0; fd < 1024; ++fd) {
    if (fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode)) found.push_back(fd);
  }
  return found;
}

// Otherwise the job's port stays taken for as long as a child of its rank 0 lives.
TEST(WorkerForkGuard, AChildHoldsNoSocketOfAStoreOrItsClients) {
  arm_fork_guard();
  const std::vector<int> before = open_sockets();
  auto store = HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(store.has_value());
  const uint16_t port = (*store)->port();
  Result<StoreClient> client =
      StoreClient::connect({.host = "127.0.0.1", .port = port, .timeout = std::chrono::seconds(5)});
  Outcome<StoreClient> inside = (*store)->connect(std::chrono::seconds(5));
  ASSERT_TRUE(client && inside && inside->ping(1));
  const std::vector<int> with_store = open_sockets();
  const pid_t child = fork();
  if (child == 0) {
    if (open_sockets() != before) _exit(1);
    pause();
    _exit(0);
  }
  inside = failed(ErrorCode::system, "not needed any more");
  store->reset();
  const Result<uint32_t> echo = client->ping(1);
  ASSERT_FALSE(echo.has_value());
  EXPECT_THAT(echo.error().message,
              testing::AnyOf(testing::HasSubstr("the server closed the connection"),
                             testing::HasSubstr("Connection reset by peer")));
  EXPECT_TRUE(HostStore::serve({{IpAddress::loopback_v4(), port}}).has_value());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, WNOHANG), 0)
      << "the child holds sockets of the store: " << status;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::printf("%zu sockets\n", with_store.size() - before.size());
  EXPECT_EQ(with_store.size() - before.size(), 5U);
}

TEST(WorkerForkGuard, AChildCanDestroyAStoreOfItsParent) {
  arm_fork_guard();
  auto store = HostStore::serve({});
  ASSERT_TRUE(store.has_value());
  const pid_t child = fork();
  if (child == 0) {
    store->reset();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace muster::worker

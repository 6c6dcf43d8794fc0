// Descriptors for the end of a process, for signals and for events: the kernel's own and, if these
// tests run under fakes/refuse_calls, their substitutes.
#include <csignal>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/signal_fd.h"
#include "agent/process/spawn.h"
#include "rendezvous/base/event_fd.h"
#include "rendezvous/base/process_end.h"

namespace muster {
namespace {

constexpr int kNow = 0;
constexpr int kLongMs = 20'000;

int readable_within(int fd, int ms) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, ms) == 1 && (entry.revents & POLLIN) != 0;
}

pid_t sleeping_child() {
  const pid_t child = fork();
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    while (true)
      pause();
  }
  return child;
}

TEST(ProcessEnd, IsReadableOnceAChildHasEndedAndAfterItWasReaped) {
  const pid_t child = sleeping_child();
  const UniqueFd end = open_process_end(child);
  ASSERT_TRUE(end);
  EXPECT_FALSE(readable_within(end.get(), kNow));
  EXPECT_TRUE(signal_by_end(end, child, SIGKILL));
  EXPECT_TRUE(readable_within(end.get(), kLongMs));
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(readable_within(end.get(), kNow));
}

TEST(ProcessEnd, IsReadableForAProcessThatIsNoChild) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const pid_t grandchild = sleeping_child();
    [[maybe_unused]] const ssize_t told = write(ends[1], &grandchild, sizeof grandchild);
    waitpid(grandchild, nullptr, 0);
    _exit(0);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(read(ends[0], &grandchild, sizeof grandchild), ssize_t{sizeof grandchild});
  const UniqueFd end = open_process_end(grandchild);
  ASSERT_TRUE(end);
  EXPECT_FALSE(readable_within(end.get(), 50));
  kill(grandchild, SIGKILL);
  EXPECT_TRUE(readable_within(end.get(), kLongMs));
  waitpid(parent, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(ProcessEnd, IsReadableOrMissingForAReapedProcess) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const UniqueFd end = open_process_end(child);
  EXPECT_TRUE(!end || readable_within(end.get(), kLongMs));
}

TEST(SignalFd, GivesEachSignalWithItsSender) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  sigaddset(&signals, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const UniqueFd fd = open_signal_fd(signals, SFD_NONBLOCK);
  ASSERT_TRUE(fd);
  EXPECT_FALSE(readable_within(fd.get(), kNow));
  kill(getpid(), SIGUSR1);
  ASSERT_TRUE(readable_within(fd.get(), kLongMs));
  signalfd_siginfo info{};
  ASSERT_EQ(read(fd.get(), &info, sizeof info), ssize_t{sizeof info});
  EXPECT_EQ(info.ssi_signo, static_cast<uint32_t>(SIGUSR1));
  EXPECT_EQ(info.ssi_pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(info.ssi_code, SI_USER);
  EXPECT_LT(read(fd.get(), &info, sizeof info), 0);  // Does not block.
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_TRUE(readable_within(fd.get(), kLongMs));
  ASSERT_EQ(read(fd.get(), &info, sizeof info), ssize_t{sizeof info});
  EXPECT_EQ(info.ssi_signo, static_cast<uint32_t>(SIGCHLD));
  EXPECT_EQ(info.ssi_pid, static_cast<uint32_t>(child));
  waitpid(child, nullptr, 0);
}

TEST(EventFd, IsReadableFromTheFirstEventUntilItIsDrained) {
  const UniqueFd event = open_event_fd();
  ASSERT_TRUE(event);
  EXPECT_FALSE(readable_within(event.get(), kNow));
  for (int i = 0; i < 100'000; ++i)  // More than a pipe holds.
    raise_event(event.get());
  EXPECT_TRUE(readable_within(event.get(), kNow));
  drain_event(event.get());
  EXPECT_FALSE(readable_within(event.get(), kNow));
  raise_event(event.get());
  EXPECT_TRUE(readable_within(event.get(), kNow));
}

TEST(CloseDescriptors, ClosesARangeAndNothingElse) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int fd : {20, 21, 600, 900})
      dup2(STDERR_FILENO, fd);
    close_descriptors(21, 600);
    const bool right = fcntl(20, F_GETFD) >= 0 && fcntl(21, F_GETFD) < 0 &&
                       fcntl(600, F_GETFD) < 0 && fcntl(900, F_GETFD) >= 0;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace muster

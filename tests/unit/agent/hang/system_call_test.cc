#include "agent/hang/system_call.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A line of /proc/PID/syscall.
std::string line(int number, std::array<uint64_t, 6> arguments) {
  std::string text = std::to_string(number);
  for (const uint64_t argument : arguments)
    text += fmt::format(" {:#x}", argument);
  return text + " 0x7ffca06f6bf7 0x7f7a879162ec\n";
}

SystemCall parsed(int number, std::array<uint64_t, 6> arguments = {}) {
  return parse_system_call(line(number, arguments)).value();
}

TEST(SystemCall, AWaitForADescriptorNamesIt) {
  const SystemCall call = parsed(SYS_read, {5, 0x7ffc, 4096});
  EXPECT_EQ(
      call,
      (SystemCall{
          .is_known = true, .name = "read", .waits_for = WaitsFor::descriptor, .descriptor = 5}));
  EXPECT_EQ(describe(call, "pipe:[1234]"), "read() of a pipe (descriptor 5)");
  EXPECT_EQ(describe(call, "socket:[77]"), "read() of a socket (descriptor 5)");
  EXPECT_EQ(describe(call, "/dev/pts/3"), "read() of the terminal /dev/pts/3 (descriptor 5)");
  EXPECT_EQ(describe(call, "/data/train.bin"), "read() of /data/train.bin (descriptor 5)");
  EXPECT_EQ(describe(call, "/data/\x1b[31mred\n"), "read() of /data/red (descriptor 5)");
  EXPECT_EQ(describe(call, ""), "read() of descriptor 5");
  EXPECT_EQ(describe(parsed(SYS_flock, {3}), "/run/lock"), "flock() of /run/lock (descriptor 3)");
}

TEST(SystemCall, ATimeOutPassedByValueIsKnown) {
  const SystemCall call = parsed(SYS_epoll_pwait, {4, 0x7ffc, 8, 5000});
  EXPECT_TRUE(call.has_timer);
  EXPECT_EQ(call.timeout, seconds(5));
  EXPECT_EQ(describe(call, ""), "epoll_pwait() with a time-out of 5.0 s");
  const SystemCall forever = parsed(SYS_epoll_pwait, {4, 0x7ffc, 8, 0xffffffff});
  EXPECT_FALSE(forever.has_timer);
  EXPECT_FALSE(forever.timeout);
  EXPECT_EQ(describe(forever, ""), "epoll_pwait()");
}

TEST(SystemCall, ATimeOutPassedByAddressIsOnlyKnownToExist) {
  const std::pair<int, size_t> calls[] = {{SYS_ppoll, 2},        {SYS_pselect6, 4},
                                          {SYS_recvmmsg, 4},     {SYS_rt_sigtimedwait, 2},
                                          {SYS_semtimedop, 3},   {SYS_mq_timedreceive, 4},
                                          {SYS_io_getevents, 4}, {SYS_futex, 3}};
  for (const auto& [number, argument] : calls) {
    std::array<uint64_t, 6> arguments{};
    EXPECT_FALSE(parsed(number, arguments).has_timer) << number;
    arguments[argument] = 0x7ffc0010;
    EXPECT_TRUE(parsed(number, arguments).has_timer) << number;
    EXPECT_FALSE(parsed(number, arguments).timeout) << number;
  }
  EXPECT_TRUE(parsed(SYS_clock_nanosleep).has_timer);
  EXPECT_TRUE(parsed(SYS_nanosleep, {0x7ffc0010}).has_timer);
}

TEST(SystemCall, OnlySomeFutexCommandsHaveATimeOut) {
  for (const int command : {FUTEX_WAIT, FUTEX_WAIT_PRIVATE, FUTEX_LOCK_PI,
                            FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME}) {
    const SystemCall call = parsed(SYS_futex, {0x7f00, static_cast<uint64_t>(command), 0, 0x7ffc});
    EXPECT_TRUE(call.has_timer) << command;
    EXPECT_EQ(call.waits_for, WaitsFor::thread);
  }
  EXPECT_FALSE(parsed(SYS_futex, {0x7f00, FUTEX_WAKE, 1, 0x7ffc}).has_timer);
  EXPECT_EQ(describe(parsed(SYS_futex), ""), "futex() (a lock, or another thread)");
}

TEST(SystemCall, AWaitForAChildNamesIt) {
  EXPECT_EQ(parsed(SYS_wait4, {4711}).child, 4711);
  EXPECT_EQ(parsed(SYS_wait4, {0xffffffff}).child, 0);
  EXPECT_EQ(parsed(SYS_wait4, {0xffffffffffffffff}).child, 0);
  EXPECT_EQ(parsed(SYS_waitid, {P_PID, 4711}).child, 4711);
  EXPECT_EQ(parsed(SYS_waitid, {P_ALL, 4711}).child, 0);
  EXPECT_EQ(parsed(SYS_wait4).waits_for, WaitsFor::child);
}

TEST(SystemCall, ACallMissingFromTheTableIsUnknown) {
  const SystemCall call = parsed(99'999, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(call, (SystemCall{.name = "system call 99999"}));
  EXPECT_EQ(describe(call, ""), "system call 99999");
}

TEST(SystemCall, AThreadMayWaitOutsideOfASystemCall) {
  const auto call = parse_system_call("-1 0x7ffca06f6bf7 0x7f7a879162ec\n");
  ASSERT_TRUE(call);
  EXPECT_TRUE(call->is_known);
  EXPECT_EQ(describe(*call, ""), "a page fault");
}

TEST(SystemCall, AMalformedLineIsNoCall) {
  for (const char* text : {"running\n", "", "\n", "read 0x1", "0", "0 0x1 0x2 0x3 0x4 0x5",
                           "0 0x1 0x2 0x3 0x4 0x5 6 0x7 0x8", "0 1 2 3 4 5 6 7 8",
                           "99999999999 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8",
                           "0 0x1 0x2 0x3 0x4 0x5 0x1ffffffffffffffff 0x7 0x8"})
    EXPECT_FALSE(parse_system_call(text)) << text;
}

}  // namespace
}  // namespace muster::hang

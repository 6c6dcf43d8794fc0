#include "rendezvous/base/unique_fd.h"

#include <cerrno>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace muster {
namespace {

// A pipe whose write end is under test: the reader sees end of file once that end is closed, even
// if another file has its number by then.
class WatchedFd {
 public:
  WatchedFd() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reader_ = ends[0];
    number_ = ends[1];
  }
  WatchedFd(const WatchedFd&) = delete;
  WatchedFd& operator=(const WatchedFd&) = delete;
  ~WatchedFd() { ::close(reader_); }

  int number() const { return number_; }
  bool is_open() const {
    char byte;
    return read(reader_, &byte, 1) < 0 && errno == EAGAIN;
  }

 private:
  int reader_ = -1;
  int number_ = -1;
};

TEST(UniqueFd, ClosesItsDescriptorWhenDestroyed) {
  const WatchedFd watched;
  {
    const UniqueFd fd(watched.number());
    EXPECT_EQ(fd.get(), watched.number());
    EXPECT_TRUE(fd);
    EXPECT_TRUE(watched.is_open());
  }
  EXPECT_FALSE(watched.is_open());
}

TEST(UniqueFd, OwnsNothingByDefault) {
  UniqueFd none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.get(), -1);
  errno = 0;
  none.reset();
  EXPECT_EQ(errno, 0);  // It did not close -1.
  EXPECT_EQ(none.release(), -1);
  EXPECT_FALSE(UniqueFd(-1));
}

TEST(UniqueFd, AMoveLeavesOneOwner) {
  const WatchedFd watched;
  UniqueFd first(watched.number());
  {
    UniqueFd second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): empty, as promised.
    EXPECT_EQ(second.get(), watched.number());
    EXPECT_TRUE(watched.is_open());
    first = std::move(second);
  }
  EXPECT_TRUE(watched.is_open());
  EXPECT_EQ(first.get(), watched.number());
  first = UniqueFd();
  EXPECT_FALSE(watched.is_open());
}

TEST(UniqueFd, AssignmentClosesTheOldDescriptorUnlessToItself) {
  const WatchedFd old;
  const WatchedFd next;
  UniqueFd fd(old.number());
  fd = UniqueFd(next.number());
  EXPECT_FALSE(old.is_open());
  EXPECT_TRUE(next.is_open());
  UniqueFd& same = fd;
  fd = std::move(same);
  EXPECT_EQ(fd.get(), next.number());
  EXPECT_TRUE(next.is_open());
}

TEST(UniqueFd, ResetClosesTheOldDescriptor) {
  const WatchedFd old;
  const WatchedFd next;
  UniqueFd fd(old.number());
  fd.reset(next.number());
  EXPECT_FALSE(old.is_open());
  EXPECT_TRUE(next.is_open());
  fd.reset();
  EXPECT_FALSE(next.is_open());
  EXPECT_FALSE(fd);
}

TEST(UniqueFd, ReleaseLeavesClosingToTheCaller) {
  const WatchedFd watched;
  {
    UniqueFd fd(watched.number());
    EXPECT_EQ(fd.release(), watched.number());
    EXPECT_FALSE(fd);
  }
  EXPECT_TRUE(watched.is_open());
  ::close(watched.number());
}

static_assert(!std::is_copy_constructible_v<UniqueFd> && !std::is_copy_assignable_v<UniqueFd>);
static_assert(!std::is_convertible_v<int, UniqueFd> && !std::is_convertible_v<UniqueFd, int>);
static_assert(std::is_nothrow_move_constructible_v<UniqueFd>);  // Otherwise a vector would copy.

TEST(UniqueFd, KnowsWhichAcceptErrorsConcernOneConnection) {
  for (const int one : {ECONNABORTED, EINTR, EPROTO, EPERM, ENETUNREACH})
    EXPECT_TRUE(concerns_one_connection(one)) << one;
  for (const int all : {EMFILE, ENFILE, ENOBUFS, ENOMEM, EACCES, ENOSYS, EINVAL, EBADF})
    EXPECT_FALSE(concerns_one_connection(all)) << all;
}

TEST(WholeFile, IsWrittenWholeAndReadInPieces) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  EXPECT_EQ(write_whole(to.get(), "abcdef"), 0);
  EXPECT_EQ(read_up_to(from.get(), 4), "abcd");
  EXPECT_EQ(read_up_to(from.get(), 100), "ef");  // Up to EAGAIN.
  EXPECT_EQ(write_whole(to.get(), std::string(1 << 20, 'x')), EAGAIN);
  EXPECT_EQ(read_up_to(-1, 4), "");
  EXPECT_EQ(write_whole(-1, "a"), EBADF);
  EXPECT_EQ(write_whole(-1, ""), 0);
}

TEST(UniqueFd, KnowsTheErrorsOfAFullDescriptorTable) {
  EXPECT_TRUE(is_out_of_descriptors(EMFILE));
  EXPECT_TRUE(is_out_of_descriptors(ENFILE));
  for (const int other : {0, ENOMEM, ENOBUFS, EBADF, EAGAIN})
    EXPECT_FALSE(is_out_of_descriptors(other)) << other;
}

}  // namespace
}  // namespace muster

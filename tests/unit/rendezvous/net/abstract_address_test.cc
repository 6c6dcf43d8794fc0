#include "rendezvous/net/abstract_address.h"

#include <cerrno>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

// Unique to this process, since other tests run on the same machine.
std::string own_name(const std::string& name) {
  return "muster-abstract-address-test-" + std::to_string(getpid()) + "-" + name;
}

UniqueFd unix_socket() {
  return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// 0, or errno.
int listen_at(const UniqueFd& fd, const std::string& name) {
  const AbstractAddress address(name);
  if (bind(fd.get(), address.get(), address.size) != 0) return errno;
  return listen(fd.get(), 1) == 0 ? 0 : errno;
}

int call_at(const std::string& name) {
  const UniqueFd fd = unix_socket();
  const AbstractAddress address(name);
  return connect(fd.get(), address.get(), address.size) == 0 ? 0 : errno;
}

TEST(AbstractAddress, IsAZeroByteAndTheNameOnly) {
  const AbstractAddress address("abc");
  EXPECT_EQ(address.raw.sun_family, AF_UNIX);
  EXPECT_EQ(address.size, offsetof(sockaddr_un, sun_path) + 4);
  EXPECT_EQ(std::string(address.raw.sun_path, 4), std::string("\0abc", 4));
  EXPECT_EQ(static_cast<const void*>(address.get()), &address.raw);
  EXPECT_EQ(AbstractAddress("").size, offsetof(sockaddr_un, sun_path) + 1);
}

TEST(AbstractAddress, ANameIsTakenUntilItsLastSocketIsClosed) {
  const std::string name = own_name("taken");
  UniqueFd first = unix_socket();
  ASSERT_EQ(listen_at(first, name), 0);
  EXPECT_EQ(call_at(name), 0);
  EXPECT_EQ(listen_at(unix_socket(), name), EADDRINUSE);
  first.reset();
  EXPECT_EQ(call_at(name), ECONNREFUSED);
  EXPECT_EQ(listen_at(unix_socket(), name), 0);
  EXPECT_FALSE(std::filesystem::exists(name));
}

// The kernel compares all bytes up to the length: zeros after the name would make an address that
// programs which count only the name's bytes cannot reach.
TEST(AbstractAddress, NamesThatDifferByLengthOrATrailingZeroDiffer) {
  const std::string name = own_name("a");
  const UniqueFd first = unix_socket();
  ASSERT_EQ(listen_at(first, name), 0);
  const std::string with_zero = name + '\0';
  EXPECT_EQ(call_at(name + "b"), ECONNREFUSED);
  EXPECT_EQ(call_at(name.substr(0, name.size() - 1)), ECONNREFUSED);
  EXPECT_EQ(call_at(with_zero), ECONNREFUSED);
  const UniqueFd second = unix_socket();
  EXPECT_EQ(listen_at(second, with_zero), 0);
  EXPECT_EQ(call_at(with_zero), 0);
}

TEST(AbstractAddress, AHundredAndSevenBytesFitAndOneMoreIsABug) {
  const std::string longest = own_name(std::string(107 - own_name("").size(), 'x'));
  const UniqueFd fd = unix_socket();
  EXPECT_EQ(listen_at(fd, longest), 0);
  EXPECT_EQ(call_at(longest), 0);
  EXPECT_EQ(AbstractAddress(longest).size, sizeof(sockaddr_un));
  EXPECT_DEATH(AbstractAddress(longest + "x"), "internal error: CHECK");
}

}  // namespace
}  // namespace muster

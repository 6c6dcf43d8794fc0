#include "agent/meeting/reachable.h"

#include <gtest/gtest.h>

#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

Interface reachable_interface(const std::string& name, const std::vector<std::string>& addresses) {
  Interface made{name, 1, true, name == "lo", {}};
  for (const std::string& address : addresses)
    made.addresses.push_back(IpAddress::parse(address).value());
  return made;
}

TEST(ReachableText, ListsTheLikelyAddressesFirst) {
  EXPECT_EQ(reachable_text({reachable_interface("lo", {"127.0.0.1", "10.1.1.1", "::1"}),
                            reachable_interface("docker0", {"172.17.0.1"}),
                            reachable_interface("eth0", {"10.0.0.5", "fd00::5", "fe80::1%2"}),
                            reachable_interface("ib0", {"10.1.0.5", "169.254.3.4"})}),
            "10.0.0.5,10.1.0.5,fd00::5,10.1.1.1,172.17.0.1");
}

TEST(ReachableText, HasEachAddressOnceAndEightAtMost) {
  std::vector<std::string> many;
  for (int i = 0; i < 12; ++i)
    many.push_back("10.0.0." + std::to_string(i / 2 + 1));
  EXPECT_EQ(reachable_text({reachable_interface("eth0", many)}),
            "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5,10.0.0.6");
  for (int i = 0; i < 12; ++i)
    many.push_back("10.0.1." + std::to_string(i));
  EXPECT_EQ(reachable_text({reachable_interface("eth0", many)}),
            "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5,10.0.0.6,10.0.1.0,10.0.1.1");
}

TEST(ReachableText, IsLoopbackOnlyIfThereIsNothingElse) {
  Interface down = reachable_interface("eth0", {"10.0.0.5"});
  down.up = false;
  EXPECT_EQ(reachable_text({reachable_interface("lo", {"127.0.0.1", "::1"}), down}), "127.0.0.1");
  EXPECT_EQ(reachable_text({reachable_interface("eth0", {"fe80::1%2"})}), "127.0.0.1");
  EXPECT_EQ(reachable_text({}), "127.0.0.1");
}

}  // namespace
}  // namespace muster

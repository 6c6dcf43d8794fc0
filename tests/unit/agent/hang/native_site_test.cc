#include "agent/hang/native_site.h"

#include <cstdint>
#include <map>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

using Sites = std::map<uint64_t, std::string>;

constexpr std::string_view kMaps =
    "55d0c8a00000-55d0c8a10000 r--p 00000000 fd:01 1047   /home/a user/my train\n"
    "55d0c8a10000-55d0c8a20000 r-xp 00010000 fd:01 1047   /home/a user/my train\n"
    "7f31a9c00000-7f31a9c28000 r-xp 00000000 00:00 0 \n"
    "7f31a9c28000-7f31a9dbd000 r-xp 00028000 fd:01 393    /usr/lib/libc.so.6\n"
    "7f31a9e00000-7f31a9e01000 r-xp 00000000 00:01 77     /memfd:kernels (deleted)\n"
    "7ffd2a5f1000-7ffd2a5f3000 r-xp 00000000 00:00 0      [vdso]\n";

TEST(NativeSites, GiveTheMappedFileAndTheOffset) {
  const Sites expected{{0x55d0c8a00000, "my train+0x0"},
                       {0x55d0c8a11234, "my train+0x11234"},
                       {0x7f31a9c28001, "libc.so.6+0x28001"},
                       {0x7f31a9e00010, "memfd:kernels+0x10"},
                       {0x7ffd2a5f2fff, "[vdso]+0x1fff"}};
  EXPECT_EQ(
      native_sites({0x55d0c8a00000, 0x55d0c8a11234, 0x7f31a9c28001, 0x7f31a9e00010, 0x7ffd2a5f2fff},
                   kMaps),
      expected);
}

TEST(NativeSites, AreMissingWithoutANamedMapping) {
  EXPECT_EQ(native_sites({0, 0x55d0c89fffff, 0x55d0c8a20000, 0x7f31a9c00010, ~uint64_t{0}}, kMaps),
            Sites());
  EXPECT_EQ(native_sites({1}, ""), Sites());
}

TEST(NativeSites, IgnoreLinesThatAreNoMapping) {
  EXPECT_EQ(native_sites({0x10},
                         "\n-\n0-20\n0-20 r-xp zz 0:0 0 /a\n0-2x r-xp 0 0:0 0 /a\n"
                         "0x0-20 r-xp 0 0:0 0 /a\n0-20 r-xp 5 0:0 0 /b\x1b[31m\n"),
            (Sites{{0x10, "b+0x15"}}));
}

TEST(NativeSites, NameThisProgramForThisProcess) {
  const UniqueFd fd(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  const auto here = reinterpret_cast<uint64_t>(&kMaps);
  const UniqueFd program(open("/proc/self/comm", O_RDONLY | O_CLOEXEC));
  const std::string comm(trim(read_up_to(program.get(), 64)));
  const Sites sites = native_sites({here}, read_up_to(fd.get(), 1 << 20));
  ASSERT_TRUE(sites.contains(here));
  EXPECT_TRUE(sites.at(here).starts_with(comm)) << sites.at(here);
}

TEST(NameNativeSites, NamesOnlySitesWithoutText) {
  std::vector<RecordedCall> calls(4);
  calls[0].site_address = 0x55d0c8a11234;
  calls[1].site = "train.py:88 step";
  calls[2].site_address = 5;
  name_native_sites(calls, kMaps);
  EXPECT_EQ(calls[0].site, "my train+0x11234");
  EXPECT_EQ(calls[1].site, "train.py:88 step");
  EXPECT_EQ(calls[2].site, "");
  EXPECT_EQ(calls[3].site, "");
}

}  // namespace
}  // namespace muster

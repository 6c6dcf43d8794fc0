#include "agent/report/core_pattern.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

CoreFacts sample_facts() {
  CoreFacts facts;
  facts.pid = 4711;
  facts.signal = 11;
  facts.comm = "python3";
  facts.hostname = "node-7";
  facts.cwd = "/work";
  return facts;
}

TEST(CoreGlob, PutsARelativePatternIntoTheWorkersFolder) {
  EXPECT_EQ(core_glob("core\n", sample_facts()), "/work/core");
}

TEST(CoreGlob, AppendsThePidWhenTheKernelDoes) {
  CoreFacts facts = sample_facts();
  facts.append_pid = true;
  EXPECT_EQ(core_glob("core", facts), "/work/core.4711");
  EXPECT_EQ(core_glob("core.%p", facts), "/work/core.4711");
}

TEST(CoreGlob, FillsInWhatIsKnownAndLeavesTheRestOpen) {
  EXPECT_EQ(core_glob("/cores/core.%e.%p.%t.%u.%h.%s", sample_facts()),
            "/cores/core.python3.4711.*.*.node-7.11");
  EXPECT_EQ(core_glob("/cores/%e-%s", CoreFacts{}), "/cores/*-*");
}

TEST(CoreGlob, EscapesTheSpecialCharactersOfGlob) {
  CoreFacts facts = sample_facts();
  facts.comm = "a*[b]";
  facts.cwd = "/w?";
  EXPECT_EQ(core_glob("%e%%core", facts), R"(/w\?/a\*\[b\]%core)");
}

TEST(CoreGlob, IgnoresAPercentSignAtTheEnd) {
  EXPECT_EQ(core_glob("/c/core%", sample_facts()), "/c/core");
}

TEST(CoreGlob, IsNothingForAHandlerAnEmptyPatternOrAnUnknownFolder) {
  EXPECT_EQ(core_glob("|/usr/lib/systemd/systemd-coredump %P", sample_facts()), std::nullopt);
  EXPECT_EQ(core_glob("\n", sample_facts()), std::nullopt);
  EXPECT_EQ(core_glob("core", CoreFacts{}), std::nullopt);
  EXPECT_EQ(core_glob("%", sample_facts()), std::nullopt);
}

TEST(CoreHandlerHint, NamesTheToolThatHasTheCore) {
  EXPECT_EQ(core_handler_hint("|/usr/lib/systemd/systemd-coredump %P %u\n", 4711),
            "coredumpctl info 4711");
  EXPECT_EQ(core_handler_hint("|/usr/share/apport/apport -p%p", 4711), "ls /var/crash");
  EXPECT_EQ(core_handler_hint("|/opt/bin/collector", 4711),
            "ask collector, which this machine hands its cores to");
}

TEST(CoreHandlerHint, IsEmptyForAPlainPattern) {
  EXPECT_EQ(core_handler_hint("core", 1), "");
}

}  // namespace
}  // namespace muster

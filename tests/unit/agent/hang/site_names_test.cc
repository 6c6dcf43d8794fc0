#include "agent/hang/site_names.h"

#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "rendezvous/base/process_stat.h"

namespace muster {
namespace {

class SiteNamesTest : public testing::Test {
 protected:
  // Returns the ring once its sites are named.
  RankRing named(RankRing ring) {
    std::optional<RankRing> answer;
    names_.name({std::move(ring)}, [&](std::vector<RankRing> rings) { answer = rings.at(0); });
    was_answered_at_once_ = answer.has_value();
    io_.run();
    return answer.value();
  }

  static RankRing ring_of_this_process(RecordedCall call) {
    RankRing ring;
    ring.state.emplace();
    ring.state->owner = getpid();
    ring.state->owner_started = start_ticks(stat_fields(getpid()));
    ring.calls = {std::move(call)};
    return ring;
  }

  // An address in the test program.
  static RecordedCall native_call() {
    RecordedCall call;
    call.site_address = reinterpret_cast<uint64_t>(&native_call);
    return call;
  }

  boost::asio::io_context io_;
  SiteNames names_{io_};
  bool was_answered_at_once_ = false;
};

TEST_F(SiteNamesTest, AreTheFileAndTheOffset) {
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").filename();
  EXPECT_TRUE(named(ring_of_this_process(native_call())).calls[0].site.starts_with(path + "+0x"));
}

TEST_F(SiteNamesTest, AreEmptyIfThePidWasReused) {
  RankRing ring = ring_of_this_process(native_call());
  ring.state->owner_started += 1;
  EXPECT_EQ(named(ring).calls[0].site, "");
}

TEST_F(SiteNamesTest, AreNotLookedUpIfNoSiteIsNative) {
  RecordedCall call = native_call();
  call.site = "train.py:88 step";
  EXPECT_EQ(named(ring_of_this_process(call)).calls[0].site, "train.py:88 step");
  EXPECT_TRUE(was_answered_at_once_);
  EXPECT_EQ(named(RankRing{}).state, std::nullopt);
}

}  // namespace
}  // namespace muster

// Why an epoch ended: the testimonies that the judge gets, when, and the effect of its answer.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "tests/unit/rendezvous/membership/membership_harness.h"

namespace muster {
namespace {

using namespace membership;  // NOLINT: the words of the protocol
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

// The judge records the testimonies and returns the answer that the test prepared. Two nodes with
// one worker each unless stated otherwise.
class MembershipJudge : public testing::Test {
 protected:
  Membership::Options options() {
    Membership::Options result = MembershipDriver::at_once();
    result.judge = [this](const std::vector<Testimony>& testimonies) {
      heard_.push_back(testimonies);
      return answer_;
    };
    return result;
  }

  static std::string line_of(const Testimony& node) {
    std::string line = node.host_name + " " + std::to_string(node.node_rank) + " ranks " +
                       std::to_string(node.base_rank) + "+" + std::to_string(node.workers);
    if (node.failure) line += " failed " + std::to_string(node.failure->rank);
    if (node.evidence) line += " says " + node.evidence->detail;
    return line + (node.gone ? " gone" : "");
  }
  std::vector<std::string> heard() const {
    std::vector<std::string> lines;
    for (const Testimony& node : heard_.back())
      lines.push_back(line_of(node));
    return lines;
  }

  Judgement answer_{Verdict{0, 0, 0, "a", 139, 11, "killed by SIGSEGV", "everything"}, "a line",
                    false};
  std::vector<std::vector<Testimony>> heard_;
};

TEST_F(MembershipJudge, HearsAllNodesOnceTheEpochIsOver) {
  MembershipDriver m(2, 2, options());
  m.run({"a", "b"});
  m.fail("b", 1, boom(1));
  m.ready_with("b", 1, "my words");
  EXPECT_TRUE(heard_.empty());
  m.ready_with("a", 1, "other words");
  ASSERT_EQ(heard_.size(), 1u);
  EXPECT_EQ(heard(), (std::vector<std::string>{"a 0 ranks 0+1 says other words",
                                               "b 1 ranks 1+1 failed 1 says my words"}));
}

// A node may have to wait for its GPUs' memory to be freed after it has testified.
TEST_F(MembershipJudge, DoesNotWaitUntilANodeIsReady) {
  MembershipDriver m(2, 2, options());
  m.run({"a", "b"});
  m.fail("b", 1, boom(1));
  m.ready_with("b", 1, "my words");
  EXPECT_EQ(heard_.size(), 0u);
  m.testified("a", 1);
  EXPECT_EQ(heard_.size(), 1u);
  EXPECT_EQ(m.end("a").exit_code, 139);
}

TEST_F(MembershipJudge, LetsTheNextRoundWaitForATestifiedNode) {
  MembershipDriver m(1, 2, options());
  m.job.max_restarts = 2;
  m.run({"a", "b"});
  m.fail("b", 1, boom(1));
  m.ready("b", 1);
  EXPECT_EQ(m.testified("a", 1), "CloseStore{1}");
  EXPECT_EQ(heard_.size(), 1u);
  EXPECT_EQ(m.ready("a", 1), "OpenStore{2, 10.0.1.a 10.0.1.b}");
}

TEST_F(MembershipJudge, LetsNoSpareReplaceATestifiedNode) {
  MembershipDriver m(2, 2, options());
  m.job.max_restarts = 2;
  m.job.spares = 1;
  m.run({"a", "b"});
  m.join("c");
  m.ready("c");
  m.fail("b", 1, boom(1));
  m.ready("a", 1);
  EXPECT_EQ(m.testified("b", 1), "CloseStore{1}");
  EXPECT_THAT(m.live(seconds{700}, {"a", "b", "c"}), Not(HasSubstr("OpenStore")));
  EXPECT_THAT(m.ready("b", 1), HasSubstr("OpenStore{2, 10.0.1.a 10.0.1.b}"));
}

TEST_F(MembershipJudge, GivesEveryNodeItsVerdictAsTheEnd) {
  MembershipDriver m(2, 2, options());
  m.run({"a", "b"});
  m.fail("b", 1, boom(1));
  m.ready("b", 1);
  m.ready("a", 1);
  for (const std::string name : {"a", "b"}) {
    const End end = m.end(name);
    EXPECT_EQ(end.why, EndWhy::failed);
    EXPECT_EQ(end.exit_code, 139);
    EXPECT_EQ(end.node_rank, 0);
    EXPECT_EQ(end.text, "rank 0 on a (node rank 0) killed by SIGSEGV");
    EXPECT_EQ(end.verdict, answer_.verdict);
  }
}

TEST_F(MembershipJudge, GivesAllNodesTheShortReasonOfARestart) {
  MembershipDriver m(2, 2, options());
  m.job.max_restarts = 2;
  m.run({"a", "b"});
  EXPECT_EQ(m.round("a").before, std::nullopt);
  m.fail("b", 1, boom(1));
  m.ready("b", 1);
  m.ready("a", 1);
  m.open_store(2);
  Verdict expected = answer_.verdict;
  expected.detail = "a line";
  EXPECT_EQ(m.round("a").before, expected);
  EXPECT_EQ(m.round("b").before, expected);
  EXPECT_EQ(m.round("a").restarts, 1);
}

TEST_F(MembershipJudge, ReportsNoOlderFailureAfterAMembershipChange) {
  MembershipDriver m(1, 2, options());
  m.job.max_restarts = 2;
  m.run({"a", "b"});
  m.fail("b", 1, boom(1));
  m.ready("b", 1);
  m.ready("a", 1);
  m.open_store(2);
  m.running("a", 2);
  m.running("b", 2);
  m.leaving("b", 2, 15, true);
  m.ready("a", 2);
  m.open_store(3);
  EXPECT_EQ(m.round("a").before, std::nullopt);
}

TEST_F(MembershipJudge, HearsNoEvidenceOfAnotherEpoch) {
  MembershipDriver m(2, 2, options());
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.fail("b", 1, boom(1));
  m.ready_with("b", 1, "first");
  m.ready("a", 1);
  m.open_store(2);
  m.running("a", 2);
  m.running("b", 2);
  m.fail("a", 2, boom(0));
  m.ready_with("b", 1, "late");
  m.ready("b", 2);
  m.ready("a", 2);
  EXPECT_EQ(heard(), (std::vector<std::string>{"a 0 ranks 0+1 failed 0", "b 1 ranks 1+1"}));
}

// Returns glibc's count, which is always 0 under a sanitizer.
size_t bytes_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST_F(MembershipJudge, KeepsEvidenceOnceAndOnlyUntilItIsJudged) {
  if (bytes_in_use() == 0) GTEST_SKIP() << "this allocator does not say what is in use";
  constexpr size_t kEach = size_t{4} << 20;
  size_t while_judging = 0;
  Membership::Options counting = options();
  counting.judge = [&](const std::vector<Testimony>& testimonies) {
    EXPECT_EQ(testimonies.size(), 8u);
    for (const Testimony& node : testimonies)
      EXPECT_TRUE(node.evidence && node.evidence->detail.size() == kEach) << node.host_name;
    while_judging = bytes_in_use();
    return answer_;
  };
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f", "g", "h"};
  MembershipDriver m(1, 8, counting);
  m.job.max_restarts = 1;
  m.run(names);
  m.fail("a", 1, boom(0));
  const size_t before = bytes_in_use();
  for (const std::string& name : names)
    m.ready_with(name, 1, std::string(kEach, 'x'));
  // The driver also keeps all reports, and the newest one three times.
  const size_t said = names.size() * kEach;
  EXPECT_LT(while_judging, before + 2 * said + 4 * kEach);
  EXPECT_LT(bytes_in_use(), before + said + kEach);
  m.again("a");  // A heartbeat sent before the new round arrived.
  EXPECT_LT(bytes_in_use(), before + said + kEach);
}

// ---- Losses.

TEST_F(MembershipJudge, HearsWhenALostNodeWasHeardLast) {
  MembershipDriver m(1, 2, options());
  answer_.by_departure = true;
  m.run({"a", "b"});
  const Instant last = m.now();
  m.pass(milliseconds{100});
  m.disconnect("b");
  m.fail("a", 1, boom(0));
  m.ready("a", 1);
  m.live(milliseconds{250}, {"a"});
  ASSERT_EQ(heard_.size(), 1u);
  EXPECT_EQ(heard(), (std::vector<std::string>{"a 0 ranks 0+1 failed 0", "b 1 ranks 1+1 gone"}));
  EXPECT_EQ(heard_[0][1].last_heard, last);
  EXPECT_EQ(heard_[0][1].gone_by, last + milliseconds{100});
}

TEST_F(MembershipJudge, ChargesNoRestartForAFailureThatALossExplains) {
  MembershipDriver m(1, 2, options());
  m.job.max_restarts = 1;
  answer_.by_departure = true;
  m.run({"a", "b"});
  m.disconnect("b");
  m.fail("a", 1, boom(0));
  m.ready("a", 1);
  m.live(milliseconds{250}, {"a"});
  m.open_store(2);
  EXPECT_EQ(m.round("a").restarts, 0);
  EXPECT_EQ(m.round("a").changes, 1);
}

TEST_F(MembershipJudge, ChargesARestartForAFailureBeforeALoss) {
  MembershipDriver m(1, 2, options());
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  m.disconnect("b");
  m.ready("a", 1);
  m.live(milliseconds{250}, {"a"});
  m.open_store(2);
  EXPECT_EQ(m.round("a").restarts, 1);
}

TEST_F(MembershipJudge, NamesTheFailureIfALaterLossLeavesTooFew) {
  MembershipDriver m(2, 2, options());
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  m.disconnect("b");
  EXPECT_EQ(m.live(milliseconds{250}, {"a"}), "");
  EXPECT_THAT(m.ready("a", 1), HasSubstr("a: End{failed, exit 139, node rank 0"));
}

TEST_F(MembershipJudge, ChargesNoRestartIfTooFewRemainForIt) {
  MembershipDriver m(2, 2, options());
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  m.disconnect("b");
  m.live(seconds{3}, {"a"});
  m.ready("a", 1);
  const End end = m.end("a");
  EXPECT_EQ(end.why, EndWhy::failed);
  EXPECT_EQ(end.exit_code, 139);
  EXPECT_EQ(end.text, "rank 0 on a (node rank 0) killed by SIGSEGV");
  EXPECT_EQ(end.verdict, answer_.verdict);
  EXPECT_EQ(end.restarts, 0);
}

TEST_F(MembershipJudge, StopsTheJobIfASignalAfterAFailureLeavesTooFew) {
  MembershipDriver m(2, 2, options());
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  m.leaving("b", 1, 15, true);
  m.ready("a", 1);
  const End end = m.end("a");
  EXPECT_EQ(end.why, EndWhy::stopped);
  EXPECT_EQ(end.signal, 15);
  EXPECT_EQ(end.exit_code, 143);
  EXPECT_EQ(end.host_name, "b");
  EXPECT_EQ(end.text,
            "b (node rank 1) leaves (SIGTERM); 1 node left, the job needs 2; before that, rank 0 "
            "on a (node rank 0) killed by SIGSEGV");
  EXPECT_EQ(end.restarts, 0);
}

TEST_F(MembershipJudge, EndsWithTheLossIfItExplainsTheFailure) {
  MembershipDriver m(2, 2, options());
  answer_.by_departure = true;
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  m.disconnect("b");
  m.live(milliseconds{250}, {"a"});
  EXPECT_THAT(m.ready("a", 1), HasSubstr("a: End{lost, exit 122, node rank 1 on \"b\""));
}

TEST_F(MembershipJudge, HearsANodeThatTestifiedAndThenLeft) {
  MembershipDriver m(1, 2, options());
  m.run({"a", "b"});
  m.fail("b", 1, boom(1));
  m.ready_with("b", 1, "my words");
  m.leaving("b", 1, 15, true);
  m.goodbye("b");
  m.ready("a", 1);
  EXPECT_EQ(heard(), (std::vector<std::string>{"a 0 ranks 0+1",
                                               "b 1 ranks 1+1 failed 1 says my words gone"}));
}

TEST_F(MembershipJudge, HearsAReturnedLostNodeOnce) {
  MembershipDriver m(1, 2, options());
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  m.disconnect("b");
  m.live(milliseconds{250}, {"a"});
  m.job.last_epoch = 1;
  m.job.last_rank = 1;
  m.join("b");
  m.ready("a", 1);
  m.ready_with("b", 1, "my words");
  EXPECT_EQ(heard(), (std::vector<std::string>{"a 0 ranks 0+1 failed 0",
                                               "b 1 ranks 1+1 says my words gone"}));
}

TEST_F(MembershipJudge, IsNotAskedIfNothingFailed) {
  MembershipDriver m(1, 2, options());
  m.run({"a", "b"});
  m.leaving("b", 1, 15, true);
  m.ready("a", 1);
  EXPECT_TRUE(heard_.empty());
}

}  // namespace
}  // namespace muster

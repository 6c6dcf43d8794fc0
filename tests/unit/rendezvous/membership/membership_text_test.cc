#include "rendezvous/membership/membership_text.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rendezvous/membership/agent_protocol.h"

namespace muster::membership {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(MembershipText, WholeTimesAreRoundedUp) {
  const std::vector<std::pair<Duration, std::string>> expected = {
      {nanoseconds(0), "0 s"},
      {nanoseconds(1), "1 ms"},
      {milliseconds(250), "250 ms"},
      {milliseconds(250) + nanoseconds(1), "251 ms"},
      {milliseconds(999), "999 ms"},
      {milliseconds(999) + nanoseconds(1), "1 s"},
      {seconds(1), "1 s"},
      {seconds(1) + nanoseconds(1), "2 s"},
      {seconds(59) + milliseconds(999), "60 s"},
      {hours(24), "86400 s"},
      {milliseconds(-1), "0 s"},
      {milliseconds(-1500), "-1 s"}};
  for (const auto& [duration, text] : expected)
    EXPECT_EQ(whole_seconds(duration), text) << duration.count();
}

TEST(MembershipText, PreciseTimesHaveOneDecimal) {
  const std::vector<std::pair<Duration, std::string>> expected = {
      {nanoseconds(0), "0.0 s"},
      {milliseconds(40), "0.0 s"},
      {milliseconds(60), "0.1 s"},
      {milliseconds(1234), "1.2 s"},
      {seconds(59) + milliseconds(960), "60.0 s"},
      {hours(24), "86400.0 s"}};
  for (const auto& [duration, text] : expected)
    EXPECT_EQ(precise_seconds(duration), text) << duration.count();
}

TEST(MembershipText, OneNodeIsSingular) {
  EXPECT_EQ(nodes_text(0), "0 nodes");
  EXPECT_EQ(nodes_text(1), "1 node");
  EXPECT_EQ(nodes_text(2), "2 nodes");
  EXPECT_EQ(nodes_text(kNodesMax), "524287 nodes");
}

TEST(MembershipText, NamesCannotControlTheTerminal) {
  EXPECT_EQ(quiet_name("node-7.example.com"), "node-7.example.com");
  EXPECT_EQ(quiet_name("a\nb\x1b[31m\x7f~ "), "a?b?[31m?~ ");
  EXPECT_EQ(quiet_name("n\xc3\xb6"), "n??");
  EXPECT_EQ(quiet_name(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(quiet_name(""), "a node without a name");
}

TEST(MembershipText, LongNamesAreCut) {
  const std::string name = "0" + std::string(63, 'n');
  EXPECT_EQ(quiet_name(name), name);
  EXPECT_EQ(quiet_name(name + "z"), name);
}

TEST(MembershipText, SentencesStayOnOneLineAndKeepTheirLetters) {
  EXPECT_EQ(quiet_line("exited with 1:\r\n\tna\xc3\xafve\x1b[2J\x7f"),
            "exited with 1:   na\xc3\xafve [2J ");
  EXPECT_EQ(quiet_line(""), "");
}

TEST(MembershipText, SentencesAreCutToHalfAField) {
  const std::string text(kTextBytesMax / 2, 's');
  EXPECT_EQ(quiet_line(text), text);
  EXPECT_EQ(quiet_line(text + "z"), text);
}

RC_GTEST_PROP(MembershipText, QuietingIsIdempotent, (const std::string& text)) {
  const std::string name = quiet_name(text);
  RC_ASSERT(quiet_name(name) == name);
  const std::string line = quiet_line(text);
  RC_ASSERT(quiet_line(line) == line);
  RC_ASSERT(line.size() == text.size());
}

}  // namespace
}  // namespace muster::membership

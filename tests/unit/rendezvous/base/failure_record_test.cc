// The record that a worker leaves of a failure: written and read again, and hostile bytes.

#include "rendezvous/base/failure_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

using testing::HasSubstr;

FailureRecord sample_record() {
  return {.time_ns = 81723645000000,
          .code = "peer_failed",
          .origin = {2, 5},
          .rank = 0,
          .operation = "all_reduce 17 of group world",
          .message = "all_reduce 17 of group world: rank 2 (node7, pid 4711) died"};
}

// Lines between the first and the last.
std::string with_lines(const std::string& lines) {
  return "muster-failure 1\n" + lines + "end\n";
}

TEST(FailureRecord, IsLinesThatAPersonCanRead) {
  EXPECT_EQ(encode_failure_record(sample_record()),
            "muster-failure 1\n"
            "time_ns 81723645000000\n"
            "code peer_failed\n"
            "rank 0\n"
            "origin 2,5\n"
            "operation all_reduce 17 of group world\n"
            "message all_reduce 17 of group world: rank 2 (node7, pid 4711) died\n"
            "end\n");
}

TEST(FailureRecord, WhatIsUnknownIsLeftOut) {
  const FailureRecord least{.time_ns = 5, .code = "stopped"};
  EXPECT_EQ(encode_failure_record(least), "muster-failure 1\ntime_ns 5\ncode stopped\nend\n");
  EXPECT_EQ(parse_failure_record(encode_failure_record(least)), least);
}

RC_GTEST_PROP(FailureRecordProperty, WhatIsWrittenCanBeRead, ()) {
  FailureRecord record;
  record.time_ns = *rc::gen::positive<int64_t>();
  record.code = *rc::gen::element<std::string>("timeout", "system", "mismatch");
  const auto origin = *rc::gen::container<std::set<int>>(rc::gen::inRange(0, 100'000));
  record.origin.assign(origin.begin(), origin.end());
  record.rank = *rc::gen::inRange(-1, 100'000);
  record.operation = *rc::gen::arbitrary<std::string>();
  record.message = *rc::gen::arbitrary<std::string>();
  const std::string bytes = encode_failure_record(record);
  RC_ASSERT(bytes.size() <= kFailureRecordBytesMax);
  const auto read = parse_failure_record(bytes);
  RC_ASSERT(read.has_value());
  RC_ASSERT(read->origin == record.origin && read->rank == record.rank);
  RC_ASSERT(read->time_ns == record.time_ns && read->code == record.code);
  RC_ASSERT(read->message.size() == record.message.size());
  RC_ASSERT(encode_failure_record(*read) == bytes);
}

TEST(FailureRecord, LongTextsAndManyRanksAreCut) {
  FailureRecord record = sample_record();
  record.operation.assign(10'000, 'o');
  record.message.assign(100'000, 'm');
  for (int rank = 0; rank < 5000; ++rank)
    record.origin.push_back(2'000'000'000 + rank);
  const std::string bytes = encode_failure_record(record);
  EXPECT_LE(bytes.size(), kFailureRecordBytesMax);
  const auto read = parse_failure_record(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->operation.size(), kFailureOperationBytesMax);
  EXPECT_EQ(read->message.size(), kFailureMessageBytesMax);
  EXPECT_EQ(read->origin.size(), kFailureOriginMax);
  EXPECT_EQ(read->origin.front(), 2);
}

TEST(FailureRecord, AnOriginIsWrittenInOrderAndOnce) {
  FailureRecord record = sample_record();
  record.origin = {7, 3, -1, 7};
  EXPECT_THAT(encode_failure_record(record), HasSubstr("\norigin 3,7\n"));
}

TEST(FailureRecord, TextsCannotAddLinesOrOrderATerminalAbout) {
  FailureRecord record = sample_record();
  record.message = "a\nrank 9\x1b[2J\x7f";
  const std::string bytes = encode_failure_record(record);
  EXPECT_THAT(bytes, HasSubstr("\nmessage a rank 9 [2J \n"));
  ASSERT_TRUE(parse_failure_record(bytes));
  EXPECT_EQ(parse_failure_record(bytes)->rank, 0);
  const auto hostile = parse_failure_record(with_lines("code x\nmessage \x1b]0;gotcha\x07\n"));
  ASSERT_TRUE(hostile);
  EXPECT_EQ(hostile->message, " ]0;gotcha ");
}

TEST(FailureRecord, NoPartOfOneIsOne) {
  const std::string whole = encode_failure_record(sample_record());
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(parse_failure_record(std::string_view(whole).substr(0, size))) << size;
  EXPECT_FALSE(parse_failure_record(whole + whole));
  EXPECT_FALSE(parse_failure_record("muster-failure 1\nend\n"));  // No code.
  EXPECT_FALSE(parse_failure_record("muster-failure 2\ncode x\nend\n"));
  EXPECT_FALSE(parse_failure_record("muster-failure 1\nend"));
}

TEST(FailureRecord, NumbersAreWholeAndWithinBounds) {
  for (const char* line :
       {"rank -1\n", "rank 1x\n", "rank \n", "rank 99999999999\n", "rank\n", "time_ns -5\n",
        "time_ns 9223372036854775808\n", "origin 2,2\n", "origin 3,2\n", "origin 2,\n",
        "origin ,2\n", "origin -1\n", "origin 1, 2\n", "rank 1\nrank 1\n", "code y\n"})
    EXPECT_FALSE(parse_failure_record(with_lines(std::string("code x\n") + line))) << line;
  std::string many = "origin 0";
  for (int rank = 1; rank <= static_cast<int>(kFailureOriginMax); ++rank)
    many += "," + std::to_string(rank);
  EXPECT_FALSE(parse_failure_record(with_lines("code x\n" + many + "\n")));
  EXPECT_FALSE(parse_failure_record(
      with_lines("code x\nmessage " + std::string(kFailureRecordBytesMax, 'm') + "\n")));
}

TEST(FailureRecord, LinesOfLaterVersionsAreLeftOut) {
  const auto read = parse_failure_record(with_lines("code x\nmood bad, very\nrank 3\n"));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 3);
}

}  // namespace
}  // namespace muster

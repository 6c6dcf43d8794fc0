#include "rendezvous/backends/host_record.h"

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/rendezvous/backends/shared_folder.h"

namespace muster {
namespace {

// Nodes of other versions and people read the record; the beat is overwritten in place.
TEST(HostRecord, HasThisText) {
  HostRecord record = record_of(0xfeed, 29500);
  record.beat = 0x1234;
  record.claim = "meet.after-000000000000beef";
  record.addresses.push_back(*SocketAddress::parse("[fd00::1]:29500"));
  const std::string text = encode(record);
  EXPECT_EQ(text,
            "muster-rendezvous 1\n"
            "beat 0000000000001234\n"
            "instance 000000000000feed\n"
            "machine boot/1\n"
            "claim meet.after-000000000000beef\n"
            "host node0\n"
            "address 127.0.0.1:29500\n"
            "address [fd00::1]:29500\n"
            "end\n");
  EXPECT_EQ(text.substr(kRecordHead.size(), 16), sixteen_digits(record.beat));
}

TEST(HostRecord, SixteenDigitsFitEveryNumber) {
  EXPECT_EQ(sixteen_digits(0), "0000000000000000");
  EXPECT_EQ(sixteen_digits(0xabcdef), "0000000000abcdef");
  EXPECT_EQ(sixteen_digits(std::numeric_limits<uint64_t>::max()), "ffffffffffffffff");
}

TEST(HostRecord, IsReadBackAsWritten) {
  HostRecord record = record_of(0xfeed, 29500);
  record.beat = 77;
  record.claim = "meet.after-1";
  record.addresses.push_back(*SocketAddress::parse("[fd00::1]:29500"));
  EXPECT_EQ(decode_record(encode(record)), record);
}

TEST(HostRecord, RefusesATruncatedRecord) {
  const std::string whole = encode(record_of(1, 29500));
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_EQ(decode_record(whole.substr(0, length)), std::nullopt) << length;
}

TEST(HostRecord, RefusesOtherFiles) {
  for (const char* text :
       {"", "x", "muster-rendezvous 2\nbeat 0000000000000000\nend\n",
        "muster-rendezvous 1\nbeat 0000000000000000\nend\n",
        "muster-rendezvous 1\nbeat zzzzzzzzzzzzzzzz\ninstance 1\nend\n",
        "muster-rendezvous 1\nbeat end\n",
        "muster-rendezvous 1\nbeat 0000000000000000\ninstance 1\naddress x\nend\n"})
    EXPECT_EQ(decode_record(text), std::nullopt) << text;
}

TEST(HostRecord, KeepsAHostNameFromForgingALine) {
  HostRecord record = record_of(1, 29500);
  record.host_name = "node\naddress 10.0.0.1:1";
  const auto read = decode_record(encode(record));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->addresses, record.addresses);
}

// A newer version may add lines.
TEST(HostRecord, SkipsLinesOfUnknownKeys) {
  std::string text = encode(record_of(1, 29500));
  text.insert(text.find("machine"), "colour blue\nshape \n");
  EXPECT_EQ(decode_record(text), record_of(1, 29500));
}

TEST(HostRecord, RefusesARecordWithAMalformedLine) {
  for (const char* line : {"word", "", "instance", "instance ", "instance g", "instance -1",
                           "instance 1 ", "instance 10000000000000000", "instance 0", "address",
                           "address 127.0.0.1", "address node0:29500", "address 127.0.0.1:65536"}) {
    std::string text = encode(record_of(1, 29500));
    text.insert(text.size() - 4, line + std::string("\n"));
    EXPECT_EQ(decode_record(text), std::nullopt) << line;
  }
}

TEST(HostRecord, RefusesABeatWithoutALineEnd) {
  std::string text = encode(record_of(1, 29500));
  const size_t end_of_beat = text.find("\ninstance");
  ASSERT_NE(end_of_beat, std::string::npos);
  text[end_of_beat] = 'X';
  EXPECT_EQ(decode_record(text), std::nullopt);
}

TEST(HostRecord, RefusesARecordWithoutAnAddress) {
  HostRecord record = record_of(1, 29500);
  record.addresses.clear();
  EXPECT_EQ(decode_record(encode(record)), std::nullopt);
}

TEST(HostRecord, RefusesBytesAfterItsEnd) {
  const std::string text = encode(record_of(1, 29500));
  for (const std::string& more : {std::string("\n"), std::string("x"), std::string(1, '\0'), text})
    EXPECT_EQ(decode_record(text + more), std::nullopt) << more;
}

TEST(HostRecord, IsReadUpToItsLimit) {
  std::string text = encode(record_of(1, 29500));
  const size_t room = kRecordBytesMax - text.size();
  text.insert(text.find("machine"), "x " + std::string(room - 3, 'x') + "\n");
  ASSERT_EQ(text.size(), kRecordBytesMax);
  EXPECT_EQ(decode_record(text), record_of(1, 29500));
  text.insert(text.find("machine") - 1, "x");
  EXPECT_EQ(decode_record(text), std::nullopt);
}

std::string printable_text() {
  return *rc::gen::container<std::string>(rc::gen::inRange<char>(0x20, 0x7f));
}

HostRecord any_record() {
  HostRecord record;
  record.beat = *rc::gen::arbitrary<uint64_t>();
  record.instance = *rc::gen::nonZero<uint64_t>();
  record.machine = printable_text();
  record.claim = printable_text();
  record.host_name = printable_text();
  for (int left = *rc::gen::inRange(1, 5); left > 0; --left) {
    std::array<uint8_t, 16> bytes;
    for (uint8_t& byte : bytes)
      byte = *rc::gen::arbitrary<uint8_t>();
    const IpAddress ip = *rc::gen::arbitrary<bool>()
                             ? IpAddress::v6(bytes)
                             : IpAddress::v4({bytes[0], bytes[1], bytes[2], bytes[3]});
    record.addresses.push_back({ip, *rc::gen::arbitrary<uint16_t>()});
  }
  return record;
}

RC_GTEST_PROP(HostRecord, AnyRecordIsReadBack, ()) {
  const HostRecord record = any_record();
  RC_ASSERT(decode_record(encode(record)) == record);
}

RC_GTEST_PROP(HostRecord, ADamagedTextGivesAUsableRecordOrNone, ()) {
  std::string text = encode(any_record());
  for (int left = *rc::gen::inRange(0, 4); left > 0; --left) {
    const auto at = *rc::gen::inRange<size_t>(0, text.size());
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        text[at] = *rc::gen::arbitrary<char>();
        break;
      case 1:
        text.erase(at, *rc::gen::inRange<size_t>(1, 40));
        break;
      default:
        text.insert(at,
                    *rc::gen::element<std::string>("\n", " ", "end\n", "address ", "instance 0"));
    }
    if (text.empty()) break;
  }
  const std::optional<HostRecord> record = decode_record(text);
  if (!record) return;
  RC_ASSERT(record->instance != 0u);
  RC_ASSERT(!record->addresses.empty());
  const std::optional<HostRecord> again = decode_record(encode(*record));
  RC_ASSERT(again.has_value());
  RC_ASSERT(again->addresses == record->addresses);
}

JobRecord job_of(int members) {
  JobRecord job;
  job.epoch = 7;
  job.instance = 0xbeef;
  job.host = {0xa, 0xb};
  job.restarts = 2;
  job.changes = 3;
  for (int i = 0; i < members; ++i)
    job.members.push_back({static_cast<uint64_t>(i), std::numeric_limits<uint64_t>::max()});
  return job;
}

TEST(JobRecord, HasThisText) {
  JobRecord job = job_of(1);
  job.ending =
      membership::End{membership::EndWhy::failed, 3, 0, -1, "node0", "rank 1 exited with 3"};
  EXPECT_EQ(encode(job),
            "muster-job 1\n"
            "epoch 7\n"
            "instance 000000000000beef\n"
            "host 000000000000000a000000000000000b\n"
            "restarts 2\n"
            "changes 3\n"
            "member 0000000000000000ffffffffffffffff\n"
            "ending 1 3 0\n"
            "ending-host node0\n"
            "ending-text rank 1 exited with 3\n"
            "end\n");
}

TEST(JobRecord, IsReadBackAsWritten) {
  JobRecord ended = job_of(3);
  ended.ending = membership::End{membership::EndWhy::success,         0, 0, -1, "",
                                 "all workers of all nodes succeeded"};
  for (const JobRecord& job : {JobRecord{}, job_of(0), job_of(4096), ended})
    EXPECT_EQ(decode_job_record(encode(job)), job);
}

TEST(JobRecord, RefusesATruncatedRecord) {
  JobRecord job = job_of(2);
  job.ending = membership::End{membership::EndWhy::lost, 122, 15, -1, "node0", "gone"};
  const std::string whole = encode(job);
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_EQ(decode_job_record(whole.substr(0, length)), std::nullopt) << length;
}

TEST(JobRecord, RefusesMalformedLinesAndSkipsUnknownOnes) {
  for (const char* line :
       {"epoch x", "epoch -1", "restarts -1", "changes 1.5", "host 12", "member ", "ending 9 0 0",
        "ending 0 0", "ending 0 a 0", "noword", "member 0000000000000000ffffffffffffffff0"}) {
    std::string text = encode(job_of(1));
    text.insert(text.find("restarts"), std::string(line) + "\n");
    EXPECT_EQ(decode_job_record(text), std::nullopt) << line;
  }
  std::string text = encode(job_of(1));
  text.insert(text.find("restarts"), "colour blue\n");
  EXPECT_EQ(decode_job_record(text), job_of(1));
}

}  // namespace
}  // namespace muster

#include "agent/hang/nccl_ras.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::hang {
namespace {

using RasJson = nlohmann::json;

constexpr const char* kThere = "localhost:28028";

std::string well(int rank, int pid, int async_error = 0) {
  return fmt::format(R"({{"rank": {}, "host": "10.0.0.1", "pid": {}, "cuda_dev": 0, "nvml_dev": 0,
      "status": {{"init_state": 0, "async_error": {}, "finalize_called": false,
                  "destroy_flag": false, "abort_flag": false}},
      "collective_counts": {{"Broadcast": 0, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0,
                             "AllReduce": 18446744073709551615}}}})",
                     rank, pid, async_error);
}

std::string missing(int rank, int pid, bool unresponsive, bool dead,
                    const std::string& host = "10.0.0.2") {
  return fmt::format(R"({{"rank": {}, "host": "{}", "pid": {}, "cuda_dev": 1, "nvml_dev": 1,
      "status": {{"unresponsive": {}, "considered_dead": {}}}}})",
                     rank, host, pid, unresponsive, dead);
}

std::string communicator(int size, const std::string& ranks, const std::string& missing_ranks) {
  return fmt::format(R"({{"hash": "0xae94423cfbb2ef4a", "secondary_hash": "0xb7:0xb8", "size": {},
      "ranks_count": 1, "missing_ranks_count": 1, "ranks": [{}], "missing_ranks": [{}]}})",
                     size, ranks, missing_ranks);
}

std::string status_of(const std::string& communicators) {
  return fmt::format(R"({{"nccl_version": "2.29.1", "cuda_runtime_version": 13000,
      "communicators_count": 1, "communicators": [{}],
      "ras": {{"collection_time_sec": 0.000, "timeouts_count": 0}}}})",
                     communicators);
}

std::string line_of(std::string_view answer, const std::vector<pid_t>& own = {}) {
  return ras_witness(kThere, answer, "", own).line;
}

TEST(NcclRas, TellsWhichProcessesAreMissing) {
  EXPECT_EQ(line_of(status_of(communicator(
                3, well(0, 11), missing(1, 12, true, false) + "," + missing(2, 13, true, true)))),
            "considered dead: process 13 on 10.0.0.2 (rank 2 of 3); "
            "not responding: process 12 on 10.0.0.2 (rank 1 of 3)");
}

TEST(NcclRas, NamesAnAsynchronousError) {
  EXPECT_EQ(line_of(status_of(communicator(2, well(0, 11) + "," + well(1, 12, 6), ""))),
            "asynchronous error ncclRemoteError: process 12 on 10.0.0.1 (rank 1 of 2)");
  EXPECT_EQ(line_of(status_of(communicator(2, well(1, 12, 99), ""))),
            "asynchronous error ncclResult_t 99: process 12 on 10.0.0.1 (rank 1 of 2)");
}

TEST(NcclRas, SaysNothingOfAJobThatIsWell) {
  // Still in progress; and not in the communicator any more, as while it is torn down.
  EXPECT_EQ(line_of(status_of(communicator(2, well(0, 11, 7), missing(1, 12, false, false)))), "");
  EXPECT_EQ(line_of(status_of("")), "");
}

TEST(NcclRas, NamesAProcessOnceAsARankOfTheLargestCommunicator) {
  EXPECT_EQ(line_of(status_of(communicator(2, "", missing(1, 12, true, false)) + "," +
                              communicator(8, "", missing(5, 12, true, false)))),
            "not responding: process 12 on 10.0.0.2 (rank 5 of 8)");
}

TEST(NcclRas, NamesAFewOfManyProcesses) {
  std::string many;
  for (int rank = 0; rank < 100; ++rank)
    many += (rank == 0 ? "" : ",") + missing(rank, 1000 + rank, true, false);
  EXPECT_EQ(line_of(status_of(communicator(100, "", many))),
            "not responding: process 1000 on 10.0.0.2 (rank 0 of 100), process 1001 on 10.0.0.2 "
            "(rank 1 of 100), process 1002 on 10.0.0.2 (rank 2 of 100), process 1003 on 10.0.0.2 "
            "(rank 3 of 100) and 96 more");
}

TEST(NcclRas, KeepsTheAnswerForTheBundle) {
  const std::string answer = status_of(communicator(2, well(0, 11), ""));
  const RasJson member = RasJson::parse(ras_witness(kThere, answer, "", {11, 12}).member);
  EXPECT_EQ(
      member,
      (RasJson{{"address", kThere}, {"answer", RasJson::parse(answer)}, {"why_none", nullptr}}));
}

TEST(NcclRas, DoesNotSpeakOfAnotherJob) {
  const std::string answer = status_of(communicator(2, well(0, 11), missing(1, 12, true, false)));
  EXPECT_NE(line_of(answer, {12}), "");
  const RasWitness witness = ras_witness(kThere, answer, "", {4711});
  EXPECT_EQ(witness.line, "");
  const RasJson member = RasJson::parse(witness.member);
  EXPECT_TRUE(member["answer"].is_object());
  EXPECT_EQ(member["why_none"], "it names no process of this node: it may be another job's");
}

TEST(NcclRas, KeepsTextThatWasCut) {
  const std::string whole = status_of(communicator(2, "", missing(1, 12, true, true)));
  for (size_t size = 1; size < whole.size(); ++size) {
    const RasWitness witness = ras_witness(kThere, whole.substr(0, size), "its end is missing", {});
    EXPECT_EQ(witness.line, "") << size;
    const RasJson member = RasJson::parse(witness.member);
    EXPECT_EQ(member["answer"], whole.substr(0, size));
    EXPECT_EQ(member["why_none"], "its end is missing");
  }
}

TEST(NcclRas, TakesAnythingForAnAnswer) {
  const std::string deep(200'000, '[');
  const std::string objects = status_of(deep + std::string(200'000, ']'));
  for (const std::string& answer :
       {std::string("garbage"), std::string("{}"), std::string("[]"), std::string("null"), deep,
        objects, std::string("\0\xff\x1b]0;title\a\n", 12), status_of("7"), status_of("{}"),
        status_of(communicator(2, "null", "")),
        status_of(communicator(2, R"({"rank": 1e300, "host": [], "pid": -7})", ""))}) {
    const RasWitness witness = ras_witness(kThere, answer, "", {});
    EXPECT_EQ(witness.line, "");
    EXPECT_TRUE(RasJson::accept(witness.member));
    EXPECT_LE(witness.member.size(), kRasMemberBytesMax);
  }
}

TEST(NcclRas, PrintsNoForeignByteThatMovesTheCursor) {
  const std::string host = R"(a\u001b[2Jb\n\u0000muster: all is well)";
  const std::string line =
      line_of(status_of(communicator(2, "", missing(1, 12, true, false, host))));
  EXPECT_EQ(line.find_first_of(std::string_view("\x1b\n\0", 3)), std::string::npos) << line;
}

TEST(NcclRas, LeavesHealthyRanksOutOfALongAnswer) {
  std::string ranks = well(0, 10, 2);
  for (int rank = 1; rank < 2000; ++rank)
    ranks += "," + well(rank, 10 + rank);
  const RasWitness witness = ras_witness(
      kThere, status_of(communicator(2001, ranks, missing(2000, 1, true, true))), "", {11});
  EXPECT_EQ(witness.line,
            "asynchronous error ncclSystemError: process 10 on 10.0.0.1 (rank 0 of 2001); "
            "considered dead: process 1 on 10.0.0.2 (rank 2000 of 2001)");
  const RasJson answer = RasJson::parse(witness.member)["answer"];
  EXPECT_EQ(answer["communicators"][0]["ranks"].size(), 1U);
  EXPECT_EQ(answer["communicators"][0]["missing_ranks"].size(), 1U);
}

TEST(NcclRas, KeepsTheBeginningOfALongText) {
  const RasWitness witness = ras_witness(kThere, std::string(1 << 20, '\x01'), "", {});
  EXPECT_LE(witness.member.size(), kRasMemberBytesMax);
  EXPECT_TRUE(RasJson::parse(witness.member)["answer"].get<std::string>().ends_with("..."));
}

TEST(NcclRas, SaysWhyThereIsNoAnswer) {
  EXPECT_EQ(
      RasJson::parse(ras_silent("", "NCCL_RAS_ENABLE=0").member),
      (RasJson{{"address", nullptr}, {"answer", nullptr}, {"why_none", "NCCL_RAS_ENABLE=0"}}));
}

TEST(NcclRas, GoesThroughThePipeOfTheChild) {
  const RasWitness sent =
      ras_witness(kThere, status_of(communicator(2, "", missing(1, 12, true, true))), "", {});
  const std::string printed = encode_ras(sent);
  const RasWitness got = decode_ras(kThere, printed);
  EXPECT_EQ(got.line, sent.line);
  EXPECT_EQ(got.member, sent.member);
  for (size_t size = 0; size < printed.size(); ++size) {
    const RasWitness cut = decode_ras(kThere, printed.substr(0, size));
    EXPECT_EQ(cut.line, "");
    EXPECT_EQ(RasJson::parse(cut.member)["why_none"], "the process that asks it has failed");
  }
}

}  // namespace
}  // namespace muster::hang

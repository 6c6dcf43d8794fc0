#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <stdlib.h>

#include "rendezvous/backends/file_finder.h"
#include "rendezvous/backends/host_record.h"
#include "rendezvous/backends/record_file.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

class SharedFolder {
 public:
  SharedFolder() {
    std::string pattern = (fs::temp_directory_path() / "muster_file_test_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  ~SharedFolder() { fs::remove_all(path_); }

  std::string file() const { return (path_ / "meet").string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }

 private:
  fs::path path_;
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

HostRecord record_of(uint64_t instance, int port) {
  HostRecord record;
  record.instance = instance;
  record.machine = "boot/1";
  record.host_name = "node0";
  record.addresses = {{IpAddress::loopback_v4(), static_cast<uint16_t>(port)}};
  return record;
}

RendezvousOptions file_options(const SharedFolder& folder, int nodes_min, int nodes_max) {
  RendezvousOptions options = endpoint_options(0, nodes_min, nodes_max);
  options.way = RendezvousOptions::Way::file;
  options.host = folder.file();
  options.local_addr = "127.0.0.1";
  return options;
}

// ---- the record

TEST(HostRecord, WhatIsWrittenIsReadBack) {
  HostRecord record = record_of(0xfeed, 29500);
  record.beat = 77;
  record.claim = "meet.after-1";
  record.addresses.push_back(*SocketAddress::parse("[fd00::1]:29500"));
  EXPECT_EQ(decode_record(encode(record)), record);
}

TEST(HostRecord, NoPartOfARecordIsTakenForARecord) {
  const std::string whole = encode(record_of(1, 29500));
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_EQ(decode_record(whole.substr(0, length)), std::nullopt) << length;
}

TEST(HostRecord, OtherFilesAreNoRecords) {
  for (const char* text :
       {"", "x", "muster-rendezvous 2\nbeat 0000000000000000\nend\n",
        "muster-rendezvous 1\nbeat 0000000000000000\nend\n",
        "muster-rendezvous 1\nbeat zzzzzzzzzzzzzzzz\ninstance 1\nend\n",
        "muster-rendezvous 1\nbeat end\n",
        "muster-rendezvous 1\nbeat 0000000000000000\ninstance 1\naddress x\nend\n"})
    EXPECT_EQ(decode_record(text), std::nullopt) << text;
}

TEST(HostRecord, AHostNameCannotForgeALine) {
  HostRecord record = record_of(1, 29500);
  record.host_name = "node\naddress 10.0.0.1:1";
  const auto read = decode_record(encode(record));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->addresses, record.addresses);
}

// ---- who may write it

TEST(RecordFile, OfManyWhoSawNothingExactlyOneWins) {
  const SharedFolder folder;
  const Result<RecordFound> found = RecordFile(folder.file()).look();
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (RecordFound{std::nullopt, false, 0, folder.file()}));
  RecordFile first(folder.file());
  RecordFile second(folder.file());
  EXPECT_EQ(first.take(*found, record_of(1, 1001)), true);
  EXPECT_EQ(second.take(*found, record_of(2, 1002)), false);
  const auto now = RecordFile(folder.file()).look();
  ASSERT_TRUE(now && now->record);
  EXPECT_EQ(now->record->instance, 1u);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"meet"});
}

TEST(RecordFile, ADeadHostIsFollowedByExactlyOne) {
  const SharedFolder folder;
  RecordFile dead(folder.file());
  ASSERT_EQ(dead.take(*dead.look(), record_of(1, 1001)), true);
  const auto found = RecordFile(folder.file()).look();
  RecordFile first(folder.file());
  RecordFile second(folder.file());
  EXPECT_EQ(first.take(*found, record_of(2, 1002)), true);
  EXPECT_EQ(second.take(*found, record_of(3, 1003)), false);
  EXPECT_EQ(RecordFile(folder.file()).look()->record->instance, 2u);
}

TEST(RecordFile, WhoeverWasTooSlowRetreatsThoughItsLinkCouldBeMade) {
  const SharedFolder folder;
  RecordFile dead(folder.file());
  ASSERT_EQ(dead.take(*dead.look(), record_of(1, 1001)), true);
  const auto found = RecordFile(folder.file()).look();
  {
    RecordFile brief(folder.file());
    ASSERT_EQ(brief.take(*found, record_of(2, 1002)), true);
    brief.remove();
  }
  RecordFile slow(folder.file());
  EXPECT_EQ(slow.take(*found, record_of(3, 1003)), false);
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
}

TEST(RecordFile, AWinnerThatDiedBeforeItRenamedItsRecordIsFollowedToo) {
  const SharedFolder folder;
  folder.write("meet", encode(record_of(1, 1001)));
  folder.write("meet.after-0000000000000001", encode(record_of(2, 1002)));
  const auto found = RecordFile(folder.file()).look();
  ASSERT_TRUE(found && found->record);
  EXPECT_EQ(found->record->instance, 2u);
  EXPECT_EQ(found->head, 1u);
  RecordFile next(folder.file());
  EXPECT_EQ(next.take(*found, record_of(3, 1003)), true);
  EXPECT_EQ(RecordFile(folder.file()).look()->record->instance, 3u);
}

TEST(RecordFile, AnEmptyFileIsAsGoodAsNone) {
  const SharedFolder folder;
  folder.write("meet", "");
  const auto found = RecordFile(folder.file()).look();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->record, std::nullopt);
  RecordFile mine(folder.file());
  EXPECT_EQ(mine.take(*found, record_of(5, 1005)), true);
  EXPECT_EQ(RecordFile(folder.file()).look()->record->instance, 5u);
}

TEST(RecordFile, ABeatGoesIntoOurOwnRecordOnly) {
  const SharedFolder folder;
  RecordFile old(folder.file());
  ASSERT_EQ(old.take(*old.look(), record_of(1, 1001)), true);
  old.write_beat(9);
  EXPECT_EQ(RecordFile(folder.file()).look()->record->beat, 9u);
  RecordFile next(folder.file());
  ASSERT_EQ(next.take(*RecordFile(folder.file()).look(), record_of(2, 1002)), true);
  const std::string before = text_of(folder.file());
  old.write_beat(10);
  old.remove();
  EXPECT_EQ(text_of(folder.file()), before);
}

TEST(RecordFile, SomebodyElsesFileIsNeverTouched) {
  const SharedFolder folder;
  folder.write("meet", "my thesis");
  const auto found = RecordFile(folder.file()).look();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ExitCode::environment);
  EXPECT_EQ(text_of(folder.file()), "my thesis");
}

TEST(RecordFile, AFolderThatIsNotThereIsSaid) {
  const SharedFolder folder;
  RecordFile file(folder.file() + "/no/such");
  const auto found = file.look();
  // A missing file is normal, so only writing finds out.
  ASSERT_TRUE(found);
  const auto taken = file.take(*found, record_of(1, 1001));
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ExitCode::environment);
}

// ---- whole agents

Agents start_file_agents(boost::asio::io_context& loop, const RendezvousOptions& options,
                         int count) {
  Agents agents;
  for (int i = 0; i < count; ++i) {
    agents.push_back(std::make_unique<TestAgent>(loop, options));
    agents.back()->meeting().ready();
  }
  return agents;
}

TEST(FileMeeting, AgentsThatShareAFileFormARoundAndLeaveNothingBehind) {
  const SharedFolder folder;
  boost::asio::io_context loop;
  const Agents agents = start_file_agents(loop, file_options(folder, 4, 4), 4);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  for (const auto& agent : agents) {
    EXPECT_EQ(agent->rounds[0].nodes, 4);
    agent->meeting().workers_done(agent->rounds[0].epoch);
  }
  for (const auto& agent : agents) {
    ASSERT_TRUE(agent->wait_end());
    EXPECT_TRUE(agent->close_and_wait());
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
}

TEST(FileMeeting, TheFileOfACrashedJobIsTakenOver) {
  const SharedFolder folder;
  boost::asio::io_context loop;
  {
    Agents crashed = start_file_agents(loop, file_options(folder, 2, 2), 2);
    ASSERT_TRUE(all_have_rounds(loop, crashed, 1));
    for (const auto& agent : crashed)
      agent->kill();
  }
  EXPECT_NE(folder.names(), std::vector<std::string>{});
  const Agents agents = start_file_agents(loop, file_options(folder, 2, 2), 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  EXPECT_EQ(agents[0]->rounds[0].nodes, 2);
}

TEST(FileMeeting, AKilledHostIsFollowedByAnotherAgent) {
  const SharedFolder folder;
  boost::asio::io_context loop;
  RendezvousOptions options = file_options(folder, 2, 3);
  options.join.last_call = std::chrono::seconds(5);
  const Agents agents = start_file_agents(loop, options, 3);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  for (const auto& agent : agents) {
    if (agent->rounds[0].node_rank == 0) agent->kill();
  }
  for (const auto& agent : agents) {
    if (!agent->was_made()) continue;
    ASSERT_TRUE(agent->wait_stops(1));
    agent->meeting().ready();
  }
  for (const auto& agent : agents) {
    if (!agent->was_made()) continue;
    ASSERT_TRUE(agent->wait_rounds(2));
    EXPECT_GT(agent->rounds[1].epoch, agent->rounds[0].epoch);
  }
}

TEST(FileMeeting, AnAddressWhereAnotherHostAnswersIsNotBelieved) {
  const SharedFolder folder;
  boost::asio::io_context loop;
  // Another job's host has got the port that the dead host had.
  RendezvousOptions other = endpoint_options(free_port(), 2, 2);
  other.is_host = true;
  TestAgent stranger(loop, other);
  stranger.meeting().ready();
  folder.write("meet", encode(record_of(1, other.port)));
  const Agents agents = start_file_agents(loop, file_options(folder, 2, 2), 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  EXPECT_EQ(agents[0]->rounds[0].nodes, 2);
  EXPECT_NE(agents[0]->rounds[0].master_port, other.port);
  EXPECT_TRUE(stranger.rounds.empty());
}

TEST(FileMeeting, APathThatIsNoRendezvousFileEndsTheWaitingAtOnce) {
  const SharedFolder folder;
  folder.write("meet", "my thesis");
  boost::asio::io_context loop;
  TestAgent agent(loop, file_options(folder, 2, 2));
  agent.meeting().ready();
  ASSERT_TRUE(agent.wait_error());
  EXPECT_EQ(agent.errors[0].code, ExitCode::environment);
  EXPECT_NE(agent.errors[0].message.find(folder.file()), std::string::npos);
}

}  // namespace
}  // namespace muster

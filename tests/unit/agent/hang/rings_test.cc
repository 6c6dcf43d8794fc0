#include "agent/hang/rings.h"

#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/ring/ring_writer.h"
#include "tests/in_child.h"

namespace muster {
namespace {

using test::exit_code_of_child;

class RingsTest : public testing::Test {
 protected:
  std::vector<std::string> said_;
  Rings rings_{true, [this](const std::string& line) { said_.push_back(line); }};
};

TEST_F(RingsTest, AreFreshAndEmpty) {
  rings_.begin_attempt(3);
  const auto first = rings_.make(0);
  rings_.close_descriptor();
  const auto second = rings_.make(2);
  ASSERT_TRUE(first && second);
  EXPECT_GE(first->fd, ring::kLowestRecordFd);
  EXPECT_NE(first->nonce, second->nonce);
  ASSERT_NE(rings_.reader(0), nullptr);
  EXPECT_EQ(rings_.reader(1), nullptr);
  EXPECT_EQ(rings_.reader(0)->state(), std::nullopt);
  EXPECT_EQ(said_, std::vector<std::string>());
}

// Otherwise the workers of a large node would use up its descriptors.
TEST_F(RingsTest, HaveTheSameDescriptorInAllWorkers) {
  rings_.begin_attempt(2);
  const int first = rings_.make(0).value().fd;
  EXPECT_GE(fcntl(first, F_GETFD), 0);
  rings_.close_descriptor();
  EXPECT_LT(fcntl(first, F_GETFD), 0);
  EXPECT_EQ(rings_.make(1).value().fd, first);
}

TEST_F(RingsTest, OutliveTheirWorkersUntilTheNextAttempt) {
  rings_.begin_attempt(1);
  const auto record_fd = rings_.make(0);
  ASSERT_TRUE(record_fd);
  const pid_t child = fork();
  if (child == 0) {
    std::string why;
    const auto writer =
        ring::RingWriter::attach(to_text(*record_fd), ring::Source::worker_lib, why);
    if (!writer) _exit(1);
    writer->open_group({.id = "world", .name = "world", .ranks = "0", .size = 1, .own_rank = 0});
    raise(SIGKILL);
  }
  rings_.close_descriptor();
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto state = rings_.reader(0)->state();
  ASSERT_TRUE(state);
  EXPECT_EQ(state->owner, child);
  ASSERT_EQ(state->groups.size(), 1U);
  EXPECT_EQ(state->groups[0].name, "world");
  rings_.begin_attempt(1);
  EXPECT_EQ(rings_.reader(0), nullptr);
}

TEST_F(RingsTest, ReportOnceWhyTheyAreMissing) {
  EXPECT_EQ(exit_code_of_child([this] {
              const rlimit low{64, 64};
              setrlimit(RLIMIT_NOFILE, &low);
              rings_.begin_attempt(2);
              if (rings_.make(0) || rings_.make(1) || rings_.reader(0) != nullptr) return 1;
              rings_.begin_attempt(1);
              if (rings_.make(0)) return 2;
              const bool said = said_.size() == 1 &&
                                said_[0].starts_with(
                                    "calls are not recorded, so a hang is not "
                                    "explained: cannot ") &&
                                said_[0].find("ulimit -n") != std::string::npos;
              return said ? 0 : 3;
            }),
            0);
}

// "FDSize" of proc(5).
int room_for_descriptors() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("FDSize:")) return std::stoi(line.substr(7));
  }
  return -1;
}

// Once the process has several threads, that takes a hundred times as long.
TEST(Rings, MakeRoomForTheirDescriptorsAtOnce) {
  const auto make = [] {
    const int before = room_for_descriptors();
    const Rings none(false, [](const std::string&) {});
    if (before > ring::kLowestRecordFd || room_for_descriptors() != before) return 1;
    const Rings wanted(true, [](const std::string&) {});
    return room_for_descriptors() > ring::kLowestRecordFd ? 0 : 2;
  };
  // A child starts with a descriptor table of the size that its parent needs.
  EXPECT_EQ(exit_code_of_child([&make] {
              close_range(64, ~0U, 0);
              return exit_code_of_child(make);
            }),
            0);
}

TEST(Rings, AreNotMadeIfNotWanted) {
  Rings rings(false, [](const std::string&) { FAIL(); });
  rings.begin_attempt(1);
  EXPECT_EQ(rings.make(0), std::nullopt);
  EXPECT_EQ(rings.reader(0), nullptr);
}

// Whether it attaches before or after the warning, in this attempt or in a later one.
TEST_F(RingsTest, PassAWarningToEveryRank) {
  rings_.begin_attempt(2);
  std::string why;
  const auto attach = [&](int local_rank) {
    auto writer = ring::RingWriter::attach(ring::to_text(*rings_.make(local_rank)),
                                           ring::Source::worker_lib, why);
    EXPECT_NE(writer, nullptr) << why;
    return writer;
  };
  const auto early = attach(0);
  const auto record_fd = rings_.make(1);
  EXPECT_FALSE(early->is_warned());
  rings_.warn();
  EXPECT_TRUE(early->is_warned());
  const auto late =
      ring::RingWriter::attach(ring::to_text(*record_fd), ring::Source::worker_lib, why);
  ASSERT_NE(late, nullptr) << why;
  EXPECT_TRUE(late->is_warned());
  rings_.begin_attempt(1);
  EXPECT_TRUE(attach(0)->is_warned());
}

}  // namespace
}  // namespace muster

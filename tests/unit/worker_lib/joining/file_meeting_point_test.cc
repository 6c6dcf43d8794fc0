// The file through which ranks find each other: its content, which users may write it, and when it
// is stale.
#include "worker_lib/joining/file_meeting_point.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fakes/temp_tree.h"
#include "tests/unit/worker_lib/joining/ended_process.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;

class WorkerMeetingFile : public testing::Test {
 protected:
  WorkerMeetingFile() : path_(folder_.root().string() + "/meeting") {}

  static MeetingRecord record() {
    MeetingRecord record;
    record.nonce = 42;
    record.port = 4711;
    record.addresses = {"10.0.0.1", "fd00::1"};
    record.node = node_identity();
    record.life = life_of_process(getpid());
    record.host = "node 7";
    return record;
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  bool is_there() const { return std::filesystem::exists(path_); }

  TempTree folder_;
  std::string path_;
};

TEST_F(WorkerMeetingFile, ARecordSurvivesEncoding) {
  EXPECT_EQ(MeetingRecord::decode(record().encode()), record());
  MeetingRecord at_server = record();
  at_server.is_at_server = true;
  at_server.secret = "a secret";
  EXPECT_EQ(MeetingRecord::decode(at_server.encode()), at_server);
}

TEST_F(WorkerMeetingFile, ATruncatedRecordIsRefused) {
  const std::string text = record().encode();
  for (size_t length = 0; length < text.size(); ++length)
    ASSERT_EQ(MeetingRecord::decode(text.substr(0, length)), std::nullopt) << length;
  std::printf("%zu cuts\n", text.size());
}

TEST_F(WorkerMeetingFile, AppearsWhenPublishedAndIsRemovedByItsOwner) {
  EXPECT_EQ(look_at_meeting_file(path_, false).value(), std::nullopt) << "there is no file yet";
  {
    Outcome<FileMeetingPoint> mine = FileMeetingPoint::open(path_, false);
    ASSERT_TRUE(mine.has_value()) << mine.error().message;
    EXPECT_EQ(look_at_meeting_file(path_, false).value(), std::nullopt) << "it is empty";
    ASSERT_TRUE(mine->publish(record()).has_value());
    EXPECT_EQ(look_at_meeting_file(path_, false).value(), record());
  }
  EXPECT_FALSE(is_there());
}

TEST_F(WorkerMeetingFile, IsStaleOnceItsLockIsGone) {
  write(record().encode());
  EXPECT_EQ(look_at_meeting_file(path_, false).value(), std::nullopt);
}

TEST_F(WorkerMeetingFile, IsStaleIfItsProcessEndedDespiteTheLock) {
  MeetingRecord old = record();
  old.life = ended_process();
  Outcome<FileMeetingPoint> holder = FileMeetingPoint::open(path_, false);
  ASSERT_TRUE(holder && holder->publish(old));
  EXPECT_EQ(look_at_meeting_file(path_, false).value(), std::nullopt);
}

TEST_F(WorkerMeetingFile, IsTrustedIfItIsOfAnotherMachine) {
  MeetingRecord far = record();
  far.life.boot = "another machine";
  write(far.encode());
  EXPECT_EQ(look_at_meeting_file(path_, false).value(), far);
}

TEST_F(WorkerMeetingFile, AStaleFileIsTakenOver) {
  MeetingRecord old = record();
  old.nonce = 41;
  write(old.encode() + "more than the new one will have");
  {
    std::ofstream(path_, std::ios::trunc) << old.encode();
  }
  Outcome<FileMeetingPoint> mine = FileMeetingPoint::open(path_, false);
  ASSERT_TRUE(mine.has_value()) << mine.error().message;
  ASSERT_TRUE(mine->publish(record()).has_value());
  EXPECT_EQ(look_at_meeting_file(path_, false).value(), record());
}

TEST_F(WorkerMeetingFile, IsRefusedByNameIfItsJobIsAlive) {
  Outcome<FileMeetingPoint> mine = FileMeetingPoint::open(path_, false);
  ASSERT_TRUE(mine && mine->publish(record()));
  const Outcome<FileMeetingPoint> second = FileMeetingPoint::open(path_, false);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::environment);
  EXPECT_THAT(second.error().message,
              HasSubstr("is in use by pid " + std::to_string(getpid()) + " on node 7"));
}

TEST_F(WorkerMeetingFile, AForeignFileIsNotOverwritten) {
  write("precious\n");
  const Outcome<FileMeetingPoint> mine = FileMeetingPoint::open(path_, false);
  ASSERT_FALSE(mine.has_value());
  EXPECT_THAT(mine.error().message, HasSubstr("is not a meeting file"));
  std::string kept;
  std::getline(std::ifstream(path_), kept);
  EXPECT_EQ(kept, "precious");
}

// Rank 0 refuses such a file, so a reader that kept polling would wait for its whole timeout.
TEST_F(WorkerMeetingFile, ReadersRefuseAForeignFilePipeOrFolder) {
  const auto told = [&](const std::string& path) {
    const auto looked = look_at_meeting_file(path, false);
    return looked ? std::string("nothing") : looked.error().message;
  };
  const std::string precious = folder_.root().string() + "/precious";
  std::ofstream(precious) << "precious\n";
  EXPECT_EQ(told(precious), precious + " is not a meeting file: remove it, or choose another path");
  const std::string pipe = folder_.root().string() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(told(pipe), HasSubstr("is not a meeting file"));
  EXPECT_THAT(told(folder_.root().string()), HasSubstr("is not a meeting file"));
  EXPECT_FALSE(FileMeetingPoint::open(pipe, false).has_value());
  EXPECT_FALSE(FileMeetingPoint::open(folder_.root().string(), false).has_value());
}

TEST_F(WorkerMeetingFile, IsRefusedIfOtherUsersMayWriteIt) {
  write(record().encode());
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  const auto looked = look_at_meeting_file(path_, false);
  ASSERT_FALSE(looked.has_value());
  EXPECT_THAT(looked.error().message, HasSubstr("can be written by other users (mode 0666)"));
  const auto opened = FileMeetingPoint::open(path_, false);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().message, looked.error().message);
  EXPECT_TRUE(is_there());
}

TEST_F(WorkerMeetingFile, APartlyWrittenFileHoldsNoRecordYet) {
  const std::string text = record().encode();
  for (size_t length = 0; length < text.size(); ++length) {
    std::ofstream(path_, std::ios::trunc) << text.substr(0, length);
    const auto looked = look_at_meeting_file(path_, false);
    ASSERT_TRUE(looked) << length << looked.error().message;
    ASSERT_EQ(*looked, std::nullopt) << length;
  }
}

TEST_F(WorkerMeetingFile, AMissingFolderIsAnErrorAtOnce) {
  const std::string path = folder_.root().string() + "/none/meeting";
  const Outcome<FileMeetingPoint> mine = FileMeetingPoint::open(path, false);
  ASSERT_FALSE(mine.has_value());
  EXPECT_EQ(mine.error().code, ErrorCode::environment);
  EXPECT_THAT(mine.error().message, HasSubstr("No such file or directory"));
  EXPECT_FALSE(look_at_meeting_file(path, false).has_value());
}

TEST_F(WorkerMeetingFile, CreatesItsFolderForThisUserAlone) {
  const std::string folder = folder_.root().string() + "/own";
  EXPECT_EQ(look_at_meeting_file(folder + "/job", true).value(), std::nullopt);
  const Outcome<FileMeetingPoint> mine = FileMeetingPoint::open(folder + "/job", true);
  ASSERT_TRUE(mine.has_value()) << mine.error().message;
  struct stat info{};
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
}

TEST_F(WorkerMeetingFile, AFolderThatOthersCanWriteIsRefused) {
  const std::string folder = folder_.root().string() + "/open";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder.c_str(), 0777), 0);
  std::ofstream(folder + "/job") << record().encode();
  const Outcome<FileMeetingPoint> mine = FileMeetingPoint::open(folder + "/job", true);
  ASSERT_FALSE(mine.has_value());
  EXPECT_THAT(mine.error().message, HasSubstr("is not a folder of this user alone"));
  EXPECT_FALSE(look_at_meeting_file(folder + "/job", true).has_value());
}

TEST_F(WorkerMeetingFile, AFolderThatIsALinkIsRefused) {
  const std::string folder = folder_.root().string() + "/link";
  ASSERT_EQ(mkdir((folder_.root().string() + "/real").c_str(), 0700), 0);
  ASSERT_EQ(symlink((folder_.root().string() + "/real").c_str(), folder.c_str()), 0);
  EXPECT_FALSE(FileMeetingPoint::open(folder + "/job", true).has_value());
}

TEST_F(WorkerMeetingFile, TheOwnerOfARemovedFileKeepsTheNextOne) {
  Outcome<FileMeetingPoint> mine = FileMeetingPoint::open(path_, false);
  ASSERT_TRUE(mine.has_value());
  ASSERT_EQ(unlink(path_.c_str()), 0);
  Outcome<FileMeetingPoint> next = FileMeetingPoint::open(path_, false);
  ASSERT_TRUE(next && next->publish(record()));
  {
    const FileMeetingPoint gone = std::move(*mine);
  }
  EXPECT_EQ(look_at_meeting_file(path_, false).value(), record());
}

}  // namespace
}  // namespace muster::worker

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "rendezvous/backends/file_keeper.h"
#include "tests/unit/rendezvous/backends/shared_folder.h"

namespace muster {
namespace {

using Names = std::vector<std::string>;

TEST(RecordFile, OneOfTwoThatSawNoHostWins) {
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
  EXPECT_EQ(folder.names(), Names{"meet"});
}

TEST(RecordFile, OneOfTwoReplacesADeadHost) {
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

TEST(RecordFile, ALateTakeRetreatsEvenIfItsLinkSucceeds) {
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
  EXPECT_EQ(folder.names(), Names{});
}

TEST(RecordFile, AWinnerThatDiedBeforeItsRenameIsReplaced) {
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

TEST(RecordFile, AnEmptyFileCountsAsMissing) {
  const SharedFolder folder;
  folder.write("meet", "");
  const auto found = RecordFile(folder.file()).look();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->record, std::nullopt);
  RecordFile mine(folder.file());
  EXPECT_EQ(mine.take(*found, record_of(5, 1005)), true);
  EXPECT_EQ(RecordFile(folder.file()).look()->record->instance, 5u);
}

TEST(RecordFile, ABeatGoesOnlyIntoOurOwnRecord) {
  const SharedFolder folder;
  RecordFile old(folder.file());
  ASSERT_EQ(old.take(*old.look(), record_of(1, 1001)), true);
  old.write_beat(9);
  EXPECT_EQ(RecordFile(folder.file()).look()->record->beat, 9u);
  RecordFile next(folder.file());
  ASSERT_EQ(next.take(*RecordFile(folder.file()).look(), record_of(2, 1002)), true);
  const std::string before = folder.text();
  old.write_beat(10);
  old.remove();
  EXPECT_EQ(folder.text(), before);
}

TEST(RecordFile, AForeignFileIsNeverTouched) {
  const SharedFolder folder;
  folder.write("meet", "my thesis");
  const auto found = RecordFile(folder.file()).look();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ExitCode::environment);
  EXPECT_EQ(folder.text(), "my thesis");
}

TEST(RecordFile, AFileThatOthersCanWriteIsRefused) {
  const SharedFolder folder;
  folder.write("meet", encode(record_of(1, 1001)));
  ASSERT_EQ(chmod(folder.file().c_str(), 0666), 0);
  const auto found = RecordFile(folder.file()).look();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ExitCode::environment);
  EXPECT_EQ(found.error().message,
            "the rendezvous file " + folder.file() +
                " can be written by other users (mode 0666): what it says is not believed; chmod "
                "go-w it; or choose another path");
}

TEST(RecordFile, TheFirstRecordIsItsOwnClaim) {
  const SharedFolder folder;
  RecordFile host(folder.file());
  ASSERT_EQ(host.take(*host.look(), record_of(1, 1001)), true);
  EXPECT_EQ(folder.text(), encode(record_of(1, 1001)));
  EXPECT_EQ(*RecordFile(folder.file()).look(),
            (RecordFound{record_of(1, 1001), true, 1, folder.file() + ".after-0000000000000001"}));
}

TEST(RecordFile, ASuccessorNamesItsClaim) {
  const SharedFolder folder;
  RecordFile dead(folder.file());
  ASSERT_EQ(dead.take(*dead.look(), record_of(0xabc, 1001)), true);
  RecordFile next(folder.file());
  ASSERT_EQ(next.take(*next.look(), record_of(2, 1002)), true);
  HostRecord expected = record_of(2, 1002);
  expected.claim = "meet.after-0000000000000abc";
  EXPECT_EQ(folder.text(), encode(expected));
  EXPECT_EQ(folder.names(), (Names{"meet", "meet.after-0000000000000abc"}));
}

TEST(RecordFile, AnyNumberOfHostsLeavesOnlyTheLastClaim) {
  const SharedFolder folder;
  for (uint64_t instance = 1; instance <= 6; ++instance) {
    RecordFile host(folder.file());
    ASSERT_EQ(host.take(*host.look(), record_of(instance, 1001)), true);
  }
  EXPECT_EQ(folder.names(), (Names{"meet", "meet.after-0000000000000005"}));
}

TEST(RecordFile, AHostThatEndsTheJobLeavesNothing) {
  const SharedFolder folder;
  RecordFile dead(folder.file());
  ASSERT_EQ(dead.take(*dead.look(), record_of(1, 1001)), true);
  RecordFile last(folder.file());
  ASSERT_EQ(last.take(*last.look(), record_of(2, 1002)), true);
  last.remove();
  last.remove();
  EXPECT_EQ(folder.names(), Names{});
}

TEST(RecordFile, ALoserRemovesNothing) {
  const SharedFolder folder;
  RecordFile host(folder.file());
  ASSERT_EQ(host.take(*host.look(), record_of(1, 1001)), true);
  RecordFile late(folder.file());
  ASSERT_EQ(late.take({std::nullopt, false, 0, folder.file()}, record_of(2, 1002)), false);
  late.remove();
  EXPECT_EQ(folder.text(), encode(record_of(1, 1001)));
}

TEST(RecordFile, ABeatChangesOnlyItsDigits) {
  const SharedFolder folder;
  RecordFile host(folder.file());
  HostRecord record = record_of(1, 1001);
  ASSERT_EQ(host.take(*host.look(), record), true);
  for (const uint64_t beat : {uint64_t{1}, uint64_t{0xffffffffffffffff}, uint64_t{2}}) {
    host.write_beat(beat);
    record.beat = beat;
    EXPECT_EQ(folder.text(), encode(record));
  }
}

// The record of a host that died before its rename is at the end of the chain.
TEST(RecordFile, TheChainIsFollowedToItsEnd) {
  const SharedFolder folder;
  folder.write("meet", encode(record_of(1, 1001)));
  folder.write("meet.after-0000000000000001", encode(record_of(2, 1002)));
  folder.write("meet.after-0000000000000002", encode(record_of(3, 1003)));
  folder.write("meet.after-0000000000000007", encode(record_of(8, 1008)));  // Another chain.
  EXPECT_EQ(*RecordFile(folder.file()).look(),
            (RecordFound{record_of(3, 1003), true, 1, folder.file() + ".after-0000000000000003"}));
}

TEST(RecordFile, ACircularChainIsAnError) {
  const SharedFolder folder;
  folder.write("meet", encode(record_of(1, 1001)));
  folder.write("meet.after-0000000000000001", encode(record_of(1, 1001)));
  const auto found = RecordFile(folder.file()).look();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error(),
            (Error{ExitCode::environment, "too many files " + folder.file() +
                                              ".after-…: remove them and " + folder.file()}));
}

TEST(RecordFile, AForeignFileInTheChainIsNamed) {
  const SharedFolder folder;
  folder.write("meet", encode(record_of(1, 1001)));
  folder.write("meet.after-0000000000000001", "my thesis");
  EXPECT_EQ(RecordFile(folder.file()).look().error(),
            (Error{ExitCode::environment,
                   folder.file() + ".after-0000000000000001 is not a rendezvous file of muster: "
                                   "remove it, or choose another path"}));
}

TEST(RecordFile, ATooLongFileIsNoRecord) {
  const SharedFolder folder;
  std::string text = encode(record_of(1, 1001));
  text.insert(text.find("machine"), "x " + std::string(kRecordBytesMax, 'x') + "\n");
  folder.write("meet", text);
  EXPECT_EQ(RecordFile(folder.file()).look().error().code, ExitCode::environment);
}

TEST(RecordFile, AFolderInItsPlaceOrAMissingFolderIsAnError) {
  const SharedFolder folder;
  std::filesystem::create_directory(folder.file());
  std::filesystem::permissions(folder.file(), std::filesystem::perms::all);  // As /tmp is.
  EXPECT_EQ(RecordFile(folder.file()).look().error(),
            (Error{ExitCode::environment,
                   "cannot read the rendezvous file " + folder.file() +
                       ": Is a directory; all nodes need a path that they share and can write"}));
  const std::string path = folder.file() + "/no/such";
  RecordFile file(path);
  const auto found = file.look();
  ASSERT_TRUE(found);  // A missing file is normal, so only writing detects it.
  EXPECT_EQ(file.take(*found, record_of(1, 1001)).error(),
            (Error{ExitCode::environment,
                   "cannot write the rendezvous file " + path +
                       ".new-0000000000000001: No such file or directory; all nodes need a path "
                       "that they share and can write"}));
}

TEST(RecordFile, AFailedTakeLeavesNoDraft) {
  const SharedFolder folder;
  RecordFile host(folder.file());
  const RecordFound found{record_of(1, 1001), true, 1, folder.file() + "-away/meet.after-1"};
  const auto taken = host.take(found, record_of(2, 1002));
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ExitCode::environment);
  EXPECT_EQ(folder.names(), Names{});
}

// A blocking open(2) would wait for the pipe's writer and hang the helper thread.
TEST(RecordFile, APipeInItsPlaceDoesNotBlock) {
  const SharedFolder folder;
  ASSERT_EQ(mkfifo(folder.file().c_str(), 0600), 0);
  const auto found = RecordFile(folder.file()).look();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->record, std::nullopt);
}

}  // namespace
}  // namespace muster

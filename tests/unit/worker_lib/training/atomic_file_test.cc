#include "worker_lib/training/atomic_file.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fakes/temp_tree.h"
#include "tests/wait_for.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  std::string path() const { return path_.string(); }
  std::string content(const fs::path& file) const {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string content() const { return content(path_); }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_))
      all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }
  Outcome<> put(const std::string& bytes) const {
    auto file = AtomicFile::create(path());
    if (!file) return tl::unexpected(file.error());
    (*file)->write(bytes);
    return (*file)->commit();
  }

  const TempTree tree_;
  const fs::path& folder_ = tree_.root();
  fs::path path_ = folder_ / "model.ckpt";
};

using Names = std::vector<std::string>;

TEST_F(AtomicFileTest, AppearsWithItsContent) {
  EXPECT_EQ(put(std::string("new\0bytes\n", 10)), Done{});
  EXPECT_EQ(content(), std::string("new\0bytes\n", 10));
  EXPECT_EQ(names(), Names{"model.ckpt"});
}

TEST_F(AtomicFileTest, MayBeEmpty) {
  EXPECT_EQ(put(""), Done{});
  EXPECT_EQ(content(), "");
  EXPECT_EQ(names(), Names{"model.ckpt"});
}

TEST_F(AtomicFileTest, ReplacesTheOldFile) {
  EXPECT_EQ(put("old, and longer than the new one"), Done{});
  EXPECT_EQ(put("new"), Done{});
  EXPECT_EQ(content(), "new");
}

TEST_F(AtomicFileTest, KeepsTheOldFileUntilCommit) {
  EXPECT_EQ(put("old"), Done{});
  auto file = AtomicFile::create(path());
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->write(std::string(3 << 20, 'x')), Done{});
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(names().size(), 2u);
  EXPECT_EQ((*file)->commit(), Done{});
  EXPECT_EQ(content(), std::string(3 << 20, 'x'));
}

TEST_F(AtomicFileTest, LeavesNothingIfItIsDropped) {
  EXPECT_EQ(put("old"), Done{});
  {
    auto file = AtomicFile::create(path());
    ASSERT_TRUE(file);
    EXPECT_EQ((*file)->write("half"), Done{});
  }
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(names(), Names{"model.ckpt"});
}

TEST_F(AtomicFileTest, RemovesOnlyDraftsOfKilledWriters) {
  for (const char* name : {"model.ckpt.tmp-0123456789abcdef", "model.ckpt.tmp-012345",
                           "model.ckpt.tmp-0123456789ABCDEF", "model.ckpt.tmp-0123456789abcdef0",
                           "other.ckpt.tmp-0123456789abcdef", "model.ckpt.bak"}) {
    std::ofstream(folder_ / name) << "x";
  }
  EXPECT_EQ(put("new"), Done{});
  EXPECT_EQ(names(), (Names{"model.ckpt", "model.ckpt.bak", "model.ckpt.tmp-012345",
                            "model.ckpt.tmp-0123456789ABCDEF", "model.ckpt.tmp-0123456789abcdef0",
                            "other.ckpt.tmp-0123456789abcdef"}));
}

TEST_F(AtomicFileTest, TwoWritersDoNotMixTheirData) {
  auto first = AtomicFile::create(path());
  ASSERT_TRUE(first);
  auto second = AtomicFile::create(path());  // Removes the first one's draft, whose place it takes.
  ASSERT_TRUE(second);
  EXPECT_EQ((*second)->write("second"), Done{});
  EXPECT_EQ((*second)->commit(), Done{});
  EXPECT_EQ((*first)->write("first"), Done{});
  const Outcome<> late = (*first)->commit();
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find("No such file or directory"), std::string::npos);
  EXPECT_EQ(content(), "second");
}

TEST_F(AtomicFileTest, KeepsTheModeOfTheOldFile) {
  EXPECT_EQ(put("old"), Done{});
  ASSERT_EQ(::chmod(path().c_str(), 0640), 0);
  EXPECT_EQ(put("new"), Done{});
  struct stat found{};
  ASSERT_EQ(::stat(path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0640u);
}

TEST_F(AtomicFileTest, CreatesNewFilesWithTheUmask) {
  const mode_t before = ::umask(027);
  const Outcome<> written = put("new");
  ::umask(before);
  EXPECT_EQ(written, Done{});
  struct stat found{};
  ASSERT_EQ(::stat(path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0640u);
}

TEST_F(AtomicFileTest, ReplacesALinkAndNotItsTarget) {
  std::ofstream(folder_ / "target") << "target";
  fs::create_symlink(folder_ / "target", path_);
  EXPECT_EQ(put("new"), Done{});
  EXPECT_FALSE(fs::is_symlink(path_));
  EXPECT_EQ(content(folder_ / "target"), "target");
}

TEST_F(AtomicFileTest, WorksOnANameWithoutAFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  path_ = "bare.ckpt";
  const Outcome<> written = put("new");
  fs::current_path(before);
  EXPECT_EQ(written, Done{});
  EXPECT_EQ(names(), Names{"bare.ckpt"});
}

// ---- refusals, each with its reason and what to do

TEST_F(AtomicFileTest, ReportsAMissingFolder) {
  path_ = folder_ / "none" / "model.ckpt";
  const Outcome<> written = put("new");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::system);
  EXPECT_TRUE(written.error().message.starts_with("cannot create " + path() + ".tmp-"));
  EXPECT_TRUE(
      written.error().message.ends_with(": No such file or directory; make its folder first"));
}

TEST_F(AtomicFileTest, ReportsAFolderInItsPlace) {
  fs::create_directory(path_);
  std::ofstream(path_ / "inside") << "x";
  const Outcome<> written = put("new");
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("Is a directory"), std::string::npos)
      << written.error().message;
  EXPECT_EQ(names(), Names{"model.ckpt"});
}

TEST_F(AtomicFileTest, ReplacesNoDevicePipeOrSocket) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  const Outcome<> written = put("new");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message,
            "cannot write " + path() +
                ": it is a device, a pipe or a socket, and a checkpoint would replace it; name a "
                "file");
  EXPECT_TRUE(fs::is_fifo(path_));
  EXPECT_EQ(names(), Names{"model.ckpt"});
}

// A limit on the size of files stands for a full disk: the same refusal from write(2).
TEST_F(AtomicFileTest, KeepsTheOldFileIfTheDiskIsFull) {
  EXPECT_EQ(put("old"), Done{});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  auto file = AtomicFile::create(path());
  ASSERT_TRUE(file);
  std::vector<std::string> reasons;
  const auto note = [&](const Outcome<>& done) {
    reasons.push_back(done ? "" : done.error().message);
  };
  EXPECT_EQ((*file)->write(std::string(1 << 20, 'x')), Done{});
  note((*file)->write("x"));
  note((*file)->write("y"));
  note((*file)->commit("the writer has seen it, too"));
  file->reset();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  for (const std::string& reason : reasons) {
    EXPECT_TRUE(reason.starts_with("cannot write " + path() + ".tmp-")) << reason;
    EXPECT_TRUE(reason.ends_with(": File too large")) << reason;
  }
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(names(), Names{"model.ckpt"});
}

TEST_F(AtomicFileTest, KeepsTheOldFileIfItsWriterHasFailed) {
  EXPECT_EQ(put("old"), Done{});
  auto file = AtomicFile::create(path());
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->write("half"), Done{});
  const Outcome<> written = (*file)->commit("no more data");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "cannot write " + path() + ": no more data");
  file->reset();
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(names(), Names{"model.ckpt"});
}

// ---- a writer that is killed

// Replaces the file again and again: 1 MiB of one letter each time, the next letter each time.
[[noreturn]] void write_for_ever(const std::string& path, int ready) {
  for (int round = 0;; ++round) {
    auto file = AtomicFile::create(path);
    if (!file) ::_exit(3);
    const std::string piece(1 << 14, static_cast<char>('a' + round % 26));
    for (int i = 0; i < 64; ++i)
      (void)(*file)->write(piece);
    if (!(*file)->commit()) ::_exit(4);
    if (round == 0 && ::write(ready, "x", 1) != 1) ::_exit(5);
  }
}

TEST_F(AtomicFileTest, IsWholeWheneverItsWriterIsKilled) {
  std::mt19937 random(1);
  constexpr int kRounds = 40;
  size_t left_behind = 0;
  for (int round = 0; round < kRounds; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_for_ever(path(), ready[1]);
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    test::pause_for(std::chrono::microseconds(random() % 5000), "the moment is what is tried out");
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself with " << status;
    ::close(ready[0]);
    ::close(ready[1]);
    left_behind += names().size() - 1;
    const std::string found = content();
    ASSERT_EQ(found.size(), size_t{1} << 20);
    ASSERT_EQ(found.find_first_not_of(found[0]), std::string::npos);
  }
  std::printf("%d writers were killed, %zu of them in the middle of a file\n", kRounds,
              left_behind);
  EXPECT_GT(left_behind, 0u);
  EXPECT_EQ(put("new"), Done{});
  EXPECT_EQ(names(), Names{"model.ckpt"});
}

// ---- reading

// What read_file() found, and the file's bytes.
std::pair<Outcome<bool>, std::string> read_back(const std::string& path) {
  std::string bytes;
  Outcome<bool> found = read_file(path, [&](size_t size) {
    bytes.resize(size);
    return bytes.data();
  });
  return {std::move(found), std::move(bytes)};
}

TEST_F(AtomicFileTest, IsReadBackWhole) {
  const std::string bytes = std::string(700000, 'a') + std::string(1, '\0') + "end";
  EXPECT_EQ(put(bytes), Done{});
  const auto [found, read] = read_back(path());
  EXPECT_EQ(found, Outcome<bool>(true));
  EXPECT_TRUE(read == bytes);
}

// Its size is not known in advance, and is more than the first piece of memory.
TEST_F(AtomicFileTest, IsReadWholeFromAPipe) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  const std::string bytes(3000000, 'p');
  std::thread writer([&] { std::ofstream(path_, std::ios::binary) << bytes; });
  const auto [found, read] = read_back(path());
  writer.join();
  EXPECT_EQ(found, Outcome<bool>(true));
  EXPECT_TRUE(read == bytes);
}

TEST_F(AtomicFileTest, ReadsNothingIfThereIsNoFile) {
  EXPECT_EQ(read_back(path()).first, Outcome<bool>(false));
  path_ = folder_ / "none" / "model.ckpt";
  EXPECT_EQ(read_back(path()).first, Outcome<bool>(false));
}

TEST_F(AtomicFileTest, ReportsWhyItCannotBeRead) {
  fs::create_directory(path_);
  const auto found = read_back(path()).first;
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, "cannot read " + path() + ": Is a directory");
}

}  // namespace
}  // namespace muster::worker

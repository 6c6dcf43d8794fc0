#include "agent/output/log_tree.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace muster {

namespace {

namespace fs = std::filesystem;

class LogTree : public testing::Test {
 protected:
  LogTree() {
    std::string name = testing::TempDir() + "log_tree_XXXXXX";
    root_ = ::mkdtemp(name.data());
    options_.temp_dir = root_;
  }
  ~LogTree() override { fs::remove_all(root_); }

  RunFolders make() { return make_run_folders(options_).value(); }
  std::string failure() {
    const auto made = make_run_folders(options_);
    return made ? "" : made.error().message;
  }
  static std::string content(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // Sorted relative paths of everything below `dir`; folders end in '/'.
  static std::vector<std::string> list(const std::string& dir) {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
      names.push_back(fs::relative(entry.path(), dir).string() + (entry.is_directory() ? "/" : ""));
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  static mode_t mode(const std::string& path) {
    struct stat status{};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
  }

  std::string root_;
  OutputOptions options_;
};

TEST_F(LogTree, RunFolderIsPrivateAndCarriesTheRunId) {
  options_.log.dir = root_ + "/a/b";
  options_.run_id = "job7";
  const RunFolders folders = make();
  EXPECT_EQ(folders.log_dir, root_ + "/a/b");
  EXPECT_FALSE(folders.temporary);
  EXPECT_TRUE(std::regex_match(folders.run_dir.substr(folders.log_dir.size()),
                               std::regex("/job7_[a-z0-9_]{8}")))
      << folders.run_dir;
  EXPECT_EQ(mode(folders.run_dir), 0700u);
}

TEST_F(LogTree, EachRunHasAFolderOfItsOwn) {
  options_.log.dir = root_;
  EXPECT_NE(make().run_dir, make().run_dir);
}

TEST_F(LogTree, ATemporaryFolderIsMadeIfNoneIsGiven) {
  const RunFolders folders = make();
  EXPECT_TRUE(folders.temporary);
  EXPECT_TRUE(std::regex_match(folders.log_dir, std::regex(root_ + "/torchelastic_[a-z0-9_]{8}")));
  EXPECT_EQ(mode(folders.log_dir), 0700u);
  EXPECT_TRUE(fs::is_directory(folders.run_dir));
}

TEST_F(LogTree, ASlashInTheRunIdStaysInOneName) {
  options_.log.dir = root_;
  options_.run_id = "../up/x";
  EXPECT_EQ(fs::path(make().run_dir).parent_path(), root_);
}

TEST_F(LogTree, ARelativeFolderBecomesAbsolute) {
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  options_.log.dir = "logs";
  const RunFolders folders = make();
  fs::current_path(before);
  EXPECT_EQ(folders.log_dir, root_ + "/logs");
}

TEST_F(LogTree, DevNullMeansNoFiles) {
  options_.log.dir = "/dev/null";
  EXPECT_EQ(make(), RunFolders{});
  options_.log.duplicate_stderr_filters = {"x"};
  EXPECT_EQ(failure(),
            "--duplicate-stdout-filters and --duplicate-stderr-filters write files, and --log-dir "
            "/dev/null allows none; give another --log-dir");
}

TEST_F(LogTree, AFileInTheWayIsNamed) {
  std::ofstream(root_ + "/file") << "x";
  options_.log.dir = root_ + "/file";
  EXPECT_EQ(failure(),
            "cannot create log folder " + root_ +
                "/file: Not a directory; a file is in the way; choose another --log-dir");
  options_.log.dir = root_ + "/file/below";
  EXPECT_EQ(failure(), "cannot create log folder " + root_ +
                           "/file/below: Not a directory; a file is in the way; choose another "
                           "--log-dir");
}

TEST_F(LogTree, AFolderThatCannotBeMadeIsNamed) {
  options_.log.dir = "/proc/nowhere";
  EXPECT_EQ(make_run_folders(options_).error(),
            (Error{ExitCode::environment,
                   "cannot create log folder /proc/nowhere: No such file or directory; choose a "
                   "folder that you can write with --log-dir, or none: --log-dir /dev/null"}));
}

TEST_F(LogTree, AnAttemptHasAFolderForEachWorker) {
  EXPECT_EQ(make_attempt_folder(root_, 2, 3).value(), root_ + "/attempt_2");
  EXPECT_EQ(list(root_), (std::vector<std::string>{"attempt_2/", "attempt_2/0/", "attempt_2/1/",
                                                   "attempt_2/2/"}));
}

TEST_F(LogTree, MakingAnAttemptFolderAgainKeepsItsLogs) {
  ASSERT_TRUE(make_attempt_folder(root_, 0, 1).has_value());
  const std::string log = root_ + "/attempt_0/0/stdout.log";
  ASSERT_EQ(append_to_file(log, "first\n"), std::nullopt);
  ASSERT_TRUE(make_attempt_folder(root_, 0, 1, 7).has_value());
  EXPECT_TRUE(std::filesystem::is_directory(root_ + "/attempt_0/7"));
  ASSERT_TRUE(make_attempt_folder(root_, 0, 2).has_value());
  const auto fd = open_log(log);
  ASSERT_TRUE(fd.has_value());
  ASSERT_EQ(::write(fd->get(), "second\n", 7), 7);
  EXPECT_EQ(content(log), "first\nsecond\n");
}

TEST_F(LogTree, ALogThatCannotBeOpenedIsNamed) {
  const auto log = open_log(root_ + "/missing/stdout.log");
  ASSERT_FALSE(log.has_value());
  EXPECT_EQ(log.error(), (Error{ExitCode::environment,
                                "cannot open log file " + root_ +
                                    "/missing/stdout.log: No such file or directory; check the "
                                    "folder, or choose another --log-dir"}));
}

TEST_F(LogTree, ReplacingAFileLeavesNoOtherBehind) {
  EXPECT_EQ(replace_file(root_ + "/result.json", "{1}\n"), std::nullopt);
  EXPECT_EQ(replace_file(root_ + "/result.json", "{}\n"), std::nullopt);
  EXPECT_EQ(content(root_ + "/result.json"), "{}\n");
  EXPECT_EQ(list(root_), std::vector<std::string>{"result.json"});
}

TEST_F(LogTree, AFileThatCannotBeReplacedKeepsItsContent) {
  fs::create_directory(root_ + "/result.json");
  EXPECT_EQ(replace_file(root_ + "/result.json", "{}"),
            "cannot write " + root_ + "/result.json: Is a directory");
  EXPECT_EQ(list(root_), std::vector<std::string>{"result.json/"});
}

TEST_F(LogTree, AppendingAddsTextAndExplainsAFailure) {
  EXPECT_EQ(append_to_file(root_ + "/e", "1\n"), std::nullopt);
  EXPECT_EQ(append_to_file(root_ + "/e", "2\n"), std::nullopt);
  EXPECT_EQ(content(root_ + "/e"), "1\n2\n");
  EXPECT_EQ(append_to_file("/dev/full", "x"), "cannot write /dev/full: No space left on device");
}

TEST_F(LogTree, AFifoWithoutAReaderIsAnErrorAndDoesNotBlock) {
  const std::string fifo = root_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto log = open_log(fifo);
  ASSERT_FALSE(log.has_value());
  EXPECT_EQ(
      log.error(),
      (Error{ExitCode::environment,
             "cannot open log file " + fifo +
                 ": No such device or address; it is a FIFO that no process reads; remove it"}));
  EXPECT_EQ(append_to_file(fifo, "x\n"), "cannot open " + fifo + ": No such device or address");
}

TEST_F(LogTree, AppendingToAFullFifoFailsAndDoesNotBlock) {
  const std::string fifo = root_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const UniqueFd reader(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(append_to_file(fifo, std::string(size_t{1} << 20, 'x')),
            "cannot write " + fifo + ": Resource temporarily unavailable");
}

TEST_F(LogTree, ALogIsOpenedForBlockingWrites) {
  const std::string fifo = root_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const UniqueFd reader(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  for (const std::string& path : {fifo, root_ + "/log"}) {
    const auto log = open_log(path);
    ASSERT_TRUE(log.has_value()) << path;
    EXPECT_EQ(::fcntl(log->get(), F_GETFL) & O_NONBLOCK, 0) << path;
  }
}

TEST_F(LogTree, ReplacingAFileOverwritesWhateverHasTheTemporaryName) {
  const std::string path = root_ + "/result.json";
  ASSERT_EQ(::mkfifo((path + ".tmp").c_str(), 0600), 0);
  EXPECT_EQ(replace_file(path, "1"), std::nullopt);
  fs::create_symlink(root_ + "/other", path + ".tmp");
  EXPECT_EQ(replace_file(path, "2"), std::nullopt);
  EXPECT_EQ(content(path), "2");
  EXPECT_EQ(list(root_), std::vector<std::string>{"result.json"});
}

TEST_F(LogTree, FoldersThatWereRemovedAreMadeAgain) {
  options_.log.dir = root_ + "/a/b";
  for (const bool temporary : {false, true}) {
    if (temporary) options_.log.dir.reset();
    if (temporary) options_.temp_dir = root_ + "/a";
    const RunFolders folders = make();
    fs::remove_all(root_ + "/a");
    ASSERT_TRUE(restore_run_folders(folders).has_value());
    EXPECT_EQ(mode(folders.run_dir), 0700u);
    ASSERT_TRUE(restore_run_folders(folders).has_value());
    EXPECT_TRUE(!temporary || mode(folders.log_dir) == 0700u);
    fs::create_directories(root_ + "/a");
  }
}

TEST_F(LogTree, ATemporaryNameThatIsTakenIsNotUsed) {
  const RunFolders folders = make();
  fs::remove_all(folders.log_dir);
  fs::create_directory_symlink(root_, folders.log_dir);
  const auto restored = restore_run_folders(folders);
  ASSERT_FALSE(restored.has_value());
  EXPECT_EQ(restored.error(),
            (Error{ExitCode::environment, "cannot create log folder " + folders.log_dir +
                                              ": File exists; a file is in the way; choose "
                                              "another --log-dir"}));
}

TEST_F(LogTree, AFolderOrAFlagThatWritesFilesAsksForFiles) {
  LogSpec log;
  EXPECT_FALSE(asks_for_files(log));
  log.local_ranks_filter = {0};
  log.prefix = "{rank}";
  EXPECT_FALSE(asks_for_files(log));
  std::vector<LogSpec> asking(5);
  asking[0].dir = "/logs";
  asking[1].redirects.all = Streams::out;
  asking[2].tee.by_rank = {{0, Streams::err}};
  asking[3].duplicate_stdout_filters = {"x"};
  asking[4].duplicate_stderr_filters = {"x"};
  for (const LogSpec& each : asking)
    EXPECT_TRUE(asks_for_files(each));
}

TEST_F(LogTree, TheTailOfAFileIsItsEnd) {
  ASSERT_EQ(append_to_file(root_ + "/log", "0123456789"), std::nullopt);
  EXPECT_EQ(file_tail(root_ + "/log", 4), "6789");
  EXPECT_EQ(file_tail(root_ + "/log", 100), "0123456789");
  EXPECT_EQ(file_tail(root_ + "/missing", 4), "");
  EXPECT_EQ(file_tail(root_, 4), "");
}

TEST_F(LogTree, AnEmptyTemporaryFolderIsRemoved) {
  const RunFolders folders = make();
  ASSERT_TRUE(make_attempt_folder(folders.run_dir, 0, 2).has_value());
  remove_if_empty(folders);
  EXPECT_EQ(list(root_), std::vector<std::string>{});
}

TEST_F(LogTree, ATemporaryFolderWithAFileStaysWhole) {
  const RunFolders folders = make();
  ASSERT_TRUE(make_attempt_folder(folders.run_dir, 0, 2).has_value());
  ASSERT_EQ(append_to_file(folders.run_dir + "/attempt_0/0/error.json", "{}"), std::nullopt);
  remove_if_empty(folders);
  EXPECT_EQ(list(folders.run_dir),
            (std::vector<std::string>{"attempt_0/", "attempt_0/0/", "attempt_0/0/error.json",
                                      "attempt_0/1/"}));
}

TEST_F(LogTree, AFolderThatTheUserNamedIsNeverRemoved) {
  options_.log.dir = root_ + "/mine";
  const RunFolders folders = make();
  remove_if_empty(folders);
  EXPECT_TRUE(fs::is_directory(folders.run_dir));
}

}  // namespace

}  // namespace muster

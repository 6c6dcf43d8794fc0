#include "agent/control/control_folder.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/control/control_server.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/fakes/temp_tree.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

unsigned mode_of(const std::string& path) {
  struct stat status{};
  EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777u;
}

// A session's runtime folder, in which muster's folder may exist or not.
class ControlFolder : public ::testing::Test {
 protected:
  std::string runtime() const { return tree_.root().string(); }
  std::string folder() const { return runtime() + "/muster"; }
  ControlPlace place() const { return {folder(), ""}; }

  // Leaves what a killed job leaves behind.
  void leave_traces(pid_t pid) const {
    const auto socket = ControlServer::open(place(), {pid, "dead", "x.py", 1, {}});
    ASSERT_TRUE(socket) << socket.error().message;
    close(socket->fd);
  }

  JobEntry entry(pid_t pid, const std::string& id) const {
    return {pid, id, "train.py", 1700000000.5, control_socket_path(folder(), pid)};
  }

  TempTree tree_;
};

TEST(ControlFolders, AreThatOfTheSessionThenOneInTmp) {
  using Folders = std::vector<std::string>;
  EXPECT_EQ(control_folders({"", "/run/user/7"}, 7),
            Folders({"/run/user/7/muster", "/tmp/muster-7"}));
  EXPECT_EQ(control_folders({"", ""}, 7), Folders({"/tmp/muster-7"}));
  EXPECT_EQ(control_folders({"", "run/user"}, 7), Folders({"/tmp/muster-7"}));
  EXPECT_EQ(control_folders({"", "/" + std::string(120, 'x')}, 7), Folders({"/tmp/muster-7"}));
  EXPECT_EQ(control_folders({"/mine", "/run/user/7"}, 7), Folders({"/mine", "/mine/muster-7"}));
}

TEST_F(ControlFolder, IsPrivateToItsUser) {
  EXPECT_EQ(make_control_folder(place()), Result<std::string>(folder()));
  EXPECT_EQ(mode_of(folder()), 0700u);
  EXPECT_EQ(make_control_folder(place()), Result<std::string>(folder()));
}

TEST_F(ControlFolder, IsASubfolderIfTheNamedOneIsOpenToOthers) {
  const std::string below = fmt::format("{}/muster-{}", folder(), geteuid());
  for (const unsigned mode : {0755u, 01777u}) {
    fs::create_directory(folder());
    ASSERT_EQ(chmod(folder().c_str(), mode), 0);
    const auto socket = ControlServer::open(place(), entry(4000001, "a"));
    ASSERT_TRUE(socket) << socket.error().message;
    const UniqueFd fd(socket->fd);
    EXPECT_EQ(socket->folder, below);
    EXPECT_EQ(mode_of(folder()), mode) << "an existing folder keeps its mode";
    EXPECT_EQ(mode_of(below), 0700u);
    EXPECT_THAT(running_jobs(place()), testing::SizeIs(1));
    fs::remove_all(folder());
  }
}

TEST_F(ControlFolder, IsNotMadeWhereOthersCouldReplaceIt) {
  fs::create_directory(folder());
  ASSERT_EQ(chmod(folder().c_str(), 0777), 0);
  const Result<std::string> made = make_control_folder(place());
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("other users can access it"));
  EXPECT_EQ(mode_of(folder()), 0777u);
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(ControlFolder, IsRefusedIfItsSubfolderIsOpenToOthers) {
  fs::create_directory(folder());
  ASSERT_EQ(chmod(folder().c_str(), 01777), 0);
  const std::string below = fmt::format("{}/muster-{}", folder(), geteuid());
  fs::create_directory(below);
  ASSERT_EQ(chmod(below.c_str(), 0755), 0);
  EXPECT_FALSE(make_control_folder(place())) << "another user may have prepared it";
  EXPECT_EQ(mode_of(below), 0755u);
}

TEST_F(ControlFolder, IsNeverALinkOrAFile) {
  fs::create_directory(tree_.root() / "elsewhere");
  fs::create_directory_symlink(tree_.root() / "elsewhere", folder());
  const Result<void> link = check_control_folder(folder());
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error().message, "cannot use the folder " + folder() +
                                      " for musterctl: it is not a real folder; remove it or set "
                                      "MUSTER_RUN_DIR to a folder of your own");
  fs::remove(folder());
  std::ofstream(folder()) << "x";
  const Result<void> file = check_control_folder(folder());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error(), link.error());
  EXPECT_EQ(mode_of((tree_.root() / "elsewhere").string()) & 0700u, 0700u);
}

TEST_F(ControlFolder, IsRefusedIfAnotherUserOwnsIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a folder of another user's";
  fs::create_directory(folder());
  ASSERT_EQ(chown(folder().c_str(), 12345, 12345), 0);
  const Result<void> refused = check_control_folder(folder());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("it belongs to user 12345"));
  EXPECT_TRUE(running_jobs(place()).empty());
  EXPECT_FALSE(make_control_folder(place()));
}

TEST_F(ControlFolder, IsInTheFolderOfTheSessionIfItsUserOwnsThat) {
  const ControlPlace session{"", runtime()};
  EXPECT_EQ(make_control_folder(session), Result<std::string>(folder()));
  const ControlPlace missing{"", runtime() + "/nowhere"};
  EXPECT_EQ(make_control_folder(missing),
            Result<std::string>("/tmp/muster-" + std::to_string(geteuid())));
}

TEST_F(ControlFolder, IsNotInAnotherUsersSession) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a folder of another user's";
  ASSERT_EQ(chown(runtime().c_str(), 12345, 12345), 0);
  EXPECT_EQ(make_control_folder({"", runtime()}), Result<std::string>("/tmp/muster-0"));
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(ControlFolder, ShowsTheJobsThatAnswer) {
  const auto first = ControlServer::open(place(), entry(4000001, "a"));
  const auto second = ControlServer::open(place(), entry(4000002, "b \xff"));
  ASSERT_TRUE(first && second);
  const UniqueFd first_fd(first->fd);
  const UniqueFd second_fd(second->fd);
  EXPECT_EQ(mode_of(control_socket_path(folder(), 4000001)), 0600u);
  EXPECT_EQ(mode_of(control_entry_path(folder(), 4000001)), 0600u);
  EXPECT_EQ(first->folder, folder());
  const std::vector<JobEntry> ours = running_jobs(place());
  EXPECT_EQ(ours, std::vector<JobEntry>({entry(4000001, "a"), entry(4000002, "b \xef\xbf\xbd")}));
}

TEST_F(ControlFolder, RemovesTheTracesOfAKilledJob) {
  leave_traces(4000003);
  EXPECT_TRUE(fs::exists(control_entry_path(folder(), 4000003)));
  EXPECT_EQ(running_jobs(place()), std::vector<JobEntry>());
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(ControlFolder, GivesAReusedPidToItsNewJob) {
  leave_traces(4000004);
  const auto socket = ControlServer::open(place(), entry(4000004, "new"));
  ASSERT_TRUE(socket) << socket.error().message;
  const UniqueFd fd(socket->fd);
  const std::vector<JobEntry> ours = running_jobs(place());
  EXPECT_EQ(ours, std::vector<JobEntry>({entry(4000004, "new")}));
}

TEST_F(ControlFolder, ShowsAJobWhoseEntryIsDamaged) {
  const auto socket = ControlServer::open(place(), entry(4000005, "a"));
  ASSERT_TRUE(socket);
  const UniqueFd fd(socket->fd);
  for (const char* damage : {"", "{", "[]", R"({"id":1,"program":[],"started":"x"})"}) {
    std::ofstream(control_entry_path(folder(), 4000005)) << damage;
    const std::vector<JobEntry> ours = running_jobs(place());
    EXPECT_EQ(ours,
              std::vector<JobEntry>({{4000005, "", "", 0, control_socket_path(folder(), 4000005)}}))
        << damage;
  }
}

TEST_F(ControlFolder, LeavesForeignFilesAlone) {
  ASSERT_TRUE(make_control_folder(place()));
  for (const char* name :
       {"notes.json", "-5.json", "0.json", "99999999999.json", "7.sock", "7json"})
    std::ofstream(folder() + "/" + name) << "{}";
  running_jobs(place());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder()), fs::directory_iterator()), 6);
}

TEST_F(ControlFolder, ForgetsAJobThatEndsCleanly) {
  const auto socket = ControlServer::open(place(), entry(4000006, "a"));
  ASSERT_TRUE(socket);
  const UniqueFd fd(socket->fd);
  ControlServer::remove(*socket);
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(ControlFolder, ReportsASocketThatDoesNotAnswer) {
  const std::string path = runtime() + "/7.sock";
  const Result<int> fd = connect_to_job(path);
  ASSERT_FALSE(fd);
  EXPECT_EQ(fd.error().message, "cannot reach the job at " + path +
                                    ": No such file or directory; it may just have ended: see "
                                    "musterctl list");
  EXPECT_FALSE(connect_to_job(runtime() + "/" + std::string(200, 'x')));
}

}  // namespace
}  // namespace muster

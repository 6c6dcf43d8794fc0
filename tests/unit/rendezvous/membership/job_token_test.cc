#include "rendezvous/membership/job_token.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/hex.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/frame_seal.h"
#include "tests/wait_for.h"

namespace muster::membership {
namespace {

const Nonce kAgent{1, 2, 3};
const Nonce kHost{4, 5, 6};

// Returns an Alive sealed as the first frame.
std::string sealed(FrameSeal seal) {
  std::string frame;
  encode(HostMessage{Alive{}}, frame);
  seal.close(frame);
  return frame;
}

std::string sealed_by(std::string_view token, std::string_view job, const Nonce& agent,
                      const Nonce& host, FrameSeal FrameSeals::* side = &FrameSeals::agent) {
  return sealed(frame_seals(token, job, agent, host).*side);
}

// Computed with Python's hmac according to PROTOCOL.md.
TEST(JobToken, SealsHaveKnownValues) {
  FrameSeals seals = frame_seals("secret", "job 1", kAgent, kHost);
  const auto goodbye = [&] {
    std::string frame;
    encode(AgentMessage{Goodbye{}}, frame);
    seals.agent.close(frame);
    return to_hex(frame);
  };
  EXPECT_EQ(goodbye(),
            "21000000"
            "84382dafdcee9d09c354cc6696571596a65b63f7ee97cd2e1634b3685cadee82d7");
  EXPECT_EQ(goodbye(),
            "21000000"
            "849651d98a8ae6f85d3f4d9f08559c8212101d51c93d0cd256aa3d21ca0b385ec4");
  std::string refused;
  encode(HostMessage{Refused{RefusalKind::contradiction, "no"}}, refused);
  seals.host.close(refused);
  EXPECT_EQ(to_hex(refused),
            "28000000c302020000006e6f"
            "474b7c844ff2c2419bad3cbb939cb75ef8da741eac1c77a246bde6b3a263b160");
}

TEST(JobToken, SealsDependOnTokenJobNoncesAndSide) {
  const std::set<std::string> all = {sealed_by("secret", "job", kAgent, kHost),
                                     sealed_by("secret", "job", kAgent, kHost, &FrameSeals::host),
                                     sealed_by("Secret", "job", kAgent, kHost),
                                     sealed_by("secret", "job2", kAgent, kHost),
                                     sealed_by("secret", "job", Nonce{}, kHost),
                                     sealed_by("secret", "job", kAgent, Nonce{}),
                                     sealed_by("secret", "job", kHost, kAgent),
                                     sealed_by("secret", "job", kHost, kAgent, &FrameSeals::host),
                                     sealed_by("secret", "", kAgent, kHost)};
  EXPECT_EQ(all.size(), 9u);
}

TEST(JobToken, SealsNeedAToken) {
  EXPECT_DEATH(frame_seals("", "job", kAgent, kHost), "internal error: CHECK");
}

// Neither the token nor the seed alone reveals the workers' secret.
TEST(JobToken, TheWorkersSecretNeedsTokenJobAndSeed) {
  const Mac seed{7};
  const std::set<Mac> all = {worker_secret("secret", "job", seed),
                             worker_secret("Secret", "job", seed),
                             worker_secret("", "job", seed),
                             worker_secret("secret", "job2", seed),
                             worker_secret("secret", "job", Mac{8}),
                             worker_secret("", "job", Mac{8}),
                             seed};
  EXPECT_EQ(all.size(), 7u);
  EXPECT_EQ(worker_secret("secret", "job", seed), worker_secret("secret", "job", seed));
}

class TokenFile : public testing::Test {
 protected:
  TokenFile() {
    std::string pattern = testing::TempDir() + "muster_token_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/token";
  }
  ~TokenFile() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string error() {
    const Result<std::string> token = read_token_file(path_);
    return token ? "read: " + *token : token.error().message;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(TokenFile, LosesOnlyOneNewlineAtItsEnd) {
  write("a token\n");
  EXPECT_EQ(read_token_file(path_), "a token");
  write("a token");
  EXPECT_EQ(read_token_file(path_), "a token");
  write(" two\nlines\n\n");
  EXPECT_EQ(read_token_file(path_), " two\nlines\n");
  write(std::string("\0\xff", 2));
  EXPECT_EQ(read_token_file(path_), std::string("\0\xff", 2));
}

TEST_F(TokenFile, IsReadUpToTheLimitAndNotBeyond) {
  write(std::string(kTokenBytesMax, 'x') + "\n");
  EXPECT_EQ(read_token_file(path_), std::string(kTokenBytesMax, 'x'));
  write(std::string(kTokenBytesMax + 1, 'x'));
  EXPECT_EQ(error(), "the token file " + path_ + " is longer than 4096 bytes");
  write(std::string(1 << 20, 'x'));
  EXPECT_EQ(error(), "the token file " + path_ + " is longer than 4096 bytes");
}

TEST_F(TokenFile, MustNotBeEmpty) {
  write("");
  EXPECT_EQ(error(), "the token file " + path_ + " is empty: write a token into it");
  write("\n");
  EXPECT_EQ(error(), "the token file " + path_ + " is empty: write a token into it");
}

TEST_F(TokenFile, IsNamedInTheErrorIfItCannotBeRead) {
  EXPECT_EQ(error(), "the token file " + path_ + " cannot be opened: No such file or directory");
  path_ = folder_;
  EXPECT_EQ(error(), "the token file " + path_ + " cannot be read: Is a directory");
  EXPECT_EQ(read_token_file(folder_).error().code, ExitCode::environment);
}

TEST_F(TokenFile, IsRefusedIfAnotherUserMayHaveWrittenIt) {
  write("a token");
  for (const unsigned mode : {0620u, 0602u}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    EXPECT_EQ(error(), fmt::format("the token file {} can be written by other users (mode {:04o}): "
                                   "what it says is not believed; chmod go-w it",
                                   path_, mode));
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  EXPECT_EQ(read_token_file(path_), "a token");
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give the file to another user";
  ASSERT_EQ(::chown(path_.c_str(), 12345, 0), 0);
  EXPECT_EQ(error(), "the token file " + path_ +
                         " belongs to user 12345, not to this one (0) or root: what it says is not "
                         "believed");
}

TEST_F(TokenFile, DoesNotBlockIfItIsAPipeWithoutAWriter) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(error(), "the token file " + path_ + " is empty: write a token into it");
}

TEST_F(TokenFile, IsReadToTheEndIfItIsAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  path_ = "/proc/self/fd/" + std::to_string(ends[0]);
  Result<std::string> token;
  std::thread reader([&] { token = read_token_file(path_); });
  for (const std::string piece : {"half a ", "token\n"}) {
    test::pause_for(std::chrono::milliseconds(20), "the reader finds nothing yet");
    EXPECT_EQ(::write(ends[1], piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
  }
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  EXPECT_EQ(token, "half a token");
}

}  // namespace
}  // namespace muster::membership

#include "agent/control/control_server.h"

#include <csignal>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/base/unique_fd.h"
#include "tests/fakes/temp_tree.h"
#include "tests/wait_for.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using control::LogText;
using control::Reply;
using ::testing::HasSubstr;

constexpr pid_t kPid = 4000010;
// It also limits the time from a client's arrival to its request, so no shorter one is safe.
constexpr std::chrono::milliseconds kPatience = 1s;

control::JobStatus small_status() {
  control::JobStatus status;
  status.job_id = "job7";
  status.pid = kPid;
  return status;
}

// A blocking client whose time limit is generous enough for any machine.
class Client {
 public:
  explicit Client(const std::string& path) {
    const Result<int> fd = connect_to_job(path);
    EXPECT_TRUE(fd) << (fd ? "" : fd.error().message);
    fd_ = UniqueFd(fd.value_or(-1));
    const timeval limit{30, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  void say(std::string_view text) const {
    EXPECT_EQ(send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void ask(const control::Request& request) const { say(control::encode(request)); }

  // nullopt: the server has closed the connection.
  std::optional<std::string> line() {
    char c = 0;
    std::string text;
    for (;;) {
      const ssize_t n = recv(fd_.get(), &c, 1, 0);
      if (n < 0) ADD_FAILURE() << "no answer within the limit";
      if (n <= 0) return std::nullopt;
      if (c == '\n') return text;
      text += c;
    }
  }

  Result<Reply> reply() {
    const auto text = line();
    return text ? control::decode_reply(*text) : fail(ExitCode::internal, "the end");
  }
  bool ended() { return !line(); }
  void leave() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// A server on its own loop, as in the agent.
class ControlServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    handlers_.status = [](auto done) { done(small_status()); };
    handlers_.signal = [this](int signal, const control::RankRanges& ranks) -> Result<void> {
      if (control::selects(ranks, 99)) return fail(ExitCode::usage, "rank 99 is not here");
      signals_.emplace_back(signal, ranks);
      return {};
    };
    handlers_.logs = [this](const LogsQuery& query, ControlHandlers::LogsDone done) {
      answer_logs(query, std::move(done));
    };
    handlers_.records = [](const control::RecordsRequest& request, auto done) {
      if (request.lines == 0) return done(fail(ExitCode::environment, "calls are not recorded"));
      RankRecords records;
      records.rank = request.ranks.front().first;
      records.recorded = request.lines;
      done(control::Records{{records}, {}});
    };
    handlers_.stacks = [this](const control::StacksRequest& request, auto done) {
      RankStacks stacks;
      stacks.rank = request.ranks.empty() ? 0 : request.ranks.front().first;
      stacks_done_ = [done = std::move(done), stacks] { done(control::Stacks{{stacks}, {}}); };
      if (!request.ranks.empty()) stacks_done_();
    };
    handlers_.dump = [](auto done) { done(control::Dump{"/logs/dump_1.json", {"node-b"}}); };
  }

  void TearDown() override { stop(); }

  void start(ControlServer::Options options = {}) {
    const auto socket = ControlServer::open({tree_.root().string() + "/run", ""},
                                            {kPid, "job7", "train.py", 1, {}});
    ASSERT_TRUE(socket) << socket.error().message;
    socket_ = *socket;
    server_ = std::make_unique<ControlServer>(io_, socket_, options, handlers_);
    thread_ = std::thread([this] { io_.run(); });
  }

  template <typename Function>
  auto on_loop(Function function) {
    std::promise<decltype(function())> result;
    boost::asio::post(io_, [&] { result.set_value(function()); });
    return result.get_future().get();
  }

  void stop() {
    if (!thread_.joinable()) return;
    on_loop([this] {
      server_.reset();
      held_.clear();
      guard_.reset();
      return 0;
    });
    thread_.join();
  }

  // Answers for rank 3: `log_` from the client's position.
  void answer_logs(const LogsQuery& query, ControlHandlers::LogsDone done) {
    ++questions_;
    if (hold_logs_) return held_.push_back(std::move(done));
    if (!control::selects(query.ranks, 3))
      return done(fail(ExitCode::usage, "only rank 3 is here"));
    const auto after = query.after.find(3);
    const std::size_t from = after == query.after.end() ? 0 : after->second;
    done(std::vector<LogText>{{3, log_.substr(from), log_.size()}});
  }

  void write_log(const std::string& text) {
    on_loop([&] {
      log_ += text;
      return 0;
    });
  }

  std::size_t connections() {
    return on_loop([this] { return server_->connections(); });
  }
  // The loop notices a closed connection later than the client.
  void wait_for_connections(std::size_t wanted) {
    test::wait_for([&] { return connections() == wanted; }, "so many connections");
  }

  Client client() const { return Client(control_socket_path(socket_.folder, kPid)); }

  TempTree tree_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_ =
      boost::asio::make_work_guard(io_);
  ControlHandlers handlers_;
  ControlServer::Socket socket_;
  std::unique_ptr<ControlServer> server_;
  std::thread thread_;

  // Used by the loop's thread only.
  std::vector<std::pair<int, control::RankRanges>> signals_;
  std::function<void()> stacks_done_;  // For the last request.
  std::vector<ControlHandlers::LogsDone> held_;
  std::string log_ = "first\n";
  bool hold_logs_ = false;
  int questions_ = 0;
};

TEST_F(ControlServerTest, AnswersOneRequestPerConnection) {
  start();
  Client asker = client();
  asker.ask(control::StatusRequest{});
  EXPECT_EQ(asker.reply(), Result<Reply>(small_status()));
  EXPECT_TRUE(asker.ended());
  wait_for_connections(0);
}

TEST_F(ControlServerTest, TakesARequestInPieces) {
  start();
  Client asker = client();
  for (const char c : control::encode(control::Request(control::StatusRequest{})))
    asker.say(std::string_view(&c, 1));
  EXPECT_EQ(asker.reply(), Result<Reply>(small_status()));
}

TEST_F(ControlServerTest, HandsSignalsToTheAgent) {
  start();
  Client asker = client();
  asker.ask(control::SignalRequest{SIGUSR1, {{0, 3}}});
  EXPECT_EQ(asker.reply(), Result<Reply>(control::Done{}));
  Client other = client();
  other.ask(control::SignalRequest{SIGUSR1, {{99, 99}}});
  EXPECT_EQ(other.reply(), Result<Reply>(Error{ExitCode::usage, "rank 99 is not here"}));
  using Signals = std::vector<std::pair<int, control::RankRanges>>;
  EXPECT_EQ(on_loop([this] { return signals_; }), Signals({{SIGUSR1, {{0, 3}}}}));
}

TEST_F(ControlServerTest, ShowsRecords) {
  start();
  Client asker = client();
  asker.ask(control::RecordsRequest{{{3, 4}}, 7});
  RankRecords records;
  records.rank = 3;
  records.recorded = 7;
  EXPECT_EQ(asker.reply(), Result<Reply>(control::Records{{records}, {}}));
  EXPECT_TRUE(asker.ended());
  Client other = client();
  other.ask(control::RecordsRequest{});
  EXPECT_EQ(other.reply(), Result<Reply>(Error{ExitCode::environment, "calls are not recorded"}));
}

TEST_F(ControlServerTest, ShowsStacks) {
  start(
      {.patience = std::chrono::milliseconds(20'000), .for_stacks = std::chrono::milliseconds(1)});
  Client asker = client();
  asker.ask(control::StacksRequest{{{3, 4}}});
  RankStacks stacks;
  stacks.rank = 3;
  EXPECT_EQ(asker.reply(), Result<Reply>(control::Stacks{{stacks}, {}}));
  EXPECT_TRUE(asker.ended());
  Client other = client();
  other.ask(control::StacksRequest{});
  const Result<Reply> late = other.reply();
  ASSERT_TRUE(late && std::holds_alternative<Error>(*late));
  on_loop([this] {
    stacks_done_();  // Too late: ignored.
    return true;
  });
}

TEST_F(ControlServerTest, SaysWhereADumpIs) {
  start();
  Client asker = client();
  asker.ask(control::DumpRequest{});
  EXPECT_EQ(asker.reply(), Result<Reply>(control::Dump{"/logs/dump_1.json", {"node-b"}}));
  EXPECT_TRUE(asker.ended());
}

TEST_F(ControlServerTest, RefusesToShowVariables) {
  start();
  Client asker = client();
  asker.ask(control::VariablesRequest{});
  const Result<Reply> refused = asker.reply();
  EXPECT_TRUE(refused && std::holds_alternative<Error>(*refused));
}

TEST_F(ControlServerTest, ShowsLogs) {
  start();
  Client asker = client();
  asker.ask(control::LogsRequest{});
  EXPECT_EQ(asker.reply(), Result<Reply>(std::vector<LogText>{{3, "first\n", 6}}));
  EXPECT_TRUE(asker.ended());
  Client other = client();
  other.ask(control::LogsRequest{{{0, 0}}, 10, true});
  EXPECT_EQ(other.reply(), Result<Reply>(Error{ExitCode::usage, "only rank 3 is here"}));
  EXPECT_TRUE(other.ended());
}

TEST_F(ControlServerTest, SendsNewLinesToAFollower) {
  start({.follow_period = 1ms});
  Client follower = client();
  follower.ask(control::LogsRequest{{}, 10, true});
  EXPECT_EQ(follower.reply(), Result<Reply>(std::vector<LogText>{{3, "first\n", 6}}));
  write_log("second\n");
  EXPECT_EQ(follower.reply(), Result<Reply>(std::vector<LogText>{{3, "second\n", 13}}));
  write_log("third\n");
  EXPECT_EQ(follower.reply(), Result<Reply>(std::vector<LogText>{{3, "third\n", 19}}));
  EXPECT_EQ(connections(), 1u);
  follower.leave();
  wait_for_connections(0);
}

TEST_F(ControlServerTest, FollowsForLongerThanItsPatience) {
  start({.patience = kPatience, .follow_period = 20ms});
  Client follower = client();
  follower.ask(control::LogsRequest{{}, 10, true});
  EXPECT_TRUE(follower.reply());
  const int before = on_loop([this] { return questions_; });
  test::wait_for([&] { return on_loop([this] { return questions_; }) >= before + 55; },
                 "questions");
  write_log("late\n");
  EXPECT_EQ(follower.reply(), Result<Reply>(std::vector<LogText>{{3, "late\n", 11}}));
}

TEST_F(ControlServerTest, SaysWhatIsWrongWithARequest) {
  start();
  Client asker = client();
  asker.say("GET / HTTP/1.1\n");
  const Result<Reply> reply = asker.reply();
  ASSERT_TRUE(reply && std::holds_alternative<Error>(*reply));
  EXPECT_THAT(std::get<Error>(*reply).message, HasSubstr("not a JSON object"));
  EXPECT_TRUE(asker.ended());
}

TEST_F(ControlServerTest, RefusesAnEndlessRequest) {
  start();
  Client asker = client();
  const std::string piece(8192, 'x');
  for (std::size_t sent = 0; sent <= control::kRequestBytesMax; sent += piece.size())
    asker.say(piece);
  const Result<Reply> reply = asker.reply();
  ASSERT_TRUE(reply && std::holds_alternative<Error>(*reply));
  EXPECT_THAT(std::get<Error>(*reply).message, HasSubstr("longer than"));
}

TEST_F(ControlServerTest, DropsASilentClient) {
  start({.patience = kPatience});
  Client silent = client();
  Client half = client();
  half.say("{\"command\":");
  EXPECT_TRUE(silent.ended());
  EXPECT_TRUE(half.ended());
  wait_for_connections(0);
}

TEST_F(ControlServerTest, DropsAClientThatDoesNotRead) {
  log_ = std::string(control::kLogTextBytesMax, 'x');
  handlers_.logs = [this](const LogsQuery&, ControlHandlers::LogsDone done) {
    done(std::vector<LogText>(100, LogText{3, log_, 0}));
  };
  start({.patience = kPatience});
  Client slow = client();
  slow.ask(control::LogsRequest{});
  wait_for_connections(1);
  Client quick = client();
  quick.ask(control::StatusRequest{});
  EXPECT_EQ(quick.reply(), Result<Reply>(small_status()));
  wait_for_connections(0);
}

TEST_F(ControlServerTest, LimitsItsConnections) {
  start({.connections_max = 2});
  Client first = client();
  Client second = client();
  wait_for_connections(2);
  Client third = client();
  EXPECT_EQ(third.reply(), Result<Reply>(Error{ExitCode::environment,
                                               "the job is answering others already; try again"}));
  EXPECT_TRUE(third.ended());
  first.leave();
  wait_for_connections(1);
  Client fourth = client();
  fourth.ask(control::StatusRequest{});
  EXPECT_EQ(fourth.reply(), Result<Reply>(small_status()));
}

TEST_F(ControlServerTest, ReportsThatTheAgentDoesNotAnswer) {
  hold_logs_ = true;
  start({.patience = kPatience});
  Client asker = client();
  asker.ask(control::LogsRequest{{}, 10, true});
  EXPECT_EQ(asker.reply(),
            Result<Reply>(Error{ExitCode::environment,
                                "the job has not answered in time; its disk or its console may be "
                                "stuck"}));
  EXPECT_TRUE(asker.ended());
  // A late answer is ignored.
  on_loop([this] {
    for (auto& done : held_)
      done(std::vector<LogText>{{3, "late", 4}});
    return 0;
  });
  wait_for_connections(0);
}

TEST_F(ControlServerTest, TakesALateAnswerOnce) {
  hold_logs_ = true;
  start();
  Client asker = client();
  asker.ask(control::LogsRequest{});
  test::wait_for([&] { return on_loop([this] { return !held_.empty(); }); }, "the request");
  on_loop([this] {
    const ControlHandlers::LogsDone done = held_.front();
    done(std::vector<LogText>{{3, "later", 5}});
    done(std::vector<LogText>{{3, "twice", 5}});
    return 0;
  });
  EXPECT_EQ(asker.reply(), Result<Reply>(std::vector<LogText>{{3, "later", 5}}));
  EXPECT_TRUE(asker.ended());
}

TEST_F(ControlServerTest, EndsWhileClientsAreConnected) {
  hold_logs_ = true;
  start();
  Client waiting = client();
  waiting.ask(control::LogsRequest{});
  Client silent = client();
  test::wait_for(
      [&] { return on_loop([this] { return !held_.empty() && server_->connections() >= 2; }); },
      "the request and both clients");
  on_loop([this] {
    server_.reset();
    held_.front()(std::vector<LogText>{{3, "too late", 8}});
    return 0;
  });
  EXPECT_TRUE(waiting.ended());
  EXPECT_TRUE(silent.ended());
  EXPECT_FALSE(connect_to_job(control_socket_path(socket_.folder, kPid)));
}

TEST_F(ControlServerTest, CanBeClosedTwice) {
  start();
  Client asker = client();
  wait_for_connections(1);
  on_loop([this] {
    server_->close();
    server_->close();
    return 0;
  });
  EXPECT_TRUE(asker.ended());
  EXPECT_EQ(connections(), 0u);
}

// Even if the folder, which keeps others out, is opened, the socket answers no other user.
TEST_F(ControlServerTest, AnswersOnlyItsOwnUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to connect as another user";
  start();
  namespace fs = std::filesystem;
  const std::string path = control_socket_path(socket_.folder, kPid);
  for (const fs::path& open : {tree_.root(), fs::path(socket_.folder), fs::path(path)})
    fs::permissions(open, fs::perms(0777));
  std::optional<std::string> answer = "not asked";
  std::thread stranger([&] {
    // The bare system call changes this thread alone.
    ASSERT_EQ(syscall(SYS_setresuid, -1, 12345, -1), 0);
    Client asker(path);
    const std::string line = control::encode(control::Request(control::StatusRequest{}));
    send(asker.fd(), line.data(), line.size(), MSG_NOSIGNAL);
    char c = 0;
    answer =
        recv(asker.fd(), &c, 1, 0) > 0 ? std::optional<std::string>("an answer") : std::nullopt;
  });
  stranger.join();
  EXPECT_EQ(answer, std::nullopt);
}

TEST_F(ControlServerTest, WithstandsManyInvalidClients) {
  start({.connections_max = 8});
  for (int i = 0; i < 300; ++i) {
    Client stranger = client();
    const std::string junk(static_cast<std::size_t>(i * 13 % 4000), static_cast<char>(i));
    send(stranger.fd(), junk.data(), junk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    stranger.leave();
  }
  wait_for_connections(0);
  Client asker = client();
  asker.ask(control::StatusRequest{});
  EXPECT_EQ(asker.reply(), Result<Reply>(small_status()));
}

}  // namespace
}  // namespace muster

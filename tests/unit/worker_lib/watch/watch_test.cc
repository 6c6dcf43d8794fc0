// Watches over real sockets, with threads as ranks. The live tests cover whole processes, and
// watch_tree_test.cc every order of events.
#include "worker_lib/watch/watch.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/base/hex.h"
#include "tests/unit/worker_lib/joining/ended_process.h"
#include "tests/unit/worker_lib/watch/watch_ranks.h"
#include "worker_lib/watch/watch_board.h"
#include "worker_lib/watch/watch_sockets.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using watch_test::Ear;
using watch_test::News;
using watch_test::WatchRanks;
using Kind = News::Kind;
using namespace std::chrono_literals;

const std::vector<int> kOneNode{0, 0, 0, 0};
const std::vector<int> kTwoNodes{0, 0, 1, 1, 1};
const std::vector<int> kMixedNodes{0, 1, 2, 0, 1};

void expect_started(WatchRanks& ranks) {
  for (int rank = 0; rank < ranks.size(); ++rank) {
    ASSERT_FALSE(ranks[rank].failure) << ranks[rank].failure->message;
    ASSERT_TRUE(ranks[rank].watch);
  }
}

std::vector<std::vector<int>> shapes() {
  return {kOneNode, kTwoNodes, kMixedNodes, std::vector<int>(20, 0)};
}

TEST(Watch, AllRanksConnectOnEveryShapeOfNodes) {
  for (const std::vector<int>& shape : shapes()) {
    WatchRanks ranks(shape);
    ranks.start();
    expect_started(ranks);
    for (int rank = 0; rank < ranks.size(); ++rank)
      EXPECT_THAT(ranks[rank].ear->now(), IsEmpty());
  }
}

// Ranks that get a verdict get the same one, while the first of them dies.
TEST(Watch, RanksAgreeThoughTheirFirstDies) {
  for (const std::vector<int>& shape : shapes()) {
    WatchRanks ranks(shape);
    ranks.start();
    expect_started(ranks);
    Watch::Ballot ballot{.group_id = "g", .members = {}};
    for (int rank = 0; rank < ranks.size(); ++rank)
      ballot.members.push_back(rank);
    std::vector<std::vector<Outcome<Verdict>>> verdicts(shape.size());
    std::vector<std::thread> threads;
    for (int rank = 1; rank < ranks.size(); ++rank) {
      threads.emplace_back([&, rank] {
        Watch::Ballot mine = ballot;
        for (mine.number = 1; mine.number <= 3; ++mine.number) {
          mine.value = ~(uint64_t{1} << rank);
          verdicts[static_cast<size_t>(rank)].push_back(
              ranks[rank].watch->agree(mine, std::chrono::steady_clock::now() + 30s));
        }
      });
    }
    ranks.kill(0);
    for (std::thread& thread : threads)
      thread.join();
    const uint64_t all = ~((uint64_t{1} << ranks.size()) - 1) | 1;
    for (int rank = 1; rank < ranks.size(); ++rank) {
      for (const Outcome<Verdict>& verdict : verdicts[static_cast<size_t>(rank)]) {
        ASSERT_TRUE(verdict) << verdict.error().message;
        EXPECT_EQ(verdict->value, all);
        EXPECT_EQ(verdict->voters.size(), shape.size() - 1);
      }
    }
  }
}

TEST(Watch, RanksThatDoNotVoteAreNamedAtTheDeadline) {
  WatchRanks ranks(kTwoNodes);
  ranks.start();
  expect_started(ranks);
  Outcome<Verdict> verdicts[2];
  std::thread other([&] {
    verdicts[1] = ranks[2].watch->agree({.group_id = "g", .members = {1, 2, 4}, .number = 1},
                                        std::chrono::steady_clock::now() + 1s);
  });
  verdicts[0] = ranks[1].watch->agree({.group_id = "g", .members = {1, 2, 4}, .number = 1},
                                      std::chrono::steady_clock::now() + 1s);
  other.join();
  for (const Outcome<Verdict>& verdict : verdicts) {
    ASSERT_FALSE(verdict);
    EXPECT_EQ(verdict.error().code, ErrorCode::timeout);
    EXPECT_THAT(verdict.error().ranks, ElementsAre(GlobalRank{4}));
  }
}

TEST(Watch, AllRanksHearOfADeath) {
  int deaths = 0;
  for (const std::vector<int>& shape : shapes()) {
    for (const int victim : {0, 1, 2, 4}) {
      if (victim >= static_cast<int>(shape.size())) continue;
      WatchRanks ranks(shape);
      ranks.start();
      expect_started(ranks);
      ranks.kill(victim);
      for (int rank = 0; rank < ranks.size(); ++rank) {
        if (rank == victim) continue;
        const std::vector<News> heard = ranks[rank].ear->wait(1);
        EXPECT_EQ(heard[0].kind, Kind::died);
        EXPECT_EQ(heard[0].rank, GlobalRank{victim});
        EXPECT_THAT(heard[0].failure.message,
                    HasSubstr(", pid " + std::to_string(100 + victim) + ") died"));
      }
      ++deaths;
    }
  }
  std::printf("%d deaths on %zu shapes of nodes\n", deaths, shapes().size());
}

TEST(Watch, ADepartureIsReportedAndTheOthersStayConnected) {
  for (const std::vector<int>& shape : shapes()) {
    WatchRanks ranks(shape);
    ranks.start();
    expect_started(ranks);
    ranks.leave(0);
    const int last = ranks.size() - 1;
    EXPECT_EQ(ranks[last].ear->wait(1)[0].kind, Kind::left);
    ranks[last].watch->tell({Kind::aborted, {}, "g", {ErrorCode::aborted, "enough"}});
    for (int rank = 1; rank < last; ++rank) {
      const std::vector<News> heard = ranks[rank].ear->wait(2);
      EXPECT_EQ(heard[0].failure.message, "rank 0 (node0, pid 100) left (destroy_process_group)");
      EXPECT_EQ(heard[1], (News{Kind::aborted, {last}, "g", {ErrorCode::aborted, "enough"}}));
    }
    EXPECT_EQ(ranks[last].ear->now().size(), 1U) << "the rank that aborts knows";
  }
}

TEST(Watch, AllRanksLeaveAtOnceAndNoneIsReportedDead) {
  for (const std::vector<int>& shape : shapes()) {
    WatchRanks ranks(shape);
    ranks.start();
    expect_started(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks.size(); ++rank)
      threads.emplace_back([&ranks, rank] { ranks.leave(rank); });
    for (std::thread& thread : threads)
      thread.join();
    for (int rank = 0; rank < ranks.size(); ++rank) {
      for (const News& news : ranks[rank].ear->now())
        EXPECT_EQ(news.kind, Kind::left);
    }
  }
}

TEST(Watch, ALateListenerGetsEarlierNews) {
  WatchRanks ranks(kOneNode);
  ranks.start();
  expect_started(ranks);
  ranks.kill(3);
  ranks[1].ear->wait(1);
  std::vector<News> heard;
  const int id = ranks[1].watch->subscribe([&](const News& news) { heard.push_back(news); });
  ASSERT_EQ(heard.size(), 1U) << "at once, on this thread";
  EXPECT_EQ(heard[0].rank, GlobalRank{3});
  ranks[1].watch->unsubscribe(id);
  ranks.kill(2);
  ranks[1].ear->wait(2);
  EXPECT_EQ(heard.size(), 1U);
}

TEST(Watch, AReminderReachesOnlyItsOwnCurrentListenersLater) {
  WatchRanks ranks({0, 0});
  ranks.start();
  expect_started(ranks);
  const News what{.kind = Kind::quiet, .rank = {1}, .group_id = "g"};
  const auto begun = std::chrono::steady_clock::now();
  ranks[0].watch->remind(what);
  EXPECT_EQ(ranks[0].ear->wait(1), std::vector{what});
  EXPECT_GE(std::chrono::steady_clock::now() - begun, kLastMessage);
  ranks[0].watch->subscribe([](const News&) { ADD_FAILURE() << "a reminder is not kept"; });
  EXPECT_TRUE(ranks[1].ear->wait(0).empty());
}

TEST(Watch, EqualRemindersAreOneAtFirstAndOneAtLast) {
  WatchRanks ranks({0, 0});
  ranks.start();
  expect_started(ranks);
  const News what{.kind = Kind::quiet, .rank = {1}, .group_id = "g"};
  const News other{.kind = Kind::quiet, .rank = {1}, .group_id = "h"};
  const auto begun = std::chrono::steady_clock::now();
  int asked = 0;
  for (; std::chrono::steady_clock::now() < begun + kLastMessage / 2; ++asked)
    ranks[0].watch->remind(what);
  ranks[0].watch->remind(other);
  EXPECT_EQ(ranks[0].ear->wait(3), (std::vector{what, what, other}));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, kLastMessage / 2 * 3);
  EXPECT_GT(asked, 3);
}

TEST(Watch, NoListenerIsCalledOnceUnsubscribeReturned) {
  WatchBoard board;
  for (int round = 0; round < 200; ++round) {
    auto alive = std::make_unique<std::atomic<bool>>(true);
    const int id = board.subscribe([alive = alive.get()](const News&) { EXPECT_TRUE(*alive); });
    std::thread news([&board] { board.publish({}); });
    board.unsubscribe(id);
    *alive = false;
    alive.reset();
    news.join();
  }
}

TEST(Watch, AnAbsentRankIsNamedAtTheDeadline) {
  WatchRanks ranks(kTwoNodes);
  ranks.start(2s, {3});
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == 3) continue;
    ASSERT_TRUE(ranks[rank].failure) << rank;
    EXPECT_EQ(ranks[rank].failure->code, ErrorCode::timeout);
  }
  EXPECT_THAT(ranks[2].failure->ranks, ElementsAre(GlobalRank{3}));
  EXPECT_THAT(ranks[2].failure->message, HasSubstr("rank 3 (node1, pid 103) did not "));
}

// Otherwise the others would wait for it until their deadline.
TEST(Watch, ARankThatDiesBeforeItIsLinkedIsNamedAtOnce) {
  for (const int victim : {0, 1, 2}) {
    WatchRanks ranks({0, 0, 0});
    ranks.lives.assign(3, life_of_process(::getpid()));
    ranks.lives[static_cast<size_t>(victim)] = ended_process();
    const auto began = std::chrono::steady_clock::now();
    ranks.start(200s, {victim});
    EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      ASSERT_TRUE(ranks[rank].failure) << rank;
      EXPECT_EQ(ranks[rank].failure->code, ErrorCode::peer_failed) << rank;
      EXPECT_THAT(ranks[rank].failure->ranks, ElementsAre(GlobalRank{victim})) << rank;
      EXPECT_THAT(ranks[rank].failure->message, HasSubstr("died; its own output may say why"));
    }
  }
}

// Asks until it has an answer from each rank or `limit` has passed.
std::map<int, Watch::Questions::Reply> ask_all(Watch& watch, const std::vector<int>& ranks,
                                               std::chrono::milliseconds limit = 20s) {
  const std::unique_ptr<Watch::Questions> questions = watch.questions();
  for (const int rank : ranks)
    questions->ask(rank);
  std::map<int, Watch::Questions::Reply> replies;
  const Deadline until = std::chrono::steady_clock::now() + limit;
  while (replies.size() < ranks.size() && std::chrono::steady_clock::now() < until) {
    for (Watch::Questions::Reply& reply : questions->wait(until))
      replies[reply.rank] = std::move(reply);
  }
  return replies;
}

TEST(Watch, EveryRankAnswersEveryOtherAboutItsProgress) {
  WatchRanks ranks({0, 0, 1, 1});
  ranks.start();
  for (int rank = 0; rank < 4; ++rank)
    ranks[rank].watch->answer_with([rank] { return std::string(50'000, 'a') + char('0' + rank); });
  using Said = Watch::Questions::Reply::Kind;
  for (int asker = 0; asker < 4; ++asker) {
    std::vector<int> others{0, 1, 2, 3};
    std::erase(others, asker);
    const auto replies = ask_all(*ranks[asker].watch, others);
    ASSERT_EQ(replies.size(), 3U) << asker;
    for (const auto& [rank, reply] : replies) {
      EXPECT_EQ(reply.kind, Said::said);
      EXPECT_EQ(reply.text, std::string(50'000, 'a') + char('0' + rank));
    }
  }
  // Connections that only carried questions end without news.
  ranks.kill(3);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(ranks[rank].ear->wait(1).size(), 1U);
  EXPECT_EQ(ask_all(*ranks[0].watch, {3})[3].kind, Said::refused) << "over TCP";
  EXPECT_EQ(ask_all(*ranks[2].watch, {3})[3].kind, Said::refused) << "over a Unix socket";
  ranks[1].watch->answer_with({});
  EXPECT_EQ(ask_all(*ranks[0].watch, {1})[1].text, "");
}

TEST(Watch, ReportsTheStateOfAProcessAsTheKernelDoes) {
  WatchRanks ranks({0, 0});
  const pid_t child = fork();
  if (child == 0) {
    for (;;)
      pause();
  }
  ranks.lives = {life_of_process(getpid()), life_of_process(child)};
  ranks.start();
  const auto questions = ranks[0].watch->questions();
  EXPECT_EQ(questions->state_of(0), ProcessState::running);
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(questions->state_of(1), ProcessState::stopped);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(questions->state_of(1), ProcessState::over);
}

TEST(Watch, AWorldOfOneNeedsNoStore) {
  Watch::Options options;
  options.world.peers = {{{0}, "node0", "node0", 1, "127.0.0.1"}};
  options.world.me = 0;
  options.deadline = std::chrono::steady_clock::now() + 10s;
  options.on_sigterm = StopPolicy::ignore;
  const Outcome<std::unique_ptr<Watch>> watch = Watch::start(std::move(options));
  ASSERT_TRUE(watch.has_value());
  (*watch)->tell({Kind::aborted, {}, "g", {ErrorCode::aborted, "enough"}});
  EXPECT_FALSE((*watch)->stop_requested());
  (*watch)->leave();
}

TEST(Watch, AStopRequestIsSeenOnlyOnItsRank) {
  WatchRanks ranks({0, 0});
  ranks.start();
  expect_started(ranks);
  EXPECT_FALSE(ranks[0].watch->stop_requested());
  ranks[0].watch->request_stop();
  EXPECT_TRUE(ranks[0].watch->stop_requested());
  EXPECT_FALSE(ranks[1].watch->stop_requested()) << "other ranks do not see it";
}

// ---- unauthenticated peers

// A connection of a peer that knows all that the store holds, but not the secret.
class Stranger {
 public:
  explicit Stranger(Dialled dialled) : socket_(std::move(dialled.socket)) {
    EXPECT_TRUE(socket_.is_open());
    // Blocking from here on: messages are read and answered soon.
    EXPECT_EQ(::fcntl(socket_.fd(), F_SETFL, 0), 0);
  }

  void say(const std::string& bytes) const {
    const ssize_t said = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_EQ(said, static_cast<ssize_t>(bytes.size()));
  }
  void say(const watch::Message& message) const { say(watch::encode(message)); }
  // Returns the next message; nullopt: the other side hung up.
  std::optional<watch::Message> hear() {
    for (;;) {
      if (std::optional<watch::Message> message = input_.next()) return message;
      char byte;
      if (::recv(socket_.fd(), &byte, 1, 0) <= 0) return std::nullopt;
      input_.feed({&byte, 1});
    }
  }

 private:
  watch::GuardedFd socket_;
  watch::Decoder input_;
};

std::pair<std::string, uint16_t> root_of(WatchRanks& ranks) {
  Result<StoreClient> store = StoreClient::connect({"127.0.0.1", ranks.store().port()});
  const std::string record = *store->with_prefix("watch").get("up/0");
  const size_t blank = record.find(' ');
  return {*from_hex(record.substr(0, blank)),
          static_cast<uint16_t>(std::stoi(record.substr(blank + 1)))};
}

TEST(Watch, UnauthenticatedPeersChangeNothing) {
  WatchRanks ranks(kTwoNodes);
  ranks.start();
  expect_started(ranks);
  const auto [id, port] = root_of(ranks);
  const News death{Kind::died, {1}, {}, {ErrorCode::peer_failed, "it died"}};
  const int last = ranks.size() - 1;
  const watch::Hello hello{{1, 2, 3}, last, ranks.size()};
  for (const std::string& speech :
       {std::string(4096, '\xff'), watch::encode(watch::Hello{{1, 2, 3}, 1, ranks.size() + 1}),
        watch::encode(watch::Hello{{1, 2, 3}, 0, ranks.size()}),
        watch::encode(watch::Hello{{1, 2, 3}, -1, ranks.size()}), watch::encode(death),
        watch::encode(watch::Proof{}), watch::encode(watch::Challenge{})}) {
    Stranger stranger(dial({IpAddress::loopback_v4(), port}));
    stranger.say(speech);
    EXPECT_EQ(stranger.hear(), std::nullopt) << "nothing is answered";
  }
  // These know the id, and may echo the listener's proof.
  const watch::WatchKeys guessed{"of another job", id};
  Members world;
  world.peers.resize(static_cast<size_t>(ranks.size()));
  for (const bool asks : {false, true}) {
    for (const bool echoes : {false, true}) {
      Stranger stranger(dial({IpAddress::loopback_v4(), port}));
      stranger.say(watch::Hello{hello.nonce, hello.rank, ranks.size(), asks});
      const std::optional<watch::Message> answer = stranger.hear();
      ASSERT_TRUE(answer && std::holds_alternative<watch::Challenge>(*answer));
      const auto& challenge = std::get<watch::Challenge>(*answer);
      const LinkTerms terms{watch::link_purpose(guessed, world, last, 0, asks, port), hello.nonce,
                            challenge.nonce};
      EXPECT_FALSE(same_mac(challenge.proof, listener_proof(guessed.secret, terms)));
      stranger.say(watch::Proof{echoes ? challenge.proof : dialler_proof(guessed.secret, terms)});
      EXPECT_EQ(stranger.hear(), std::nullopt);
    }
    Stranger hasty(dial({IpAddress::loopback_v4(), port}));
    hasty.say(hello);
    ASSERT_TRUE(hasty.hear());
    hasty.say(asks ? watch::Message(death) : watch::Message(hello));
    EXPECT_EQ(hasty.hear(), std::nullopt) << "news without a proof, or a second hello";
  }
  ranks[4].watch->tell({Kind::aborted, {}, "g", {ErrorCode::aborted, "enough"}});
  EXPECT_EQ(ranks[0].ear->wait(1)[0].kind, Kind::aborted);
  EXPECT_EQ(ranks[1].ear->wait(1).size(), 1U);
}

// A reader of the store knows where a rank is expected and may take its place first.
TEST(Watch, AnImpostorInARanksPlaceGetsNothing) {
  WatchRanks ranks({0, 1});
  uint16_t port = 0;
  const watch::GuardedFd listener = std::move(*watch::listen_tcp("127.0.0.1", port));
  Result<StoreClient> store = StoreClient::connect({"127.0.0.1", ranks.store().port()});
  const std::string record = to_hex(std::string(16, 'i')) + " " + std::to_string(port);
  ASSERT_TRUE(store->with_prefix("watch").set("up/0", record).has_value());
  std::thread victim([&] { ranks.start_one(ranks.options(1, 3s)); });
  ASSERT_EQ(::fcntl(listener.fd(), F_SETFL, 0), 0);
  int error = 0;
  Stranger impostor({accept_next(listener.fd(), error), 0});
  const std::optional<watch::Message> hello = impostor.hear();
  ASSERT_TRUE(hello && std::holds_alternative<watch::Hello>(*hello));
  impostor.say(watch::Challenge{{1}, {2}});
  EXPECT_EQ(impostor.hear(), std::nullopt);
  victim.join();
  ASSERT_TRUE(ranks[1].failure.has_value());
  EXPECT_THAT(ranks[1].failure->ranks, ElementsAre(GlobalRank{0}));
}

TEST(WatchSockets, ADescriptorGoesAlongAndItsRefusalCostsNoMessage) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const watch::GuardedFd from{UniqueFd(ends[0])};
  const watch::GuardedFd to{UniqueFd(ends[1])};
  std::array<char, 16> bytes{};
  UniqueFd lent;
  const int file = memfd_create("lent", MFD_CLOEXEC);
  for (const int offered : {file, 65'000}) {  // The second is not open.
    std::string output = "proof";
    int lends = offered;
    EXPECT_EQ(watch::send_some(from, output, lends), 0);
    EXPECT_EQ(lends, -1);
    EXPECT_EQ(receive_with_fd(to.fd(), bytes, lent), 5);
    EXPECT_EQ(lent.get() >= 0, offered == file);
    lent.reset();
  }
  close(file);
}

TEST(WatchSockets, NamesRevealNothingAboutEachOther) {
  const watch::WatchKeys keys{"secret", std::string(16, 'i')};
  EXPECT_EQ(watch::unix_name(keys, 1), watch::unix_name(keys, 1));
  EXPECT_NE(watch::unix_name(keys, 1), watch::unix_name(keys, 2));
  EXPECT_NE(watch::unix_name(keys, 1), watch::unix_name({"other", keys.id}, 1));
  EXPECT_THAT(watch::unix_name(keys, 1), testing::Not(HasSubstr(to_hex(keys.id))));
}

}  // namespace
}  // namespace muster::worker

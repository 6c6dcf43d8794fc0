#include "agent/job/peers.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "agent/letter.h"
#include "rendezvous/base/prng.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/net/field_codec.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

using Texts = std::map<int, std::string>;

constexpr const char* kNoAnswer = "no answer within 10 s";

// The nodes of a job and the host that forwards between them, in virtual time.
class World {
 public:
  explicit World(int nodes) : nodes_(static_cast<size_t>(nodes)) {}

  // A node's answer, and the time that it takes; negative: it never answers.
  std::function<std::string(int node, const std::string& question)> answer =
      [](int node, const std::string& question) { return fmt::format("{}: {}", node, question); };
  std::function<Duration(int node)> takes = [](int) { return 1ms; };
  // Damages a payload, or returns true if it is lost; the host's limits apply besides.
  std::function<bool(int from, int to, std::string& payload)> loses;
  Duration limit = 10s;

  struct Asked {
    bool is_done = false;
    Texts answers;  // Or errors.
    Duration took{};
  };

  Asked& ask(int from, std::map<int, std::string> questions) {
    Asked& asked = asked_.emplace_back();
    const Instant began = now_;
    post(from, Peers::Ask{std::move(questions), limit,
                          [this, &asked, began](const Peers::Answers& answers) {
                            EXPECT_FALSE(asked.is_done);
                            asked.is_done = true;
                            asked.took = now_ - began;
                            for (const auto& [node, said] : answers)
                              asked.answers[node] = said ? *said : said.error().message;
                          }});
    return asked;
  }

  void post(int node, const Peers::Event& event) {
    std::vector<Peers::Effect> effects;
    machine(node).step(now_, event, effects);
    for (const Peers::Effect& effect : effects)
      std::visit([&](const auto& what) { perform(node, what); }, effect);
  }

  // Runs until nothing is due.
  void run() {
    for (;;) {
      Instant next = events_.empty() ? kNever : events_.begin()->first;
      int ticking = -1;
      for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) {
        if (machine(node).next_deadline() >= next) continue;
        next = machine(node).next_deadline();
        ticking = node;
      }
      if (next == kNever) return;
      now_ = std::max(now_, next);
      if (ticking >= 0) {
        post(ticking, Peers::Tick{});
        continue;
      }
      const auto happen = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      happen();
    }
  }

  int served(int node) const { return nodes_[static_cast<size_t>(node)].served; }
  size_t sent() const { return sent_; }

 private:
  struct Node {
    Peers peers;
    double budget = 1 << 20;  // As in PROTOCOL.md.
    Instant counted{};
    Instant sent{};  // When the queue to this node is empty, at 100 MB/s.
    int served = 0;
  };

  Peers& machine(int node) { return nodes_[static_cast<size_t>(node)].peers; }

  void perform(int node, Peers::Send send) {
    ASSERT_LE(send.payload.size(), membership::kDatagramBytesMax);
    ASSERT_NE(send.to, node);
    ++sent_;
    if (!pass(node, send)) return;
    const Instant arrives = nodes_[static_cast<size_t>(send.to)].sent + 1ms;
    events_.emplace(arrives,
                    [this, node, send] { post(send.to, Peers::Arrived{node, send.payload}); });
  }
  void perform(int node, const Peers::Serve& serve) {
    ++nodes_[static_cast<size_t>(node)].served;
    const Duration after = takes(node);
    if (after < Duration{}) return;
    events_.emplace(now_ + after, [this, node, serve] {
      post(node, Peers::Answer{serve.key, answer(node, serve.question)});
    });
  }
  void perform(int, const Peers::Finished& finished) { finished.done(finished.answers); }

  bool pass(int from, Peers::Send& send) {
    if (loses && loses(from, send.to, send.payload)) return false;
    Node& sender = nodes_[static_cast<size_t>(from)];
    const double seconds = std::chrono::duration<double>(now_ - sender.counted).count();
    sender.budget = std::min(double{1 << 20}, sender.budget + seconds * (512 << 10));
    sender.counted = now_;
    if (sender.budget <= 0) return false;
    sender.budget -= static_cast<double>(send.payload.size()) + 256;
    Node& receiver = nodes_[static_cast<size_t>(send.to)];
    receiver.sent = std::max(receiver.sent, now_);
    if (receiver.sent - now_ > 2600us) return false;  // 256 KiB.
    receiver.sent += Duration(10 * send.payload.size());
    return true;
  }

  std::vector<Node> nodes_;
  std::multimap<Instant, std::function<void()>> events_;
  std::deque<Asked> asked_;
  Instant now_ = Instant{} + 1h;
  size_t sent_ = 0;
};

std::map<int, std::string> questions_to(int first, int last) {
  std::map<int, std::string> questions;
  for (int node = first; node <= last; ++node)
    questions[node] = fmt::format("what of {}?", node);
  return questions;
}

// Differs everywhere, so that a misplaced part shows.
std::string long_text(int node, size_t bytes) {
  std::string text;
  while (text.size() < bytes)
    text += fmt::format("{}.{} ", node, text.size());
  text.resize(bytes);
  return text;
}

TEST(Peers, AnswerEachOther) {
  World world(3);
  const World::Asked& of_0 = world.ask(0, questions_to(1, 2));
  const World::Asked& of_2 = world.ask(2, {{0, "and you?"}});
  world.run();
  EXPECT_EQ(of_0.answers, (Texts{{1, "1: what of 1?"}, {2, "2: what of 2?"}}));
  EXPECT_EQ(of_2.answers, (Texts{{0, "0: and you?"}}));
  EXPECT_LT(of_0.took, 20ms);
}

TEST(Peers, EndAtOnceIfNoneIsAsked) {
  World world(1);
  EXPECT_TRUE(world.ask(0, {}).is_done);
}

TEST(Peers, SendAnswersOfAnyLengthWhole) {
  for (const size_t bytes :
       {size_t{1}, Peers::kPartBytes - 1, Peers::kPartBytes, Peers::kPartBytes + 1,
        5 * Peers::kPartBytes, Peers::kAnswerBytesMax}) {
    World world(2);
    world.answer = [&](int node, const std::string&) { return long_text(node, bytes); };
    const World::Asked& asked = world.ask(0, questions_to(1, 1));
    world.run();
    EXPECT_EQ(asked.answers, (Texts{{1, long_text(1, bytes)}})) << bytes;
    EXPECT_LT(asked.took, 2s) << bytes;
    EXPECT_EQ(world.served(1), 1) << bytes;
  }
}

// Some budget is always left for the node's other datagrams.
TEST(Peers, SendALongAnswerWithinTheirBudget) {
  World world(2);
  world.answer = [](int node, const std::string&) {
    return long_text(node, Peers::kAnswerBytesMax);
  };
  world.ask(0, questions_to(1, 1));
  world.run();
  const size_t parts = (Peers::kAnswerBytesMax + Peers::kPartBytes - 1) / Peers::kPartBytes;
  // A question and the first part, four parts per further request, and the end: nothing is resent.
  EXPECT_EQ(world.sent(), parts + 1 + (parts - 1 + 3) / 4 + 1);
}

TEST(Peers, SurviveALossyChannel) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Prng random(seed);
    World world(4);
    world.loses = [&](int, int, const std::string&) { return random.chance(3, 10); };
    world.answer = [](int node, const std::string&) {
      return long_text(node, static_cast<size_t>(node) * 40'000);
    };
    const World::Asked& asked = world.ask(0, questions_to(1, 3));
    world.run();
    EXPECT_EQ(
        asked.answers,
        (Texts{{1, long_text(1, 40'000)}, {2, long_text(2, 80'000)}, {3, long_text(3, 120'000)}}))
        << seed;
  }
}

TEST(Peers, WaitForSilentNodesNoLongerThanTheLimit) {
  World world(4);
  world.takes = [](int node) { return node == 2 ? Duration{-1} : Duration{9s}; };
  world.loses = [](int from, int, const std::string&) { return from == 3; };
  const World::Asked& asked = world.ask(0, questions_to(1, 3));
  world.run();
  EXPECT_EQ(asked.answers, (Texts{{1, "1: what of 1?"}, {2, kNoAnswer}, {3, kNoAnswer}}));
  EXPECT_EQ(asked.took, 10s);
}

TEST(Peers, AnswerAThousandQuestionsInTime) {
  constexpr int kNodes = 1000;
  World world(kNodes + 1);
  world.answer = [](int node, const std::string&) { return long_text(node, 15'000); };
  const World::Asked& asked = world.ask(0, questions_to(1, kNodes));
  world.run();
  ASSERT_EQ(asked.answers.size(), size_t{kNodes});
  for (const auto& [node, answer] : asked.answers)
    EXPECT_EQ(answer, long_text(node, 15'000)) << node;
  EXPECT_LT(asked.took, 2s);
}

TEST(Peers, ReportAnswersThatAreTooLongTogether) {
  World world(32);
  world.limit = 1min;
  world.answer = [](int node, const std::string&) {
    return long_text(node, Peers::kAnswerBytesMax);
  };
  const World::Asked& asked = world.ask(0, questions_to(1, 31));
  world.run();
  size_t bytes = 0;
  for (const auto& [node, answer] : asked.answers) {
    if (answer.size() == Peers::kAnswerBytesMax) {
      bytes += answer.size();
    } else {
      EXPECT_EQ(answer, "the answers of all nodes are too long together; ask for fewer ranks");
    }
  }
  EXPECT_GT(bytes, Peers::kAllAnswersBytesMax / 2);
  EXPECT_LE(bytes, Peers::kAllAnswersBytesMax);
}

TEST(Peers, ServeAFewQuestionsAtATimeAndTheRestLater) {
  World world(2);
  world.takes = [](int) { return 2s; };
  constexpr int kQuestions = static_cast<int>(Peers::kServedMax) + 4;
  std::vector<const World::Asked*> asked;
  for (int i = 0; i < kQuestions; ++i)
    asked.push_back(&world.ask(0, {{1, fmt::format("{}", i)}}));
  world.run();
  int late = 0;
  for (int i = 0; i < kQuestions; ++i) {
    EXPECT_EQ(asked[static_cast<size_t>(i)]->answers, (Texts{{1, fmt::format("1: {}", i)}}));
    late += asked[static_cast<size_t>(i)]->took > 4s;
  }
  EXPECT_EQ(late, 4);
  EXPECT_EQ(world.served(1), kQuestions);
}

TEST(Peers, ForgetAnAskerThatIsGone) {
  World world(2);
  world.takes = [](int) { return 1s; };
  world.loses = [](int from, int, const std::string&) { return from == 1; };
  world.limit = 3s;
  for (size_t i = 0; i < Peers::kServedMax; ++i)
    world.ask(0, questions_to(1, 1));
  world.run();
  world.loses = nullptr;
  const World::Asked& asked = world.ask(0, questions_to(1, 1));
  world.run();
  EXPECT_EQ(asked.answers, (Texts{{1, "1: what of 1?"}}));
  EXPECT_LT(asked.took, 1100ms);
}

TEST(Peers, FailOpenQuestionsWhenTheRoundEnds) {
  World world(3);
  world.takes = [](int node) { return node == 1 ? Duration{1ms} : Duration{-1}; };
  const World::Asked& asked = world.ask(0, questions_to(1, 2));
  world.post(0, Peers::RoundEnded{});
  EXPECT_EQ(asked.answers, (Texts{{1, "the round has ended"}, {2, "the round has ended"}}));
  world.run();
}

TEST(Peers, DropAnswersToQuestionsOfAnEarlierRound) {
  Peers peers;
  std::vector<Peers::Effect> asked;
  peers.step(Instant{} + 1h, Peers::Ask{{{0, "?"}}, 1s, [](const auto&) {}}, asked);
  const Peers::Arrived question{1, std::get<Peers::Send>(asked.at(0)).payload};
  Peers other;
  std::vector<Peers::Effect> effects;
  other.step(Instant{} + 1h, question, effects);
  const uint64_t first = std::get<Peers::Serve>(effects.at(0)).key;
  other.step(Instant{} + 1h, Peers::RoundEnded{}, effects);
  other.step(Instant{} + 1h, question, effects);
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_NE(std::get<Peers::Serve>(effects.at(1)).key, first);
  other.step(Instant{} + 1h, Peers::Answer{first, "old"}, effects);
  EXPECT_EQ(effects.size(), 2u);
}

std::string part(uint32_t number, uint32_t count, const std::string& bytes) {
  std::string payload = letter_of(Letter::answer, "");
  FieldWriter writer(payload);
  writer.integer(uint64_t{1});
  writer.integer(number);
  writer.integer(count);
  writer.text(bytes, Peers::kPartBytes);
  return payload;
}

TEST(Peers, IgnoreContradictoryParts) {
  World world(3);
  world.loses = [](int, int, const std::string&) { return true; };
  const World::Asked& asked = world.ask(0, questions_to(1, 1));
  const std::string full(Peers::kPartBytes, 'a');
  const auto hear = [&](int from, const std::string& payload) {
    world.post(0, Peers::Arrived{from, payload});
  };
  hear(1, part(0, 2, full));
  hear(1, part(0, 2, std::string(Peers::kPartBytes, 'b')));  // A duplicate.
  hear(1, part(60, 66, full));                               // A longer answer.
  hear(1, part(0, 1, "c"));                                  // A shorter answer.
  hear(1, part(2, 2, "c"));
  hear(1, part(1, 2, ""));
  hear(1, part(1, uint32_t{1} << 31, full));
  hear(2, part(1, 2, "c"));  // From a node that was not asked.
  EXPECT_FALSE(asked.is_done);
  hear(1, part(1, 2, "z"));
  EXPECT_EQ(asked.answers, (Texts{{1, full + "z"}}));
}

TEST(Peers, SurviveANodeThatSendsGarbage) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Prng random(seed);
    World world(3);
    world.answer = [](int node, const std::string&) { return long_text(node, 50'000); };
    world.loses = [&](int from, int, std::string& payload) {
      if (from != 2) return false;
      if (random.chance(1, 4)) payload.resize(random.below(payload.size() + 1));
      for (uint64_t i = random.below(4); i > 0 && !payload.empty(); --i) {
        const uint64_t at = random.below(std::min<uint64_t>(payload.size(), 24));
        payload[at] = static_cast<char>(random.below(random.chance(1, 2) ? 6 : 256));
      }
      return false;
    };
    const World::Asked& asked = world.ask(0, questions_to(1, 2));
    const World::Asked& other = world.ask(1, questions_to(2, 2));
    world.ask(2, questions_to(0, 1));
    world.run();
    EXPECT_EQ(asked.answers.at(1), long_text(1, 50'000)) << seed;
    EXPECT_TRUE(asked.is_done && other.is_done) << seed;
  }
}

}  // namespace
}  // namespace muster

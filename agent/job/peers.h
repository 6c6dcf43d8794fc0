// Asks other nodes of the job questions and answers theirs, over the rendezvous' datagrams, which
// may be lost. A pure machine; the agent's loop carries out its effects.
//
//   a question (id, text, which parts)   new: it is served; else part(id, number, count, bytes) of
//                                        those parts, once there is an answer
//   the same, but no part                the answer has come, and is forgotten
//
// The asker fetches answers part by part and asks again for what has not come. So it sets the pace:
// many nodes that answer at once do not exceed what the host queues for one node, nor does a long
// answer use up the budget from which its node's other datagrams are paid.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

class Peers {
 public:
  static constexpr size_t kQuestionBytesMax = 16'000;
  static constexpr size_t kPartBytes = 16'000;
  static constexpr size_t kAnswerBytesMax = size_t{1} << 20;       // The budget of a rested node.
  static constexpr size_t kAllAnswersBytesMax = size_t{16} << 20;  // To one Ask.
  static constexpr size_t kServedMax = 8;
  static constexpr uint32_t kPartsOfNode = 4;   // That a node sends for one question.
  static constexpr uint32_t kPartsAtOnce = 16;  // That an Ask has all nodes send within kPace.
  static constexpr auto kPace = std::chrono::milliseconds(10);
  static constexpr auto kNextParts = std::chrono::milliseconds(100);  // 640 KiB/s from one node.
  static constexpr auto kAskAgain = std::chrono::milliseconds(500);
  static constexpr auto kForget = std::chrono::seconds(5);  // An asker that is heard no more.

  using Answers = std::map<int, Result<std::string>>;  // By node rank.
  using Done = std::function<void(const Answers&)>;

  struct Ask {
    std::map<int, std::string> questions;  // By node rank. REQUIRES: each within kQuestionBytesMax.
    Duration limit{};
    Done done;
  };
  struct Arrived {
    int from = 0;
    std::string payload;
  };
  // To a Serve. REQUIRES: not empty, and within kAnswerBytesMax.
  struct Answer {
    uint64_t key = 0;
    std::string text;
  };
  struct RoundEnded {};
  struct Tick {};
  using Event = std::variant<Ask, Arrived, Answer, RoundEnded, Tick>;

  struct Send {
    int to = 0;
    std::string payload;
  };
  struct Serve {
    uint64_t key = 0;
    std::string question;
  };
  // Once for each Ask, with an answer or an Error for each node.
  struct Finished {
    Done done;
    Answers answers;
  };
  using Effect = std::variant<Send, Serve, Finished>;

  void step(Instant now, const Event& event, std::vector<Effect>& effects);
  Instant next_deadline() const;

 private:
  struct Wanted {
    std::string question;
    std::vector<std::string> parts;  // None: it has not answered. An empty one has not come.
    size_t missing = 0;
    uint32_t first = 0;  // Of those that were asked for last.
    uint32_t count = 0;
    Instant asked{};
    Instant due{};  // When to ask again; its place in Open::due.
  };
  struct Open {
    std::map<int, Wanted> wanted;
    std::set<std::pair<Instant, int>> due;
    Instant pace_began{};
    uint32_t parts_left = 0;
    size_t bytes = 0;  // Of all parts of all answers.
    Instant ends{};
    Duration limit{};
    Done done;
    Answers answers;
  };
  struct Served {
    uint64_t key = 0;
    std::optional<std::string> answer;
    uint32_t first = 0;
    uint32_t count = 0;
    Instant forget_at{};
  };
  using Effects = std::vector<Effect>;

  void on(Instant now, const Ask& event, Effects& effects);
  void on(Instant now, const Arrived& event, Effects& effects);
  void on(Instant now, const Answer& event, Effects& effects);
  void on(Instant now, const RoundEnded& event, Effects& effects);
  void on(Instant now, const Tick& event, Effects& effects);
  void on_question(Instant now, int from, std::string_view content, Effects& effects);
  void on_part(Instant now, int from, std::string_view content, Effects& effects);
  static void be_due(Open& open, int node, Instant at);
  static void send_due(Instant now, uint64_t id, Open& open, Effects& effects);

  uint64_t last_id_ = 0;
  uint64_t last_key_ = 0;
  std::map<uint64_t, Open> open_;
  std::map<std::pair<int, uint64_t>, Served> served_;  // By node rank and the asker's id.
};

}  // namespace muster

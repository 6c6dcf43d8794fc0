// Asks other nodes of the job questions and answers theirs, over the rendezvous' datagrams, which
// may be lost. A pure machine; JobAnswers performs its effects.
//
//   a question (id, text, which parts)   if new, it is served; else answered by part(id, number,
//                                        count, bytes) of those parts, once there is an answer
//   the same, but no part                the answer has arrived, and is forgotten
//
// The asker fetches answers part by part and asks again for what has not come, so it sets the pace:
// many answers at once do not exceed what the host queues for one node, and a long answer does not
// use up its node's budget for other datagrams.
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
  static constexpr size_t kAnswerBytesMax = size_t{1} << 20;       // A node's full budget.
  static constexpr size_t kAllAnswersBytesMax = size_t{16} << 20;  // Sum per Ask.
  static constexpr size_t kServedMax = 8;
  static constexpr uint32_t kPartsOfNode = 4;   // Sent by a node per question.
  static constexpr uint32_t kPartsAtOnce = 16;  // Requested of all nodes by an Ask within kPace.
  static constexpr auto kPace = std::chrono::milliseconds(10);
  static constexpr auto kNextParts = std::chrono::milliseconds(100);  // 640 KiB/s from one node.
  static constexpr auto kAskAgain = std::chrono::milliseconds(500);
  static constexpr auto kForget = std::chrono::seconds(5);  // An asker that went silent.

  using Answers = std::map<int, Result<std::string>>;  // Keyed by node rank.
  using Done = std::function<void(const Answers&)>;

  struct Ask {
    std::map<int, std::string> questions;  // Keyed by node rank; each within kQuestionBytesMax.
    Duration limit{};
    Done done;
  };
  struct Arrived {
    int from = 0;
    std::string payload;
  };
  // Answers a Serve. REQUIRES: not empty, and within kAnswerBytesMax.
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
  // Emitted once for each Ask, with an answer or an Error for each node.
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
    std::vector<std::string> parts;  // None: no answer yet. An empty one has not come.
    size_t missing = 0;
    uint32_t first = 0;  // The first of those requested last.
    uint32_t count = 0;
    Instant asked{};
    Instant due{};  // When to ask again; its place in Open::due.
  };
  struct Open {
    std::map<int, Wanted> wanted;
    std::set<std::pair<Instant, int>> due;
    Instant pace_began{};
    uint32_t parts_left = 0;
    size_t bytes = 0;  // Sum over all parts of all answers.
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
  std::map<std::pair<int, uint64_t>, Served> served_;  // Keyed by node rank and asker's id.
};

}  // namespace muster

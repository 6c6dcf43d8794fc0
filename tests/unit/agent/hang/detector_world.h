// A simulation for the properties of the hang detector, on virtual time: ranks run a common program
// of collectives and messages, one fault occurs, and one agent, or one per node, reports the ranks
// through a channel that delays, loses, repeats and reorders. It shares no code with the detector:
// a call ends here because its members have come, not because counters say so.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/hang/detector.h"
#include "agent/hang/rank_state.h"
#include "rendezvous/base/prng.h"
#include "tests/unit/agent/hang/node_net.h"

namespace muster::hang {

enum class Fault : uint8_t {
  none,
  block,      // Never enters a call, and nothing moves.
  loop,       // Never enters a call, and computes.
  sleep,      // Never enters a call, and sleeps.
  stop,       // SIGSTOP, anywhere.
  leave,      // Exits with 0 before a call.
  signature,  // Another count or operation.
  crossed,    // Two calls of two groups the other way round.
  no_send,    // Leaves a send out.
  fail,       // Exits with 1 before a call.
};

struct WorldOptions {
  uint64_t seed = 0;
  Fault fault = Fault::none;
  Channel channel;
  int nodes = 1;  // If more, they report by NodeReporters, and the first one has rank 0 only.
  Limits limits;
  Duration busy_max = std::chrono::seconds(35);  // Longest time without a wait in a call, about.
  Duration block_max = std::chrono::seconds(8);  // Longest blocking for unknown reasons.
};

class World {
 public:
  explicit World(const WorldOptions& options);

  // Runs until nothing can change any more, and for `after` beyond that.
  void run(Duration after);

  struct Said {
    Instant at{};
    Effect effect;
  };
  const std::vector<Said>& said() const { return said_; }
  std::vector<Finding> verdicts() const;
  Instant settled() const { return moved_; }  // When a rank moved last.
  bool somebody_waits() const;
  bool all_ended() const;
  std::optional<int> faulty() const { return struck_ ? std::optional(culprit_) : std::nullopt; }
  // Only with several nodes: what the detector was told of a rank that was false at that time.
  const std::vector<std::string>& untrue() const { return untrue_; }
  std::string story() const;  // Seed, fault and the effects.

 private:
  struct Step {
    int group = 0;
    ring::Call call;
    int from = -1;  // Group ranks of a message.
    int to = -1;
    bool is_async = false;
  };
  struct Pause {
    Duration time{};
    LifeState life = LifeState::running;
  };
  struct Made {  // A member's call.
    ring::Call call;
    Instant at{};
  };
  struct Group {
    std::vector<int> ranks;
    std::vector<std::vector<Made>> made;  // By member.
    std::vector<uint64_t> ended;          // By member: calls that it has completed.
    std::vector<bool> is_open;            // By member.
    std::vector<Instant> opened;          // By member.
  };
  enum class Doing : uint8_t { opening, pausing, in_call, computing_in_call, ended, frozen };
  struct Rank {
    Doing doing = Doing::opening;
    std::vector<int> program;  // Indices of steps.
    size_t next = 0;
    size_t opened = 0;  // Groups, in order.
    Instant until{};    // End of a pause.
    Instant called{};
    Instant free_since{};  // End of its last long wait in a call.
    LifeState life = LifeState::running;
    Instant life_since{};
    bool is_stopped = false;
    int code = -1;
  };
  struct News {
    Instant at{};
    Event event;
  };

  void plan();
  void plan_steps();
  void place_fault();
  void place_crossed();
  void move(int rank);
  bool open_groups(int rank);
  void begin_pause(int rank);
  void make_call(int rank);
  bool is_complete(int rank, const Step& step) const;
  bool message_is_complete(const Group& group, const Step& step, int member) const;
  bool strike(int rank);
  void end(int rank, int code);
  void live(int rank, LifeState life);
  RankDigest digest_of(int rank);
  void spoil(RankDigest& digest);
  void send(int rank, Event event);
  void look_at_processes();
  void start_nodes();
  void check_truth(const Event& event);
  void look();
  void post(News news);
  void deliver();
  void tell(const Event& event);
  Duration random(Duration most) {
    return Duration(static_cast<int64_t>(prng_.below(static_cast<uint64_t>(most.count()) + 1)));
  }
  int member_of(const Group& group, int rank) const;

  WorldOptions options_;
  Prng prng_;
  Detector detector_;
  Instant now_{std::chrono::seconds(1000)};
  Instant moved_{};
  std::vector<Group> groups_;
  std::vector<Step> steps_;
  std::vector<Rank> ranks_;
  // Messages by group, sender and receiver.
  std::vector<std::vector<std::vector<uint64_t>>> sent_;
  std::vector<std::vector<std::vector<uint64_t>>> received_;
  std::vector<std::vector<std::vector<uint64_t>>> receiving_;

  int culprit_ = 0;
  size_t fault_at_ = 0;  // In the culprit's program.
  Instant stop_at_{};    // Time of the SIGSTOP.
  bool struck_ = false;

  std::optional<NodeNet> net_;  // Set if there are several nodes.
  // By rank: what each look has shown, and the detector's newest digest.
  std::vector<std::map<Instant, RankDigest>> truth_;
  std::vector<RankState> held_;
  std::vector<std::string> untrue_;
  std::vector<News> news_;
  std::vector<Said> said_;
  std::vector<int> looked_at_;
  std::set<int> looked_before_;
  Instant next_look_{};
};

}  // namespace muster::hang

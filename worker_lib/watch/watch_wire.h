// The messages between the watches of a job and their codec: frames of a 4-byte length and a 1-byte
// kind, little-endian. Pure; decoding treats its input as hostile: anyone may dial a TCP port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "worker_lib/failure.h"
#include "worker_lib/link_proof.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker::watch {

// Authentication: the dialler's Hello, the listener's Challenge, the dialler's Proof (see
// link_proof.h), then the listener's Admitted.
struct Hello {
  LinkNonce nonce{};
  int rank = -1;
  int world_size = 0;
  bool asks = false;  // A query for this rank's progress: makes no link.
  friend bool operator==(const Hello&, const Hello&) = default;
};

// Port at which a rank listens for other nodes; 0: none.
struct ListenPort {
  int rank = -1;
  uint16_t port = 0;
  friend bool operator==(const ListenPort&, const ListenPort&) = default;
};

// Goes up the tree during set-up: these ranks are connected, the sender first.
struct Ready {
  std::vector<ListenPort> ports;
  friend bool operator==(const Ready&, const Ready&) = default;
};

// Goes down the tree: all ranks are connected.
struct Go {
  std::vector<ListenPort> ports;
  friend bool operator==(const Go&, const Go&) = default;
};

// Goes to all ranks: the set-up has failed.
struct GiveUp {
  Failure failure;
  friend bool operator==(const GiveUp&, const GiveUp&) = default;
};

// Answers a peer's own `left`: it has been passed on.
struct Heard : Nothing {};

// Answers a Hello that asks. Then the asker hangs up.
struct Answer {
  std::string text;
  friend bool operator==(const Answer&, const Answer&) = default;
};

struct Challenge {
  LinkNonce nonce{};
  Mac proof{};  // The listener's.
  friend bool operator==(const Challenge&, const Challenge&) = default;
};

struct Proof {
  Mac proof{};  // The dialler's.
  friend bool operator==(const Proof&, const Proof&) = default;
};

// Confirms to the dialler that it is linked.
struct Admitted : Nothing {};

// The messages of agreements.h. A member's vote in the agreement `number` of its group, whose
// members are ranks of the job.
struct Vote {
  std::string group_id;
  std::vector<int> members;
  uint64_t number = 0;
  int rank = -1;
  BallotKind kind = BallotKind::agree;
  uint64_t value = 0;
  std::string text;
  int ballot = -1;    // The coordinator to which it votes.
  int accepted = -1;  // The coordinator whose verdict it has accepted; -1: none.
  Verdict verdict;
  friend bool operator==(const Vote&, const Vote&) = default;
};

// Goes from the coordinator `ballot` to all.
struct Proposal {
  std::string group_id;
  uint64_t number = 0;
  int ballot = -1;
  Verdict verdict;
  friend bool operator==(const Proposal&, const Proposal&) = default;
};

// Goes to all.
struct Decision {
  std::string group_id;
  uint64_t number = 0;
  Verdict verdict;
  friend bool operator==(const Decision&, const Decision&) = default;
};

// Goes from the coordinator to all: it waits for these ranks.
struct Missing {
  std::string group_id;
  uint64_t number = 0;
  std::vector<int> ranks;
  friend bool operator==(const Missing&, const Missing&) = default;
};

using Message = std::variant<Hello, Watch::News, Ready, Go, GiveUp, Heard, Answer, Challenge, Proof,
                             Admitted, Vote, Proposal, Decision, Missing>;

inline constexpr size_t kAnswerBytesMax = size_t{1} << 20;  // Longer answers are cut.
inline constexpr size_t kTextBytesMax = 4096;               // Longer texts are cut.
inline constexpr size_t kFrameBytesMax = size_t{1} << 22;
inline constexpr size_t kGreetingBytesMax = 16 + 32;  // Bodies of the first frames.

std::string encode(const Message& message);

// Splits a stream into messages. Accepts only frames of authentication size until trust().
class Decoder {
 public:
  void trust() { frame_bytes_max_ = kFrameBytesMax; }
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // nullopt: more bytes are needed, or the stream is broken.
  std::optional<Message> next();
  // True for good after an invalid frame.
  bool broken() const { return broken_; }

 private:
  size_t frame_bytes_max_ = kGreetingBytesMax;
  std::string buffer_;
  size_t read_ = 0;  // Position in buffer_.
  bool broken_ = false;
};

}  // namespace muster::worker::watch

// What the watches of a job say to each other: frames of a 4-byte length and a 1-byte kind, all
// numbers little-endian, and the codec for them. Pure; decoding treats its input as hostile, since
// anybody may dial a TCP port.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "worker_lib/failure.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker::watch {

using Nonce = std::array<uint8_t, 16>;

// The first frame in both directions. The nonce is the job's secret: who has not got it from the
// store does not belong here.
struct Hello {
  Nonce nonce{};
  int rank = -1;
  int world_size = 0;
  friend bool operator==(const Hello&, const Hello&) = default;
};

// Where a rank listens for other nodes; 0: nowhere.
struct ListenPort {
  int rank = -1;
  uint16_t port = 0;
  friend bool operator==(const ListenPort&, const ListenPort&) = default;
};

// Up, while the watch is being set up: these ranks are connected, the sender first.
struct Ready {
  std::vector<ListenPort> ports;
  friend bool operator==(const Ready&, const Ready&) = default;
};

// Down: all ranks are.
struct Go {
  std::vector<ListenPort> ports;
  friend bool operator==(const Go&, const Go&) = default;
};

// To everybody: the set-up has failed.
struct GiveUp {
  Failure failure;
  friend bool operator==(const GiveUp&, const GiveUp&) = default;
};

// The answer to a `left` of the other end itself: it has been passed on.
struct Heard {
  friend bool operator==(const Heard&, const Heard&) = default;
};

// Instead of a Hello, from who only asks where this rank is: no link is made of it.
struct Question {
  Nonce nonce{};
  int rank = -1;
  int world_size = 0;
  friend bool operator==(const Question&, const Question&) = default;
};

// Then the asker hangs up.
struct Answer {
  std::string text;
  friend bool operator==(const Answer&, const Answer&) = default;
};

using Message = std::variant<Hello, Watch::News, Ready, Go, GiveUp, Heard, Question, Answer>;

inline constexpr size_t kAnswerBytesMax = size_t{1} << 20;  // A longer one is not given.
inline constexpr size_t kTextBytesMax = 4096;               // Longer texts are cut.
inline constexpr size_t kFrameBytesMax = size_t{1} << 22;
inline constexpr size_t kHelloBytes = 16 + 4 + 4;  // Of its body, and of a Question's.

std::string encode(const Message& message);

// Cuts a stream into messages. Takes a Hello or a Question only, until it is told to trust.
class Decoder {
 public:
  void trust() { frame_bytes_max_ = kFrameBytesMax; }
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // Nothing: more bytes are needed, or the stream is broken.
  std::optional<Message> next();
  // For good: it said what no watch says.
  bool broken() const { return broken_; }

 private:
  size_t frame_bytes_max_ = kHelloBytes;
  std::string buffer_;
  size_t read_ = 0;  // Of buffer_.
  bool broken_ = false;
};

}  // namespace muster::worker::watch

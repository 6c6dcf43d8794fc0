// What the two targets of the agents' protocol share: each of them reads the frames of one
// direction.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/membership/agent_protocol.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/transcripts/agent_protocol_transcript.h"

namespace muster::fuzz {

// What a peer's bytes mean: messages, and whether the connection was broken off in the end.
template <typename Message>
class Conversation {
 public:
  void hear(std::string_view bytes) {
    if (broken_off_) return;
    reader_.feed(bytes);
    while (true) {
      Result<std::optional<Message>> next = reader_.next();
      if (!next) {
        broken_off_ = true;
        CHECK(!next.error().message.empty());
        CHECK(next.error().message.find('\n') == std::string::npos);
        return;
      }
      if (!*next) return;
      messages_.push_back(std::move(**next));
    }
  }

  friend bool operator==(const Conversation& left, const Conversation& right) {
    return left.broken_off_ == right.broken_off_ && left.messages_ == right.messages_;
  }

  bool broken_off() const { return broken_off_; }
  const std::vector<Message>& messages() const { return messages_; }

 private:
  membership::FrameReader<Message> reader_{membership::kStrangerFrameBytesMax};
  std::vector<Message> messages_;
  bool broken_off_ = false;
};

// Cuts make no difference; what was decoded can be encoded again with the same meaning; its text is
// one line.
template <typename Message>
void check_frames(std::string_view input) {
  Conversation<Message> whole, cut, again;
  whole.hear(input);
  feed_in_pieces(input, input.size(), [&](std::string_view piece) { cut.hear(piece); });
  CHECK(whole == cut);
  std::string said;
  for (const Message& message : whole.messages()) {
    membership::encode(message, said);
    CHECK(membership::to_text(message).find('\n') == std::string::npos);
  }
  again.hear(said);
  CHECK(!again.broken_off() && again.messages() == whole.messages());
}

}  // namespace muster::fuzz

// Shared by the two targets of the agents' protocol, each of which reads the frames of one
// direction.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/frame_seal.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/transcripts/agent_protocol_transcript.h"

namespace muster::fuzz {

// The messages in a peer's bytes, and whether they broke off the connection.
template <typename Message>
class Conversation {
 public:
  Conversation() = default;
  explicit Conversation(const membership::FrameSeal& seal) { reader_.expect(seal); }

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
      sealed_ += reader_.is_sealed() ? 1 : 0;
      messages_.push_back(std::move(**next));
    }
  }

  friend bool operator==(const Conversation& left, const Conversation& right) {
    return left.broken_off_ == right.broken_off_ && left.messages_ == right.messages_;
  }

  bool broken_off() const { return broken_off_; }
  const std::vector<Message>& messages() const { return messages_; }
  size_t sealed() const { return sealed_; }

 private:
  membership::FrameReader<Message> reader_{membership::kStrangerFrameBytesMax};
  std::vector<Message> messages_;
  size_t sealed_ = 0;
  bool broken_off_ = false;
};

// Cuts make no difference; decoded messages survive another round trip, also with a seal; their
// texts are one line. No input has a valid seal by chance.
template <typename Message>
void check_frames(std::string_view input) {
  membership::FrameSeal seal(Mac{});
  Conversation<Message> whole, cut, again, sealed(seal), forged(seal);
  whole.hear(input);
  forged.hear(input);
  CHECK(forged.sealed() == 0);
  feed_in_pieces(input, input.size(), [&](std::string_view piece) { cut.hear(piece); });
  CHECK(whole == cut);
  std::string said;
  for (const Message& message : whole.messages()) {
    std::string frame;
    membership::encode(message, frame);
    said += frame;
    seal.close(frame);  // The seal may make it too long for an unauthenticated peer.
    sealed.hear(frame);
    CHECK(membership::to_text(message).find('\n') == std::string::npos);
  }
  again.hear(said);
  CHECK(!again.broken_off() && again.messages() == whole.messages());
  CHECK(sealed.broken_off() || sealed.sealed() == whole.messages().size());
}

}  // namespace muster::fuzz

// An unauthenticated peer or a malfunctioning rank sends any bytes to a rank's watch. The first
// byte says whether the peer is authenticated.
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "worker_lib/watch/watch_wire.h"

namespace muster::fuzz {
namespace {

using worker::watch::Decoder;
using worker::watch::Message;

// The messages in the bytes, and whether they broke the connection.
class Heard {
 public:
  explicit Heard(bool trusted) {
    if (trusted) decoder_.trust();
  }
  void hear(std::string_view bytes) {
    decoder_.feed(bytes);
    while (std::optional<Message> message = decoder_.next())
      messages_.push_back(std::move(*message));
  }
  bool broken() const { return decoder_.broken(); }
  const std::vector<Message>& messages() const { return messages_; }

 private:
  Decoder decoder_;
  std::vector<Message> messages_;
};

// Cuts make no difference, and each message has one encoding: the received bytes.
void check(std::string_view input) {
  const bool trusted = take_byte(input) % 2 == 1;
  Heard whole(trusted), cut(trusted);
  whole.hear(input);
  feed_in_pieces(input, input.size(), [&](std::string_view piece) { cut.hear(piece); });
  CHECK(whole.messages() == cut.messages() && whole.broken() == cut.broken());
  std::string said;
  for (const Message& message : whole.messages())
    said += encode(message);
  CHECK(input.starts_with(said));
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::check(muster::fuzz::as_text(data, size));
  return 0;
}

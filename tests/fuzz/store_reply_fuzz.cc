// A hostile server answers a store client. The first byte of the input selects the shape of the
// expected answer, the second its number of strings; the rest comes from the server. Checked: cuts
// make no difference, and no answer is larger than allowed.
#include <string>

#include "rendezvous/store/tcpstore_codec.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

using tcpstore::Reply;
using tcpstore::ReplyDecoder;
using tcpstore::Shape;

constexpr size_t kReplyBytesMax = 1 << 16;

struct Heard {
  ReplyDecoder::Decoded outcome = ReplyDecoder::Decoded::more;
  Reply reply;
  size_t used = 0;

  friend bool operator==(const Heard&, const Heard&) = default;
};

size_t size_of(const Reply& reply) {
  size_t sum = 0;
  for (const std::string& text : reply.strings)
    sum += text.size();
  return sum;
}

class Listener {
 public:
  Listener(Shape shape, size_t strings) : decoder_(shape, strings, kReplyBytesMax) {}

  void hear(std::string_view bytes) {
    if (heard_.outcome != ReplyDecoder::Decoded::more) return;
    const size_t before = bytes.size();
    heard_.outcome = decoder_.next(bytes);
    heard_.used += before - bytes.size();
    if (heard_.outcome == ReplyDecoder::Decoded::more) CHECK(bytes.empty());
    if (heard_.outcome == ReplyDecoder::Decoded::reply) heard_.reply = decoder_.take();
  }

  const Heard& heard() const { return heard_; }

 private:
  ReplyDecoder decoder_;
  Heard heard_;
};

void run(std::string_view input) {
  const auto shape = static_cast<Shape>(1 + take_byte(input) % 5);
  const size_t strings = 1 + take_byte(input);
  Listener whole(shape, strings), cut(shape, strings);
  whole.hear(input);
  feed_in_pieces(input, input.size(), [&](std::string_view piece) { cut.hear(piece); });
  CHECK(size_of(whole.heard().reply) <= kReplyBytesMax);
  // With cuts, a malformed answer may be detected some bytes earlier or later.
  CHECK(whole.heard().outcome == cut.heard().outcome || input.empty());
  if (whole.heard().outcome == ReplyDecoder::Decoded::reply) CHECK(whole.heard() == cut.heard());
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::run(muster::fuzz::as_text(data, size));
  return 0;
}

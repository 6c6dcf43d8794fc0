// The client's half of the wire format of PyTorch's TCPStore: the shape of each answer (an answer
// has no header, so the client must know it) and a decoder. Pure. Input may be split anywhere; each
// byte is read once. The server is not trusted: an answer longer than the limit is malformed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::tcpstore {

enum class Shape : uint8_t {
  none,     // No answer.
  flag,     // u8
  nonce,    // u32
  number,   // i64
  strings,  // As many strings as were requested.
  names,    // i64 n, then n strings.
};

// `number` is the flag, nonce or number.
struct Reply {
  int64_t number = 0;
  std::vector<std::string> strings;

  friend bool operator==(const Reply&, const Reply&) = default;
};

class ReplyDecoder {
 public:
  enum class Decoded { reply, more, malformed };
  static constexpr size_t kReplyBytesMax = size_t{1} << 30;

  // `strings`: their number, for Shape::strings.
  ReplyDecoder(Shape shape, size_t strings, size_t reply_bytes_max = kReplyBytesMax);

  // Takes bytes of the answer off the front of `input`. After `reply`, take() returns the answer.
  Decoded next(std::string_view& input);
  Reply take() { return std::move(reply_); }

 private:
  enum class Stage { number, length, body, done };

  bool gather(std::string_view& input, size_t width);
  Decoded after_number();
  Decoded begin_string();
  Decoded next_string();

  Shape shape_;
  size_t strings_left_;
  size_t bytes_left_;  // Rest of reply_bytes_max.
  Stage stage_;
  std::string small_;  // Bytes so far of a number or length.
  uint64_t body_left_ = 0;
  Reply reply_;
};

}  // namespace muster::tcpstore

// The wire format of PyTorch's TCPStore. Here is the server's half: decodes requests and encodes
// answers; the client's follows. All integers are little-endian, a string is u64 length + bytes, a
// request is an opcode byte + its fields, an answer has no header. Pure; one decoder per
// connection. Input may be split anywhere: the decoder remembers its position, so each byte is read
// once, and it holds no buffer between two requests. Every length has a limit (those of PyTorch's
// server, and one on a whole request). A violation of a limit or of the handshake is a Breach: the
// caller closes the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace muster::tcpstore {

inline constexpr uint32_t kMagic = 0x3C85F7CE;
inline constexpr size_t kKeyBytesMax = 8192;
inline constexpr size_t kValueBytesMax = size_t{8} << 20;
inline constexpr size_t kListMax = 131072;
inline constexpr size_t kRequestBytesMax = size_t{64} << 20;  // The protocol has no such limit.

enum class Op : uint8_t {
  validate = 0,
  set = 1,
  compare_set = 2,
  get = 3,
  add = 4,
  check = 5,
  wait = 6,
  num_keys = 7,
  delete_key = 8,
  append = 9,
  multi_get = 10,
  multi_set = 11,
  cancel_wait = 12,
  ping = 13,
  queue_push = 14,
  queue_pop = 15,
  queue_len = 16,
  list_keys = 17,
  barrier = 18,
};
inline constexpr uint8_t kLastOp = 18;

// One-byte answers.
inline constexpr char kReady = 0;      // CHECK: all exist; WAIT, BARRIER: continue.
inline constexpr char kNotReady = 1;   // CHECK.
inline constexpr char kCancelled = 1;  // CANCEL_WAIT.

// The reason why a connection is closed.
enum class Breach : uint8_t {
  not_validated,
  bad_magic,
  second_validate,
  unknown_operation,
  key_too_long,
  value_too_long,
  too_many_keys,
  request_too_large,
  not_a_number,     // ADD or BARRIER on a value that is not a number.
  reply_too_large,  // The requested values exceed the limit of one answer.
  store_full,
};
inline constexpr size_t kBreaches = 11;

// `fields` are in wire order: key, then values; MULTI_SET: key, value, key, value, … They point
// into the decoder's input or buffer and are valid until the decoder's next call.
struct Request {
  Op op = Op::validate;
  int64_t number = 0;  // VALIDATE's magic, PING's nonce, ADD's delta, BARRIER's world size.
  std::vector<std::string_view> fields;
  // The buffer of the fields if the request came in pieces, else null. The caller may move from it.
  std::string* storage = nullptr;

  std::string_view key() const { return fields[0]; }
  std::string_view value() const { return fields[1]; }
};

class RequestDecoder {
 public:
  enum class Decoded { request, more, breach };

  explicit RequestDecoder(size_t request_bytes_max = kRequestBytesMax);
  RequestDecoder(RequestDecoder&&) noexcept;
  RequestDecoder& operator=(RequestDecoder&&) noexcept;
  ~RequestDecoder();

  // Takes one request off the front of `input`. On `more` all input is consumed and buffered; after
  // `breach` the decoder is unusable. VALIDATE, with the magic, must come first and only once.
  Decoded next(std::string_view& input, Request& request);

  // REQUIRES: the last call of next() returned breach.
  Breach breach() const { return breach_; }

  bool validated() const { return validated_; }

  // Bytes buffered for an unfinished request.
  size_t buffered() const;

 private:
  struct Parse;
  struct Partial;

  bool at_a_glance(std::string_view& input, Request& request) const;
  Decoded direct(std::string_view& input, Request& request);
  void keep(std::string_view input, const Parse& parse);
  Decoded resume(std::string_view& input, Request& request);
  Decoded finish(Decoded outcome, const Parse& parse);

  std::unique_ptr<Partial> partial_;  // Non-null only while a request is unfinished.
  uint32_t request_bytes_max_;
  Breach breach_ = Breach::not_validated;
  bool validated_ = false;
};

// Append to `out`; used by both halves.
void put_u8(std::string& out, uint8_t value);
void put_u32(std::string& out, uint32_t value);
void put_u64(std::string& out, uint64_t value);
void put_i64(std::string& out, int64_t value);
void put_string(std::string& out, std::string_view value);

// REQUIRES: `bytes` points to at least four or eight bytes.
uint32_t read_u32(const char* bytes);
uint64_t read_u64(const char* bytes);

// ---- the client's half: the shape of each answer (an answer has no header, so the client must
// know it) and a decoder. Input may be split anywhere; each byte is read once. The server is not
// trusted: an answer longer than the limit is malformed.

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

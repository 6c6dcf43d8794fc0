// The wire format of PyTorch's TCPStore, the server's half: bytes of a client become requests,
// answers become bytes. All integers are little-endian, a string is u64 length + bytes, a request
// is an opcode byte + its fields, an answer has no header. Pure; one decoder per connection, owned
// by whoever owns the connection. Bytes may be cut anywhere: the decoder remembers where it was, so
// each byte is looked at once, and a connection between two requests holds no buffer at all. Every
// length has a limit (those of PyTorch's own server, and one on a whole request); whatever breaks
// one, or the rules of the handshake, is a Breach: the caller hangs up.
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
inline constexpr size_t kRequestBytesMax = size_t{64} << 20;  // The protocol itself has none.

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

// Answers of one byte.
inline constexpr char kReady = 0;      // CHECK: all there; WAIT, BARRIER: go on.
inline constexpr char kNotReady = 1;   // CHECK.
inline constexpr char kCancelled = 1;  // CANCEL_WAIT.

// Why a client is hung up on.
enum class Breach : uint8_t {
  not_validated,
  bad_magic,
  second_validate,
  unknown_operation,
  key_too_long,
  value_too_long,
  too_many_keys,
  request_too_large,
  not_a_number,     // ADD or BARRIER on a value that is none.
  reply_too_large,  // The stored values that it asks for exceed what one answer may hold.
  store_full,
};
inline constexpr size_t kBreaches = 11;

// `fields` stand in the order of the wire: key, then values; MULTI_SET: key, value, key, value, …
// They point into the decoder's input or buffer: valid until the next call of the decoder.
struct Request {
  Op op = Op::validate;
  int64_t number = 0;  // VALIDATE's magic, PING's nonce, ADD's delta, BARRIER's world size.
  std::vector<std::string_view> fields;
  // What the fields point into, where the request came in pieces (null else): whoever serves it may
  // take it, since the decoder has no more use for it.
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

  // Takes one request off the front of `input`. On `more` the input is used up and what belongs to
  // the unfinished request is kept here; after `breach` the decoder is of no further use. The first
  // request must be VALIDATE with the magic, and none after it may be.
  Decoded next(std::string_view& input, Request& request);

  // REQUIRES: the last call of next() said breach.
  Breach breach() const { return breach_; }

  bool validated() const { return validated_; }

  // Bytes held for an unfinished request.
  size_t buffered() const;

 private:
  struct Parse;
  struct Partial;

  bool at_a_glance(std::string_view& input, Request& request) const;
  Decoded direct(std::string_view& input, Request& request);
  void keep(std::string_view input, const Parse& parse);
  Decoded resume(std::string_view& input, Request& request);
  Decoded finish(Decoded outcome, const Parse& parse);

  std::unique_ptr<Partial> partial_;  // Only while a request is unfinished.
  uint32_t request_bytes_max_;
  Breach breach_ = Breach::not_validated;
  bool validated_ = false;
};

// Writing, for both halves: these append.
void put_u8(std::string& out, uint8_t value);
void put_u32(std::string& out, uint32_t value);
void put_u64(std::string& out, uint64_t value);
void put_i64(std::string& out, int64_t value);
void put_string(std::string& out, std::string_view value);

// Reading. REQUIRES: that many bytes are there.
uint32_t read_u32(const char* bytes);
uint64_t read_u64(const char* bytes);

}  // namespace muster::tcpstore

#include "rendezvous/store/tcpstore_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "rendezvous/base/error.h"

namespace muster::tcpstore {
namespace {

static_assert(std::endian::native == std::endian::little);

// A field of a request that is buffered: its offset from the opcode.
struct Span {
  uint32_t begin;
  uint32_t length;
};

// The fields of each operation: k key, v value, n i64, u u32, K keys, P key-value pairs.
constexpr std::array<const char*, kLastOp + 1> kLayouts = {
    "u",    // VALIDATE
    "kv",   // SET
    "kvv",  // COMPARE_SET
    "k",    // GET
    "kn",   // ADD
    "K",    // CHECK
    "K",    // WAIT
    "",     // GETNUMKEYS
    "k",    // DELETE_KEY
    "kv",   // APPEND
    "K",    // MULTI_GET
    "P",    // MULTI_SET
    "",     // CANCEL_WAIT
    "u",    // PING
    "kv",   // QUEUE_PUSH
    "k",    // QUEUE_POP
    "k",    // QUEUE_LEN
    "",     // LIST_KEYS
    "kn",   // BARRIER
};

// Layouts of at most one key, then at most one number, for at_a_glance().
struct Brief {
  bool is = false;
  bool key = false;
  uint8_t number_bytes = 0;
};

constexpr Brief brief(std::string_view layout) {
  const bool key = layout.starts_with('k');
  if (key) layout.remove_prefix(1);
  if (layout.empty()) return {true, key, 0};
  if (layout == "n") return {true, key, 8};
  if (layout == "u") return {true, key, 4};
  return {};
}

constexpr std::array<Brief, kLastOp + 1> kBriefs = [] {
  std::array<Brief, kLastOp + 1> briefs;
  for (size_t code = 0; code <= kLastOp; code++)
    briefs[code] = brief(kLayouts[code]);
  return briefs;
}();

// Width of the number that begins an answer, by Shape.
constexpr auto kNumberBytes = std::to_array<size_t>({0, 1, 4, 8, 0, 8});
static_assert(kNumberBytes.size() == static_cast<size_t>(Shape::names) + 1);

size_t number_bytes(Shape shape) {
  return kNumberBytes[static_cast<size_t>(shape)];
}

}  // namespace

// The progress in one request. `position` is the end of the last complete field; an incomplete
// field is parsed again from its length, which is constant work per call.
struct RequestDecoder::Parse {
  Op op = Op::validate;
  const char* step = nullptr;  // The rest of the layout; null before the opcode.
  uint32_t strings_left = 0;   // Strings left in the list.
  bool pairs = false;          // True if the list holds keys and values.
  uint32_t position = 0;
  size_t wanted = 0;  // End of the last string, received or not.
  int64_t number = 0;
  // The complete strings: in `fields` while the bytes stay in place, in `spans` once they may move.
  std::vector<Span>* spans = nullptr;
  std::vector<std::string_view>* fields = nullptr;
  uint32_t request_bytes_max = 0;
  Breach breach = Breach::not_validated;

  using Stop = std::optional<Decoded>;  // nullopt: continue.

  Decoded fail(Breach why) {
    breach = why;
    return Decoded::breach;
  }

  Stop take_opcode(std::string_view bytes, bool validated) {
    if (bytes.empty()) return Decoded::more;
    const auto code = static_cast<uint8_t>(bytes[0]);
    op = static_cast<Op>(code);
    if (!validated && op != Op::validate) return fail(Breach::not_validated);
    if (validated && op == Op::validate) return fail(Breach::second_validate);
    if (code > kLastOp) return fail(Breach::unknown_operation);
    step = kLayouts[code];
    position = 1;
    return {};
  }

  Stop take_string(std::string_view bytes, size_t length_max, Breach too_long) {
    if (bytes.size() - position < 8) return Decoded::more;
    const uint64_t length = read_u64(bytes.data() + position);
    if (length > length_max) return fail(too_long);
    if (position + 8 + length > request_bytes_max) return fail(Breach::request_too_large);
    wanted = position + 8 + static_cast<size_t>(length);
    if (bytes.size() < wanted) return Decoded::more;
    if (fields != nullptr) {
      fields->emplace_back(bytes.data() + position + 8, static_cast<size_t>(length));
    } else {
      spans->push_back({position + 8, static_cast<uint32_t>(length)});
    }
    position += static_cast<uint32_t>(8 + length);
    return {};
  }

  Stop take_key(std::string_view bytes) {
    return take_string(bytes, kKeyBytesMax, Breach::key_too_long);
  }
  Stop take_value(std::string_view bytes) {
    return take_string(bytes, kValueBytesMax, Breach::value_too_long);
  }

  Stop take_number(std::string_view bytes, size_t width) {
    if (bytes.size() - position < width) return Decoded::more;
    number = width == 4 ? static_cast<int64_t>(read_u32(bytes.data() + position))
                        : static_cast<int64_t>(read_u64(bytes.data() + position));
    position += static_cast<uint32_t>(width);
    return {};
  }

  Stop take_count(std::string_view bytes, bool of_pairs) {
    if (const Stop stop = take_number(bytes, 8)) return stop;
    const auto count = static_cast<uint64_t>(number);
    if (count > kListMax) return fail(Breach::too_many_keys);
    pairs = of_pairs;
    strings_left = static_cast<uint32_t>(of_pairs ? 2 * count : count);
    return {};
  }

  Stop take_list(std::string_view bytes) {
    for (; strings_left > 0; --strings_left) {
      const bool value = pairs && strings_left % 2 == 1;
      if (const Stop stop = value ? take_value(bytes) : take_key(bytes)) return stop;
    }
    return {};
  }

  Stop take_step(std::string_view bytes) {
    switch (*step) {
      case 'k':
        return take_key(bytes);
      case 'v':
        return take_value(bytes);
      case 'u':
        return take_number(bytes, 4);
      case 'n':
        return take_number(bytes, 8);
      default:
        return take_count(bytes, *step == 'P');
    }
  }

  // `bytes` starts with the opcode; it may extend into later requests.
  Decoded advance(std::string_view bytes, bool validated) {
    if (step == nullptr) {
      if (const Stop stop = take_opcode(bytes, validated)) return *stop;
    }
    for (;;) {
      if (const Stop stop = take_list(bytes)) return *stop;
      if (*step == '\0') break;
      if (const Stop stop = take_step(bytes)) return *stop;
      ++step;
    }
    if (op == Op::validate && number != kMagic) return fail(Breach::bad_magic);
    return Decoded::request;
  }

  void fill(Request& request, const char* base) const {
    request.op = op;
    request.number = number;
    request.fields.clear();
    for (const Span& span : *spans)
      request.fields.emplace_back(base + span.begin, span.length);
  }
};

struct RequestDecoder::Partial {
  Parse parse;
  std::vector<Span> spans;
  std::string bytes;
  bool served = false;  // True once its request was returned; views into `bytes` are in use.
};

RequestDecoder::RequestDecoder(size_t request_bytes_max)
    : request_bytes_max_(static_cast<uint32_t>(request_bytes_max)) {
  CHECK(request_bytes_max < UINT32_MAX);
}
RequestDecoder::RequestDecoder(RequestDecoder&&) noexcept = default;
RequestDecoder& RequestDecoder::operator=(RequestDecoder&&) noexcept = default;
RequestDecoder::~RequestDecoder() = default;

RequestDecoder::Decoded RequestDecoder::next(std::string_view& input, Request& request) {
  if (partial_ && partial_->served) partial_.reset();
  if (partial_) return resume(input, request);
  return at_a_glance(input, request) ? Decoded::request : direct(input, request);
}

// Decodes the most frequent requests (PING, GET, ADD) in a third of the time of direct(). Returns
// false for other layouts and if incomplete or invalid; direct() finds out which.
bool RequestDecoder::at_a_glance(std::string_view& input, Request& request) const {
  if (!validated_ || input.empty()) return false;
  const auto code = static_cast<uint8_t>(input[0]);
  if (code == 0 || code > kLastOp) return false;  // 0: a second VALIDATE.
  const Brief shape = kBriefs[code];
  if (!shape.is) return false;
  uint64_t end = 1;
  std::string_view key;
  if (shape.key) {
    if (input.size() < 9) return false;
    const uint64_t length = read_u64(input.data() + 1);
    if (length > kKeyBytesMax || length > input.size() - 9) return false;
    key = input.substr(9, length);
    end = 9 + length;
  }
  if (end > request_bytes_max_ || input.size() - end < shape.number_bytes) return false;
  request.op = static_cast<Op>(code);
  request.storage = nullptr;
  request.fields.clear();
  if (shape.key) request.fields.push_back(key);
  const char* const number = input.data() + end;
  if (shape.number_bytes == 8) request.number = static_cast<int64_t>(read_u64(number));
  if (shape.number_bytes == 4) request.number = read_u32(number);
  input.remove_prefix(end + shape.number_bytes);
  return true;
}

// Decodes in place, without a copy, if `input` holds the whole request; else buffers it.
RequestDecoder::Decoded RequestDecoder::direct(std::string_view& input, Request& request) {
  request.fields.clear();
  Parse parse;
  parse.fields = &request.fields;
  parse.request_bytes_max = request_bytes_max_;
  const Decoded outcome = parse.advance(input, validated_);
  if (outcome == Decoded::request) {
    request.op = parse.op;
    request.number = parse.number;
    request.storage = nullptr;
    input.remove_prefix(parse.position);
  } else if (outcome == Decoded::more && !input.empty()) {
    keep(input, parse);
    input = {};
  }
  return finish(outcome, parse);
}

// Saves the received part of a request for resume().
void RequestDecoder::keep(std::string_view input, const Parse& parse) {
  partial_ = std::make_unique<Partial>();
  partial_->bytes = input;
  for (const std::string_view field : *parse.fields) {
    partial_->spans.push_back(
        {static_cast<uint32_t>(field.data() - input.data()), static_cast<uint32_t>(field.size())});
  }
  partial_->parse = parse;
  partial_->parse.spans = &partial_->spans;
  partial_->parse.fields = nullptr;
}

// Appends `input`, then gives back the bytes of later requests, which are decoded in place again.
RequestDecoder::Decoded RequestDecoder::resume(std::string_view& input, Request& request) {
  Partial& partial = *partial_;
  const size_t before = partial.bytes.size();
  partial.bytes.append(input);
  const Decoded outcome = partial.parse.advance(partial.bytes, validated_);
  // Once a sixteenth of a large value has arrived, reserves room for all of it, so it is not moved
  // as it grows; a length that is merely announced reserves nothing.
  if (outcome == Decoded::more && partial.bytes.size() >= partial.parse.wanted / 16) {
    partial.bytes.reserve(partial.parse.wanted);
  }
  if (outcome == Decoded::request) {
    partial.parse.fill(request, partial.bytes.data());
    request.storage = &partial.bytes;
    partial.served = true;
    input.remove_prefix(partial.parse.position - before);
  } else {
    input = {};
  }
  return finish(outcome, partial.parse);
}

RequestDecoder::Decoded RequestDecoder::finish(Decoded outcome, const Parse& parse) {
  if (outcome == Decoded::breach) breach_ = parse.breach;
  if (outcome == Decoded::request) validated_ = true;
  return outcome;
}

size_t RequestDecoder::buffered() const {
  if (!partial_) return 0;
  return partial_->bytes.capacity() + partial_->spans.capacity() * sizeof(Span);
}

void put_u8(std::string& out, uint8_t value) {
  out.push_back(static_cast<char>(value));
}

void put_u32(std::string& out, uint32_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_u64(std::string& out, uint64_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_i64(std::string& out, int64_t value) {
  put_u64(out, static_cast<uint64_t>(value));
}

void put_string(std::string& out, std::string_view value) {
  put_u64(out, value.size());
  out.append(value);
}

uint32_t read_u32(const char* bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

uint64_t read_u64(const char* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

ReplyDecoder::ReplyDecoder(Shape shape, size_t strings, size_t reply_bytes_max)
    : shape_(shape),
      strings_left_(shape == Shape::strings ? strings : 0),
      bytes_left_(reply_bytes_max),
      stage_(number_bytes(shape) > 0 ? Stage::number
             : strings_left_ > 0     ? Stage::length
                                     : Stage::done) {}

// Returns true once `width` bytes are in small_.
bool ReplyDecoder::gather(std::string_view& input, size_t width) {
  const size_t taken = std::min(width - small_.size(), input.size());
  small_.append(input.substr(0, taken));
  input.remove_prefix(taken);
  return small_.size() == width;
}

ReplyDecoder::Decoded ReplyDecoder::next(std::string_view& input) {
  while (stage_ != Stage::done) {
    if (stage_ == Stage::body) {
      const size_t taken = std::min<uint64_t>(body_left_, input.size());
      reply_.strings.back().append(input.substr(0, taken));
      input.remove_prefix(taken);
      body_left_ -= taken;
      if (body_left_ > 0) return Decoded::more;
      next_string();
      continue;
    }
    const bool number = stage_ == Stage::number;
    if (!gather(input, number ? number_bytes(shape_) : 8)) return Decoded::more;
    const Decoded outcome = number ? after_number() : begin_string();
    small_.clear();
    if (outcome == Decoded::malformed) return outcome;
  }
  return Decoded::reply;
}

ReplyDecoder::Decoded ReplyDecoder::after_number() {
  small_.resize(8, '\0');
  reply_.number = static_cast<int64_t>(read_u64(small_.data()));
  if (shape_ == Shape::names) {
    // Each name takes at least eight bytes.
    if (reply_.number < 0 || static_cast<uint64_t>(reply_.number) > bytes_left_ / 8)
      return Decoded::malformed;
    strings_left_ = static_cast<size_t>(reply_.number);
  }
  stage_ = strings_left_ > 0 ? Stage::length : Stage::done;
  return Decoded::more;
}

ReplyDecoder::Decoded ReplyDecoder::begin_string() {
  body_left_ = read_u64(small_.data());
  if (bytes_left_ < 8 || body_left_ > bytes_left_ - 8) return Decoded::malformed;
  bytes_left_ -= 8 + body_left_;
  reply_.strings.emplace_back();
  if (body_left_ > 0) {
    stage_ = Stage::body;
    return Decoded::more;
  }
  return next_string();
}

ReplyDecoder::Decoded ReplyDecoder::next_string() {
  --strings_left_;
  stage_ = strings_left_ > 0 ? Stage::length : Stage::done;
  return Decoded::more;
}

}  // namespace muster::tcpstore

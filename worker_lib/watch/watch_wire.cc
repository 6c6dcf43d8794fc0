#include "worker_lib/watch/watch_wire.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

namespace muster::worker::watch {
namespace {

constexpr size_t kHeaderBytes = 5;

class FrameWriter {
 public:
  explicit FrameWriter(size_t kind) : bytes_(4, '\0') { put(static_cast<uint8_t>(kind)); }

  template <typename T>
  void put(T value) {
    using Bits = std::make_unsigned_t<T>;
    const Bits bits = static_cast<Bits>(value);
    for (size_t i = 0; i < sizeof(T); ++i)
      bytes_.push_back(static_cast<char>(static_cast<uint64_t>(bits) >> (8 * i)));
  }
  void put(std::string_view text, size_t bytes_max = kTextBytesMax) {
    text = text.substr(0, bytes_max);
    put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  void put(const Failure& failure) {
    put(static_cast<uint8_t>(failure.code));
    put(std::string_view(failure.message));
    put(static_cast<uint32_t>(failure.ranks.size()));
    for (const GlobalRank rank : failure.ranks)
      put(rank.value);
  }
  void put(const std::vector<ListenPort>& ports) {
    put(static_cast<uint32_t>(ports.size()));
    for (const ListenPort& place : ports) {
      put(place.rank);
      put(place.port);
    }
  }

  std::string finish() {
    const size_t size = bytes_.size() - kHeaderBytes;
    for (size_t i = 0; i < 4; ++i)
      bytes_[i] = static_cast<char>(size >> (8 * i));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

// After the first failed read, everything reads as zero and is_whole() is false.
class FrameReader {
 public:
  explicit FrameReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T number() {
    uint64_t bits = 0;
    const std::string_view raw = take(sizeof(T));
    for (size_t i = 0; i < raw.size(); ++i)
      bits |= static_cast<uint64_t>(static_cast<unsigned char>(raw[i])) << (8 * i);
    return static_cast<T>(bits);
  }
  std::string text(size_t bytes_max = kTextBytesMax) {
    const auto size = number<uint32_t>();
    if (size > bytes_max) ok_ = false;
    return std::string(take(size));
  }
  // How many elements of `each` bytes follow; 0 if there are not so many.
  size_t count(size_t each) {
    const size_t count = number<uint32_t>();
    if (count > bytes_.size() / each) ok_ = false;
    return ok_ ? count : 0;
  }
  Failure failure() {
    Failure failure;
    const auto code = number<uint8_t>();
    if (code < static_cast<uint8_t>(ErrorCode::invalid_argument) ||
        code > static_cast<uint8_t>(ErrorCode::system)) {
      ok_ = false;
      return failure;
    }
    failure.code = static_cast<ErrorCode>(code);
    failure.message = text();
    failure.ranks.resize(count(4));
    for (GlobalRank& rank : failure.ranks)
      rank.value = number<int32_t>();
    return failure;
  }
  std::vector<ListenPort> ports() {
    std::vector<ListenPort> ports(count(6));
    for (ListenPort& place : ports) {
      place.rank = number<int32_t>();
      place.port = number<uint16_t>();
    }
    return ports;
  }

  void refuse() { ok_ = false; }
  bool is_whole() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view take(size_t size) {
    if (size > bytes_.size()) ok_ = false;
    if (!ok_) return {};
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

struct PutBody {
  FrameWriter& out;

  void operator()(const Hello& hello) const { put_visitor(hello); }
  void operator()(const Question& question) const { put_visitor(question); }
  void operator()(const Answer& answer) const {
    out.put(std::string_view(answer.text), kAnswerBytesMax);
  }
  void operator()(const Watch::News& news) const {
    out.put(static_cast<uint8_t>(news.kind));
    out.put(news.rank.value);
    out.put(std::string_view(news.group_id));
    out.put(news.failure);
  }
  void operator()(const Ready& ready) const { out.put(ready.ports); }
  void operator()(const Go& go) const { out.put(go.ports); }
  void operator()(const GiveUp& give_up) const { out.put(give_up.failure); }
  void operator()(const Heard&) const {}

 private:
  template <typename Visitor>
  void put_visitor(const Visitor& visitor) const {
    for (const uint8_t byte : visitor.nonce)
      out.put(byte);
    out.put(visitor.rank);
    out.put(visitor.world_size);
  }
};

template <typename Visitor>
Visitor read_visitor(FrameReader& in) {
  Visitor visitor;
  for (uint8_t& byte : visitor.nonce)
    byte = in.number<uint8_t>();
  visitor.rank = in.number<int32_t>();
  visitor.world_size = in.number<int32_t>();
  return visitor;
}

Watch::News read_news(FrameReader& in) {
  Watch::News news;
  const auto kind = in.number<uint8_t>();
  if (kind > static_cast<uint8_t>(Watch::News::Kind::stopped)) {
    in.refuse();
    return news;
  }
  news.kind = static_cast<Watch::News::Kind>(kind);
  news.rank.value = in.number<int32_t>();
  news.group_id = in.text();
  news.failure = in.failure();
  return news;
}

std::optional<Message> read_message(size_t kind, std::string_view body) {
  FrameReader in(body);
  Message message;
  switch (kind) {
    case 0:
      message = read_visitor<Hello>(in);
      break;
    case 1:
      message = read_news(in);
      break;
    case 2:
      message = Ready{in.ports()};
      break;
    case 3:
      message = Go{in.ports()};
      break;
    case 4:
      message = GiveUp{in.failure()};
      break;
    case 5:
      message = Heard{};
      break;
    case 6:
      message = read_visitor<Question>(in);
      break;
    case 7:
      message = Answer{in.text(kAnswerBytesMax)};
      break;
    default:
      return std::nullopt;
  }
  return in.is_whole() ? std::optional(std::move(message)) : std::nullopt;
}

}  // namespace

std::string encode(const Message& message) {
  FrameWriter out(message.index());
  std::visit(PutBody{out}, message);
  return out.finish();
}

std::optional<Message> Decoder::next() {
  const std::string_view rest = std::string_view(buffer_).substr(read_);
  if (broken_ || rest.size() < kHeaderBytes) return std::nullopt;
  FrameReader header(rest.substr(0, kHeaderBytes));
  const size_t size = header.number<uint32_t>();
  const size_t kind = header.number<uint8_t>();
  if (size > frame_bytes_max_) broken_ = true;
  if (broken_ || rest.size() - kHeaderBytes < size) return std::nullopt;
  std::optional<Message> message = read_message(kind, rest.substr(kHeaderBytes, size));
  if (!message) broken_ = true;
  read_ += kHeaderBytes + size;
  if (read_ == buffer_.size()) {
    buffer_.clear();
    read_ = 0;
  }
  return message;
}

}  // namespace muster::worker::watch

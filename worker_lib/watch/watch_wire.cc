#include "worker_lib/watch/watch_wire.h"

#include "rendezvous/net/field_codec.h"

namespace muster::worker::watch {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kHeaderBytes = kLengthBytes + 1;
// Bound for lists, above what fits into a frame.
constexpr uint32_t kCountMax = kFrameBytesMax;

void fields(auto& a, Like<Failure> auto& m) {
  a.one_of(m.code, ErrorCode::system, ErrorCode::invalid_argument);
  a.text(m.message, kTextBytesMax);
  a.list(m.ranks, kCountMax, [&](auto& rank) { a.integer(rank.value); });
}

void fields(auto& a, Like<Hello> auto& m) {
  a.raw(m.nonce);
  a.integer(m.rank);
  a.integer(m.world_size);
  a.flag(m.asks);
}

void fields(auto& a, Like<Watch::News> auto& m) {
  a.one_of(m.kind, Watch::News::Kind::stopped);
  a.integer(m.rank.value);
  a.text(m.group_id, kTextBytesMax);
  fields(a, m.failure);
  a.list(m.performed, kCountMax, [&](auto& notice) {
    a.text(notice.group_id, kTextBytesMax);
    for (auto& count : notice.performed)
      a.integer(count);
  });
  a.integer(m.number);
  a.list(m.pending, kCountMax, [&](auto& group) {
    a.text(group.group_id, kTextBytesMax);
    a.list(group.transfers, kCountMax, [&](auto& transfer) {
      a.one_of(transfer.kind, OpKind::recv, OpKind::send);
      a.integer(transfer.peer);
      a.integer(transfer.tag);
    });
  });
}

void fields(auto& a, Like<Ready, Go> auto& m) {
  a.list(m.ports, kCountMax, [&](auto& place) {
    a.integer(place.rank);
    a.integer(place.port);
  });
}

void fields(auto& a, Like<GiveUp> auto& m) {
  fields(a, m.failure);
}

void fields(auto&, Like<Heard, Admitted> auto&) {}

void fields(auto& a, Like<Answer> auto& m) {
  a.text(m.text, kAnswerBytesMax);
}

void fields(auto& a, Like<Challenge> auto& m) {
  a.raw(m.nonce);
  a.raw(m.proof);
}

void fields(auto& a, Like<Proof> auto& m) {
  a.raw(m.proof);
}

void ranks_field(auto& a, auto& ranks) {
  a.list(ranks, kCountMax, [&](auto& rank) { a.integer(rank); });
}

void fields(auto& a, Like<Verdict> auto& m) {
  a.integer(m.value);
  a.integer(m.kinds);
  a.text(m.text, kTextBytesMax);
  ranks_field(a, m.voters);
}

void fields(auto& a, Like<Vote, Proposal, Decision, Missing> auto& m) {
  a.text(m.group_id, kTextBytesMax);
  a.integer(m.number);
  if constexpr (requires { m.members; }) {
    ranks_field(a, m.members);
    a.integer(m.rank);
    a.one_of(m.kind, BallotKind::confirm);
    a.integer(m.value);
    a.text(m.text, kTextBytesMax);
    a.integer(m.accepted);
  }
  if constexpr (requires { m.ballot; }) a.integer(m.ballot);
  if constexpr (requires { m.verdict; }) fields(a, m.verdict);
  if constexpr (requires { m.ranks; }) ranks_field(a, m.ranks);
}

}  // namespace

std::string encode(const Message& message) {
  std::string bytes(kLengthBytes, '\0');
  FieldWriter writer(bytes);
  writer.alternative(message, [&](const auto& m) { fields(writer, m); });
  const size_t size = bytes.size() - kHeaderBytes;
  for (size_t i = 0; i < kLengthBytes; ++i)
    bytes[i] = static_cast<char>(size >> (8 * i));
  return bytes;
}

std::optional<Message> Decoder::next() {
  const std::string_view rest = std::string_view(buffer_).substr(read_);
  if (broken_ || rest.size() < kHeaderBytes) return std::nullopt;
  uint32_t size = 0;
  FieldReader(rest).integer(size);
  if (size > frame_bytes_max_) broken_ = true;
  if (broken_ || rest.size() - kHeaderBytes < size) return std::nullopt;
  std::optional<Message> message(std::in_place);
  FieldReader reader(rest.substr(kLengthBytes, 1 + size));
  reader.alternative(*message, [&](auto& m) { fields(reader, m); });
  if (reader.end() != nullptr) message.reset();
  if (!message) broken_ = true;
  read_ += kHeaderBytes + size;
  if (read_ == buffer_.size()) {
    buffer_.clear();
    read_ = 0;
  }
  return message;
}

}  // namespace muster::worker::watch

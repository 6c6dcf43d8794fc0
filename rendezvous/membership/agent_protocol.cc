#include "rendezvous/membership/agent_protocol.h"

#include <concepts>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/net/field_codec.h"

namespace muster::membership {
namespace {

constexpr int kAnyInt = std::numeric_limits<int>::max();

// First message type of each direction. They share none, so one from the wrong side is detected.
template <typename Message>
constexpr uint8_t first_type() {
  return std::same_as<Message, AgentMessage> ? 1 : 65;
}

constexpr uint8_t kRefusedType = 67;
static_assert(std::same_as<Refused, std::variant_alternative_t<
                                        kRefusedType - first_type<HostMessage>(), HostMessage>>);

class AgentFieldWriter : public FieldWriter {
 public:
  using FieldWriter::FieldWriter;
  void epoch(Epoch value) { integer(value); }
  bool foreign(uint16_t /*version*/) const { return false; }
};

class AgentFieldReader : public FieldReader {
 public:
  using FieldReader::FieldReader;
  void epoch(Epoch& value) { value = ranged<Epoch>(0, kEpochMax, "an epoch out of its range"); }
  // True for a Hello of another version, the rest of which cannot be interpreted.
  bool foreign(uint16_t version) {
    if (version == kProtocolVersion) return false;
    skip_rest();
    return true;
  }
};

void fields(auto& a, Like<Hello> auto& m) {
  a.integer(m.version);
  if (a.foreign(m.version)) return;
  a.text(m.job_id, kJobIdBytesMax);
  a.raw(m.nonce);
  a.flag(m.only_this_job);
}

void job_fields(auto& a, Like<Join> auto& m) {
  a.number(m.nodes_min, 1, kNodesMax);
  a.number(m.nodes_max, 1, kNodesMax);
  a.number(m.spares, 0, kNodesMax);
  a.number(m.max_restarts, 0, kCountMax);
  a.maybe(m.max_membership_changes, [&](auto& value) { a.number(value, 0, kCountMax); });
  a.duration(m.last_call);
  a.duration(m.join_timeout);
  a.duration(m.lease);
}

void fields(auto& a, Like<Join> auto& m) {
  a.integer(m.agent.high);
  a.integer(m.agent.low);
  a.text(m.host_name, kNameBytesMax);
  a.text(m.machine, kNameBytesMax);
  a.maybe(m.node_rank, [&](auto& value) { a.number(value, 0, kNodesMax); });
  a.number(m.slots, 1, kSlotsMax);
  a.text(m.role, kNameBytesMax);
  a.text(m.program, kNameBytesMax);
  a.text(m.arguments, kNameBytesMax);
  a.text(m.dialled, kNameBytesMax);
  a.text(m.advertised, kNameBytesMax);
  a.flag(m.is_host);
  a.text(m.own_end, kNameBytesMax);
  a.text(m.host_end, kNameBytesMax);
  a.flag(m.knows_owners);
  job_fields(a, m);
  a.epoch(m.last_epoch);
  a.integer(m.last_instance);
  a.number(m.last_rank, -1, kNodesMax);
  a.number(m.last_nodes, 0, kNodesMax);
  a.number(m.restarts, 0, kCountMax);
  a.number(m.changes, 0, kCountMax);
}

void fields(auto& a, Like<NodeFailure> auto& m) {
  a.number(m.rank, 0, kAnyInt);
  a.number(m.local_rank, 0, kSlotsMax);
  a.number(m.exit_code, 0, 255);
  a.number(m.signal, 0, kSignalMax);
  a.flag(m.final);
  a.text(m.sentence, kTextBytesMax);
  a.instant(m.at);
  a.duration(m.at_error);
}

void fields(auto& a, Like<Evidence> auto& m) {
  a.instant(m.since);
  a.duration(m.since_error);
  a.text(m.detail, kDetailBytesMax);
}

void fields(auto& a, Like<Verdict> auto& m) {
  a.number(m.rank, 0, kAnyInt);
  a.number(m.local_rank, 0, kSlotsMax);
  a.number(m.node_rank, 0, kNodesMax);
  a.text(m.host_name, kNameBytesMax);
  a.number(m.exit_code, 0, 255);
  a.number(m.signal, 0, kSignalMax);
  a.text(m.sentence, kTextBytesMax);
  a.text(m.detail, kDetailBytesMax);
}

void fields(auto& a, Like<Report> auto& m) {
  a.integer(m.sequence);
  a.integer(m.order);
  a.epoch(m.epoch);
  a.one_of(m.phase, Phase::testified);
  a.flag(m.reaped);
  a.number(m.signal, 0, 255);
  a.flag(m.to_all);
  a.maybe(m.failure, [&](auto& value) { fields(a, value); });
  a.maybe(m.evidence, [&](auto& value) { fields(a, value); });
}

void fields(auto&, Like<Goodbye> auto&) {}

void fields(auto& a, Like<Query> auto& m) {
  a.integer(m.id);
}

// Fields that Datagram and Delivered share.
void content_fields(auto& a, auto& m) {
  a.instant(m.at);
  a.duration(m.at_error);
  a.text(m.payload, kDatagramBytesMax);
}

void fields(auto& a, Like<Datagram> auto& m) {
  a.epoch(m.epoch);
  a.number(m.to, -1, kNodesMax);
  content_fields(a, m);
}

void fields(auto& a, Like<Belongs> auto& m) {
  a.integer(m.id);
  a.flag(m.to_job);
}

void fields(auto& a, Like<Challenge> auto& m) {
  a.raw(m.nonce);
  a.flag(m.token);
}

void fields(auto& a, Like<Welcome> auto& m) {
  a.integer(m.host_instance);
  a.raw(m.worker_seed);
  a.duration(m.lease);
  a.duration(m.heartbeat);
}

void fields(auto& a, Like<Refused> auto& m) {
  a.one_of(m.kind, RefusalKind::full);
  a.text(m.text, kTextBytesMax);
}

void fields(auto& a, Like<Wait> auto& m) {
  a.flag(m.spare);
  a.text(m.text, kTextBytesMax);
}

void fields(auto& a, Like<Round> auto& m) {
  a.epoch(m.epoch);
  a.number(m.node_rank, 0, kNodesMax);
  a.number(m.nodes, 1, kNodesMax);
  a.number(m.base_rank, 0, kAnyInt);
  a.number(m.world_size, 1, kAnyInt);
  a.number(m.base_role_rank, 0, kAnyInt);
  a.number(m.role_world_size, 1, kAnyInt);
  a.text(m.master_addr, kNameBytesMax);
  a.number(m.master_port, 0, 65535);
  a.number(m.restarts, 0, kCountMax);
  a.number(m.changes, 0, kCountMax);
  a.maybe(m.before, [&](auto& value) { fields(a, value); });
}

void fields(auto& a, Like<Stop> auto& m) {
  a.epoch(m.epoch);
  a.one_of(m.why, StopWhy::left_by_signal_to_all);
  a.text(m.text, kTextBytesMax);
}

void fields(auto& a, Like<End> auto& m) {
  a.one_of(m.why, EndWhy::timeout);
  a.number(m.exit_code, 0, 255);
  a.number(m.signal, 0, 255);
  a.number(m.node_rank, -1, kNodesMax);
  a.text(m.host_name, kNameBytesMax);
  a.text(m.text, kTextBytesMax);
  a.maybe(m.verdict, [&](auto& value) { fields(a, value); });
  a.number(m.restarts, 0, kCountMax);
  a.number(m.changes, 0, kCountMax);
  a.number(m.teller, -1, kNodesMax);
}

void fields(auto& a, Like<Order> auto& m) {
  a.integer(m.sequence);
  a.alternative(m.what, [&](auto& what) { fields(a, what); });
}

void fields(auto& a, Like<Alive> auto& m) {
  a.integer(m.report);
  a.integer(m.answers);
  a.instant(m.clock);
}

void fields(auto& a, Like<NodeLine> auto& m) {
  a.number(m.node_rank, -1, kNodesMax);
  a.text(m.host, kNameBytesMax);
  a.number(m.first_rank, 0, kAnyInt);
  a.number(m.workers, 0, kSlotsMax);
  a.text(m.state, kStateBytesMax);
}

void fields(auto& a, Like<Nodes> auto& m) {
  a.integer(m.query);
  a.flag(m.last);
  a.number(m.left_out, 0, kAnyInt);
  a.list(m.lines, kLinesInPart, [&](auto& line) { fields(a, line); });
}

void fields(auto& a, Like<Delivered> auto& m) {
  a.epoch(m.epoch);
  a.number(m.from, 0, kNodesMax);
  content_fields(a, m);
}

void fields(auto& a, Like<WhoseIs> auto& m) {
  a.integer(m.id);
  a.text(m.client, kNameBytesMax);
  a.text(m.store, kNameBytesMax);
}

template <typename Message>
void encode_frame(const Message& message, std::string& out) {
  const size_t begin = out.size();
  AgentFieldWriter writer(out);
  writer.integer(uint32_t{0});
  writer.integer(static_cast<uint8_t>(first_type<Message>() + message.index()));
  std::visit([&](const auto& m) { fields(writer, m); }, message);
  const size_t length = out.size() - begin - kFrameLengthBytes;
  CHECK(length <= kFrameBytesMax);
  for (size_t i = 0; i < kFrameLengthBytes; ++i)
    out[begin + i] = static_cast<char>(length >> (8 * i) & 0xff);
}

tl::unexpected<Error> not_ours(std::string_view what) {
  return fail(ExitCode::rendezvous,
              fmt::format("the other side does not speak this protocol: {}; all nodes must run the "
                          "same version of muster",
                          what));
}

template <typename Message>
Result<Message> decode_body(uint8_t type, std::string_view body) {
  const size_t index = type - size_t{first_type<Message>()};
  if (index >= std::variant_size_v<Message>)
    return not_ours(fmt::format("a frame of unknown type {}", type));
  Message message;
  emplace_nth(message, index);
  AgentFieldReader reader(body);
  std::visit([&](auto& m) { fields(reader, m); }, message);
  if (const char* why = reader.end())
    return not_ours(fmt::format("a frame of type {} with {}", type, why));
  return message;
}

}  // namespace

void encode(const AgentMessage& message, std::string& out) {
  encode_frame(message, out);
}

void encode(const HostMessage& message, std::string& out) {
  encode_frame(message, out);
}

std::vector<Nodes> nodes_answer(uint64_t query, std::vector<NodeLine> lines) {
  std::vector<Nodes> parts(1);
  size_t bytes = 0;
  size_t told = 0;
  for (NodeLine& line : lines) {
    std::string encoded;
    AgentFieldWriter writer(encoded);
    fields(writer, line);
    bytes += encoded.size();
    if (bytes > kNodesBytesMax) break;
    if (parts.back().lines.size() == kLinesInPart) parts.emplace_back();
    parts.back().lines.push_back(std::move(line));
    ++told;
  }
  for (Nodes& part : parts) {
    part.query = query;
    part.last = &part == &parts.back();
  }
  parts.back().left_out = static_cast<int>(lines.size() - told);
  return parts;
}

template <typename Message>
void FrameReader<Message>::feed(std::string_view bytes) {
  if (broken_) return;
  buffer_.erase(0, consumed_);
  consumed_ = 0;
  buffer_.append(bytes);
}

template <typename Message>
Result<std::optional<Message>> FrameReader<Message>::next() {
  if (broken_) return not_ours("it was given up before");
  const std::string_view held = std::string_view(buffer_).substr(consumed_);
  if (held.size() < kFrameLengthBytes) return std::nullopt;
  uint32_t length = 0;
  FieldReader(held).integer(length);
  if (length == 0 || length > frame_bytes_max_)
    return break_off(not_ours(fmt::format("a frame of {} bytes", length)).value());
  if (held.size() - kFrameLengthBytes < length) return std::nullopt;
  const std::string_view frame = held.substr(0, kFrameLengthBytes + length);
  auto type = static_cast<uint8_t>(frame[kFrameLengthBytes]);
  std::string_view body = frame.substr(kFrameLengthBytes + 1);
  if (seal_) {
    if (!is_seal_right(frame, type)) {
      is_seal_broken_ = true;
      return break_off({ExitCode::rendezvous, std::string(kBrokenSeal)});
    }
    if (is_sealed_) {
      type = static_cast<uint8_t>(type & ~FrameSeal::kTypeBit);
      body.remove_suffix(FrameSeal::kBytes);
    }
  }
  Result<Message> message = decode_body<Message>(type, body);
  if (!message) return break_off(std::move(message.error()));
  consumed_ += frame.size();
  return std::optional<Message>(std::move(*message));
}

template <typename Message>
bool FrameReader<Message>::is_seal_right(std::string_view frame, uint8_t type) {
  is_sealed_ = (type & FrameSeal::kTypeBit) != 0;
  return is_sealed_ ? seal_->opens(frame) : type == kRefusedType;
}

template <typename Message>
tl::unexpected<Error> FrameReader<Message>::break_off(Error error) {
  broken_ = true;
  consumed_ = 0;
  buffer_ = std::string();
  return tl::unexpected<Error>(std::move(error));
}

template class FrameReader<AgentMessage>;
template class FrameReader<HostMessage>;

}  // namespace muster::membership

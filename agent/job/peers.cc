#include "agent/job/peers.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/letter.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/net/field_codec.h"

namespace muster {
namespace {

struct PeerQuestion {
  uint64_t id = 0;
  uint32_t first = 0;
  uint32_t count = 0;  // 0: nothing more; the answer is complete.
  std::string text;
};

struct AnswerPart {
  uint64_t id = 0;
  uint32_t number = 0;
  uint32_t count = 0;
  std::string bytes;
};

void peer_fields(auto& a, Like<PeerQuestion> auto& m) {
  a.integer(m.id);
  a.integer(m.first);
  a.integer(m.count);
  a.text(m.text, Peers::kQuestionBytesMax);
}

void peer_fields(auto& a, Like<AnswerPart> auto& m) {
  a.integer(m.id);
  a.integer(m.number);
  a.integer(m.count);
  a.text(m.bytes, Peers::kPartBytes);
}

constexpr const char* kTooLongTogether =
    "the answers of all nodes are too long together; ask for fewer ranks";
constexpr size_t kPeerHeadBytes = 32;
static_assert(Peers::kPartBytes + kPeerHeadBytes <= membership::kDatagramBytesMax);
static_assert(Peers::kQuestionBytesMax + kPeerHeadBytes <= membership::kDatagramBytesMax);

std::string payload_of(Letter kind, const auto& message) {
  std::string payload = letter_of(kind, "");
  FieldWriter writer(payload);
  peer_fields(writer, message);
  return payload;
}

template <typename Message>
std::optional<Message> message_in(std::string_view content) {
  FieldReader reader(content);
  Message message;
  peer_fields(reader, message);
  return reader.end() == nullptr ? std::optional(std::move(message)) : std::nullopt;
}

uint32_t parts_in(size_t bytes) {
  return static_cast<uint32_t>((bytes + Peers::kPartBytes - 1) / Peers::kPartBytes);
}

// Every part but the last is full, so its number says where it belongs.
bool fits(const AnswerPart& part) {
  return part.number < part.count && part.count <= parts_in(Peers::kAnswerBytesMax) &&
         (part.number + 1 == part.count ? !part.bytes.empty()
                                        : part.bytes.size() == Peers::kPartBytes);
}

void send_parts(int to, uint64_t id, std::string_view answer, uint32_t first, uint32_t count,
                std::vector<Peers::Effect>& effects) {
  const uint32_t parts = parts_in(answer.size());
  first = std::min(first, parts);
  const uint32_t end = first + std::min({count, Peers::kPartsOfNode, parts - first});
  for (uint32_t i = first; i < end; ++i) {
    const AnswerPart part{id, i, parts,
                          std::string(answer.substr(i * Peers::kPartBytes, Peers::kPartBytes))};
    effects.push_back(Peers::Send{to, payload_of(Letter::answer, part)});
  }
}

}  // namespace

void Peers::step(Instant now, const Event& event, Effects& effects) {
  std::visit([&](const auto& what) { on(now, what, effects); }, event);
  for (auto it = open_.begin(); it != open_.end();) {
    auto& [id, open] = *it;
    if (now >= open.ends && !open.wanted.empty()) {
      const double seconds = to_seconds(open.limit);
      for (const auto& [node, wanted] : open.wanted)
        open.answers.emplace(
            node, fail(ExitCode::environment, fmt::format("no answer within {:g} s", seconds)));
      open.wanted.clear();
    }
    if (open.wanted.empty()) {
      effects.push_back(Finished{std::move(open.done), std::move(open.answers)});
      it = open_.erase(it);
    } else {
      send_due(now, id, open, effects);
      ++it;
    }
  }
  std::erase_if(served_, [&](const auto& entry) { return now >= entry.second.forget_at; });
}

Instant Peers::next_deadline() const {
  Instant next = kNever;
  for (const auto& [id, open] : open_) {
    next = std::min(next, open.ends);
    if (open.due.empty()) continue;
    const Instant paced = open.parts_left > 0 ? Instant{} : open.pace_began + kPace;
    next = std::min(next, std::max(open.due.begin()->first, paced));
  }
  for (const auto& [from, served] : served_)
    next = std::min(next, served.forget_at);
  return next;
}

void Peers::on(Instant now, const Ask& event, Effects&) {
  Open& open = open_[++last_id_];
  open.limit = event.limit;
  open.ends = instant_after(now, event.limit);
  open.done = event.done;
  for (const auto& [node, question] : event.questions) {
    CHECK(question.size() <= kQuestionBytesMax);
    Wanted& wanted = open.wanted[node];
    wanted.question = question;
    wanted.due = now;
    open.due.emplace(now, node);
  }
}

void Peers::on(Instant now, const Arrived& event, Effects& effects) {
  if (event.payload.empty()) return;
  const auto kind = static_cast<Letter>(event.payload.front());
  const std::string_view content = std::string_view(event.payload).substr(1);
  if (kind == Letter::question) on_question(now, event.from, content, effects);
  if (kind == Letter::answer) on_part(now, event.from, content, effects);
}

void Peers::on(Instant, const Answer& event, Effects& effects) {
  CHECK(!event.text.empty() && event.text.size() <= kAnswerBytesMax);
  for (auto& [asker, served] : served_) {
    if (served.key != event.key) continue;
    served.answer = event.text;
    send_parts(asker.first, asker.second, event.text, served.first, served.count, effects);
  }
}

void Peers::on(Instant, const RoundEnded&, Effects&) {
  served_.clear();
  for (auto& [id, open] : open_) {
    for (const auto& [node, wanted] : open.wanted)
      open.answers.emplace(node, fail(ExitCode::environment, "the round has ended"));
    open.wanted.clear();
  }
}

void Peers::on(Instant, const Tick&, Effects&) {}

void Peers::on_question(Instant now, int from, std::string_view content, Effects& effects) {
  const auto question = message_in<PeerQuestion>(content);
  if (!question) return;
  const std::pair asker{from, question->id};
  if (question->count == 0) {
    served_.erase(asker);
    return;
  }
  const bool is_new = !served_.contains(asker);
  if (is_new && served_.size() >= kServedMax) return;  // The asker will ask again.
  Served& served = served_[asker];
  served.first = question->first;
  served.count = question->count;
  served.forget_at = now + kForget;
  if (is_new) {
    served.key = ++last_key_;
    effects.push_back(Serve{served.key, question->text});
  } else if (served.answer) {
    send_parts(from, question->id, *served.answer, served.first, served.count, effects);
  }
}

void Peers::on_part(Instant now, int from, std::string_view content, Effects& effects) {
  auto part = message_in<AnswerPart>(content);
  if (!part || !fits(*part)) return;
  const auto open_at = open_.find(part->id);
  if (open_at == open_.end()) return;
  Open& open = open_at->second;
  const auto wanted_at = open.wanted.find(from);
  if (wanted_at == open.wanted.end()) return;
  Wanted& wanted = wanted_at->second;
  const auto end_with = [&](Result<std::string> answer) {
    effects.push_back(Send{from, payload_of(Letter::question, PeerQuestion{part->id, 0, 0, {}})});
    open.answers.emplace(from, std::move(answer));
    open.due.erase({wanted.due, from});
    open.wanted.erase(wanted_at);
  };
  if (wanted.parts.empty()) {
    const size_t bytes = part->count * kPartBytes;
    if (open.bytes + bytes > kAllAnswersBytesMax)
      return end_with(fail(ExitCode::environment, kTooLongTogether));
    open.bytes += bytes;
    wanted.parts.resize(part->count);
    wanted.missing = part->count;
  }
  if (part->count != wanted.parts.size() || !wanted.parts[part->number].empty()) return;
  wanted.parts[part->number] = std::move(part->bytes);
  if (--wanted.missing == 0) return end_with(fmt::format("{}", fmt::join(wanted.parts, "")));
  const auto first = wanted.parts.begin() + wanted.first;
  const auto last = first + std::min<ptrdiff_t>(wanted.count, wanted.parts.end() - first);
  if (std::none_of(first, last, [](const std::string& bytes) { return bytes.empty(); }))
    be_due(open, from, std::max(now, wanted.asked + kNextParts));
}

void Peers::be_due(Open& open, int node, Instant at) {
  Wanted& wanted = open.wanted.at(node);
  open.due.erase({wanted.due, node});
  wanted.due = at;
  open.due.emplace(at, node);
}

void Peers::send_due(Instant now, uint64_t id, Open& open, Effects& effects) {
  if (now >= open.pace_began + kPace) {
    open.pace_began = now;
    open.parts_left = kPartsAtOnce;
  }
  while (open.parts_left > 0 && open.due.begin()->first <= now) {
    const int node = open.due.begin()->second;
    Wanted& wanted = open.wanted.at(node);
    const auto missing = std::ranges::find(wanted.parts, "");
    wanted.first = static_cast<uint32_t>(missing - wanted.parts.begin());
    wanted.count = wanted.parts.empty() ? 1 : kPartsOfNode;
    wanted.asked = now;
    open.parts_left -= std::min(open.parts_left, wanted.count);
    const PeerQuestion question{id, wanted.first, wanted.count, wanted.question};
    effects.push_back(Send{node, payload_of(Letter::question, question)});
    be_due(open, node, now + kAskAgain);
  }
}

}  // namespace muster

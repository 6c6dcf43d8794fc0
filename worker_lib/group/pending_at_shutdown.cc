#include "worker_lib/group/pending_at_shutdown.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include <fmt/format.h>

namespace muster::worker {

namespace {

// In place of the groups, if there are too many.
constexpr std::string_view kUnsaid = "*";

// Takes "12" from the front.
template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take_char(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// " s3:7", " r-1:0"
bool take_transfer(std::string_view& text, PendingTransfer& made) {
  if (!take_char(text, ' ') || text.empty()) return false;
  made.kind = text.front() == 's' ? OpKind::send : OpKind::recv;
  return (take_char(text, 's') || take_char(text, 'r')) && take_number(text, made.peer) &&
         take_char(text, ':') && take_number(text, made.tag);
}

bool tags_fit(int a, int b) {
  return a == b || a == PendingTransfer::kAnyTag || b == PendingTransfer::kAnyTag;
}

}  // namespace

std::string encode_pending(uint64_t number, const std::vector<PendingOfGroup>& groups,
                           size_t bytes_max) {
  std::string text = fmt::format("{} ", number);
  for (const PendingOfGroup& group : groups) {
    if (group.transfers.empty()) continue;
    text += group.group_id;
    std::vector<PendingTransfer> said;
    for (const PendingTransfer& one : group.transfers) {
      if (text.size() > bytes_max) break;
      if (std::ranges::find(said, one) != said.end()) continue;
      said.push_back(one);
      text += fmt::format(" {}{}:{}", one.kind == OpKind::send ? 's' : 'r', one.peer, one.tag);
    }
    text += ';';
  }
  if (text.size() <= bytes_max) return text;
  return fmt::format("{} {}", number, kUnsaid);
}

std::optional<PendingText> decode_pending(std::string_view text, std::string_view group_id) {
  PendingText made;
  if (!take_number(text, made.number) || !take_char(text, ' ') || text == kUnsaid)
    return std::nullopt;
  while (!text.empty()) {
    const size_t end = text.find(';');
    if (end == std::string_view::npos) return std::nullopt;  // Truncated.
    std::string_view one = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (!one.starts_with(group_id) || one.size() <= group_id.size() || one[group_id.size()] != ' ')
      continue;
    one.remove_prefix(group_id.size());
    while (!one.empty()) {
      PendingTransfer transfer;
      if (!take_transfer(one, transfer)) return std::nullopt;
      made.transfers.push_back(transfer);
    }
  }
  return made;
}

void PendingAtShutdown::heard(int member, const PendingText& text) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = members_.try_emplace(member);
  Member& known = at->second;
  if (!is_new && known.number >= text.number) return;
  // What it sent to this rank before, or had in flight until now, may still be on its way.
  const bool sent = std::ranges::any_of(known.transfers, [&](const PendingTransfer& theirs) {
    return theirs.kind == OpKind::send && theirs.peer == me_;
  });
  if (is_new || sent) known.since = std::chrono::steady_clock::now();
  known.number = text.number;
  known.transfers = text.transfers;
  any_ = true;
}

bool PendingAtShutdown::is_leaving_slow(int member) const {
  const std::lock_guard lock(mutex_);
  return members_.contains(member);
}

void PendingAtShutdown::left(int member) {
  heard(member, {std::numeric_limits<uint64_t>::max(), {}});
}

bool PendingAtShutdown::can_complete_with(int member, const PendingTransfer& mine) const {
  const auto known = members_.find(member);
  if (known == members_.end()) return true;
  const Member& other = known->second;
  if (std::chrono::steady_clock::now() - other.since < kLastMessage) return true;
  return std::ranges::any_of(other.transfers, [&](const PendingTransfer& theirs) {
    return theirs.kind != mine.kind && (theirs.peer == me_ || theirs.peer < 0) &&
           tags_fit(theirs.tag, mine.tag);
  });
}

bool PendingAtShutdown::can_complete(const PendingTransfer& mine) const {
  const std::lock_guard lock(mutex_);
  if (mine.peer >= 0) return can_complete_with(mine.peer, mine);
  for (int member = 0; member < size_; ++member) {
    if (member != me_ && can_complete_with(member, mine)) return true;
  }
  return false;
}

bool PendingAtShutdown::sends(int member) const {
  const std::lock_guard lock(mutex_);
  const auto known = members_.find(member);
  return known != members_.end() &&
         std::ranges::find(known->second.transfers, OpKind::send, &PendingTransfer::kind) !=
             known->second.transfers.end();
}

}  // namespace muster::worker

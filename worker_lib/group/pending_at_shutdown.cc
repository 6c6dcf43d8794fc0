#include "worker_lib/group/pending_at_shutdown.h"

#include <algorithm>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster::worker {

namespace {

// In place of the groups, if there are too many.
constexpr std::string_view kUnsaid = "*";

// "s3:7", "r-1:0"
std::optional<PendingTransfer> transfer_of(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == 0 || colon == std::string_view::npos) return std::nullopt;
  const bool sends = text.front() == 's';
  const std::optional<int> peer = whole_number<int>(text.substr(1, colon - 1));
  const std::optional<int> tag = whole_number<int>(text.substr(colon + 1));
  if (!peer || !tag || (!sends && text.front() != 'r')) return std::nullopt;
  return PendingTransfer{sends ? OpKind::send : OpKind::recv, *peer, *tag};
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
  const size_t space = text.find(' ');
  const std::optional<uint64_t> number = whole_number<uint64_t>(text.substr(0, space));
  if (!number || space == std::string_view::npos) return std::nullopt;
  const std::vector<std::string_view> groups = split(text.substr(space + 1), ';');
  if (!groups.back().empty()) return std::nullopt;  // No list, or truncated.
  PendingText made{*number, {}};
  for (const std::string_view group : groups) {
    if (group.substr(0, group.find(' ')) != group_id) continue;
    const std::vector<std::string_view> words = split(group, ' ');
    for (const std::string_view word : std::span(words).subspan(1)) {
      const std::optional<PendingTransfer> transfer = transfer_of(word);
      if (!transfer) return std::nullopt;
      made.transfers.push_back(*transfer);
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

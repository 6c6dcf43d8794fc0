#include "worker_lib/group/group_shutdown.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster::worker {

std::vector<std::string> encode_notices(std::span<const ShutdownNotice> notices, size_t bytes_max) {
  std::vector<std::string> texts;
  for (const ShutdownNotice& notice : notices) {
    if (notice.group_id.find_first_of(" ;") != std::string::npos) continue;
    const std::string one =
        fmt::format("{} {} {};", notice.group_id, notice.performed[0], notice.performed[1]);
    if (one.size() > bytes_max) continue;
    if (texts.empty() || texts.back().size() + one.size() > bytes_max) texts.emplace_back();
    texts.back() += one;
  }
  return texts;
}

// Each is "id 17 3": the group and what was performed in it.
std::optional<ShutdownNotice> find_notice(std::string_view text, std::string_view group_id) {
  std::vector<std::string_view> notices = split(text, ';');
  notices.pop_back();  // Empty, or truncated.
  for (const std::string_view notice : notices) {
    if (notice.substr(0, notice.find(' ')) != group_id) continue;
    const std::vector<std::string_view> words = split(notice, ' ');
    if (words.size() == 1) continue;
    ShutdownNotice made{std::string(group_id), {}};
    if (words.size() != 1 + made.performed.size()) return std::nullopt;
    for (size_t i = 0; i < made.performed.size(); ++i) {
      const std::optional<uint64_t> count = whole_number<uint64_t>(words[i + 1]);
      if (!count) return std::nullopt;
      made.performed[i] = *count;
    }
    return made;
  }
  return std::nullopt;
}

void GroupShutdown::limit(const Departed& departed) {
  for (size_t i = 0; i < kCollectiveQueues; ++i) {
    limits_[i].store(std::min(limits_[i].load(), departed.performed[i]));
  }
}

void GroupShutdown::gave_notice(int member, const OperationCounts& performed) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::count(departed_, member, &Departed::member) > 0) return;
  departed_.push_back({member, false, performed});
  limit(departed_.back());
}

bool GroupShutdown::left(int member, const OperationCounts& begun) {
  const std::lock_guard lock(mutex_);
  any_left_ = true;
  const auto known = std::ranges::find(departed_, member, &Departed::member);
  if (known != departed_.end()) {
    known->left = true;
    return true;
  }
  departed_.push_back({member, true, begun});
  limit(departed_.back());
  return false;
}

bool GroupShutdown::gone_slow(int member) const {
  const std::lock_guard lock(mutex_);
  const auto counts = [&](const Departed& one) {
    return one.left && (member < 0 || one.member == member);
  };
  return std::ranges::count_if(departed_, counts) == (member < 0 ? members_.size() - 1 : 1);
}

Failure GroupShutdown::failure_of(int member) const {
  Failure failure{ErrorCode::peer_failed, "all other ranks", {}};
  for (int i = 0; i < members_.size(); ++i) {
    if (i == member || (member < 0 && i != members_.me)) failure.ranks.push_back(members_[i].rank);
  }
  std::ranges::sort(failure.ranks);
  if (member >= 0) failure.message = describe(members_[member]);
  failure.message += " left (destroy_process_group)";
  return failure;
}

std::optional<Failure> GroupShutdown::missing_slow(size_t queue, uint64_t number) const {
  const std::lock_guard lock(mutex_);
  std::string who;
  Failure failure{ErrorCode::peer_failed, {}, {}};
  for (const Departed& departed : departed_) {
    if (departed.performed[queue] >= number) continue;
    const Peer& peer = members_[departed.member];
    if (!who.empty()) who += ", ";
    who += describe(peer);
    failure.ranks.push_back(peer.rank);
  }
  if (failure.ranks.empty()) return std::nullopt;
  std::ranges::sort(failure.ranks);
  failure.message = who + " left (destroy_process_group) before this operation";
  return failure;
}

}  // namespace muster::worker

#include "worker_lib/joining/shrink.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "worker_lib/group_labels.h"
#include "worker_lib/joining/callers_store.h"

namespace muster::worker {
namespace {

// Time for the members to agree on a failure after the deadline.
constexpr std::chrono::seconds kConfirm{2};

// One call of shrink().
struct Shrinking {
  Group& group;
  const GroupOptions& options;
  std::chrono::milliseconds limit;
  Deadline deadline;

  Outcome<Verdict> agree(BallotKind kind, uint64_t value, std::string text, Deadline until) const {
    return group.agreements().agree(kind, value, std::move(text), until, limit);
  }
  // What the others are told of this rank's failure.
  std::string words(const Failure& failure) const {
    return fmt::format("{} failed: {}", describe(group.members().self()), failure.message);
  }
};

// Notices that one of these ranks has died, or left.
class DeathAmong {
 public:
  DeathAmong(std::shared_ptr<Watch> watch, const std::vector<int>& ranks)
      : watch_(std::move(watch)), id_(watch_->subscribe([this, ranks](const Watch::News& news) {
          using Kind = Watch::News::Kind;
          const bool is_gone = news.kind == Kind::died || news.kind == Kind::left;
          if (!is_gone || !std::ranges::binary_search(ranks, news.rank.value)) return;
          const std::lock_guard lock(mutex_);
          if (!failure_) failure_ = news.failure;
        })) {}
  DeathAmong(const DeathAmong&) = delete;
  DeathAmong& operator=(const DeathAmong&) = delete;
  ~DeathAmong() { watch_->unsubscribe(id_); }

  std::optional<Failure> seen() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
  const std::shared_ptr<Watch> watch_;
  const int id_;
};

// Carries the one key by which joining ranks meet: by an agreement of the old group.
class AgreedStore final : public CallersStore {
 public:
  AgreedStore(const Shrinking& shrinking, const std::vector<int>& living)
      : shrinking_(shrinking), living_(living) {}

  Outcome<> set(std::string_view, std::string_view value) override {
    return exchange(std::string(value)).map([](const std::string&) { return Done{}; });
  }
  Outcome<std::optional<std::string>> get(std::string_view, Deadline) override {
    return exchange("").map([](std::string text) { return std::optional(std::move(text)); });
  }

  // Agrees on a failure, if the joining rank has not come as far as the key.
  void refuse(const Failure& failure) {
    if (!verdict_)
      verdict_ =
          shrinking_.agree(BallotKind::meet, 0, shrinking_.words(failure), shrinking_.deadline);
  }
  // True if all members know that the key will not come.
  bool is_refused() const { return verdict_ && *verdict_ && (*verdict_)->value == 0; }
  bool lost_a_member() const { return verdict_ && *verdict_ && (*verdict_)->voters != living_; }

 private:
  Outcome<std::string> exchange(std::string text) {
    verdict_ = shrinking_.agree(BallotKind::meet, 1, std::move(text), shrinking_.deadline);
    if (!*verdict_) return tl::unexpected(verdict_->error());
    if (lost_a_member()) return failed(ErrorCode::peer_failed, "another member died meanwhile");
    if (is_refused()) return failed(ErrorCode::aborted, (*verdict_)->text);
    return (*verdict_)->text;
  }

  const Shrinking& shrinking_;
  const std::vector<int>& living_;
  std::optional<Outcome<Verdict>> verdict_;
};

// The new group's members in the old one's order.
struct Survivors {
  std::vector<int> known_as;
  int me = -1;
  bool is_one_node = true;
};

Survivors survivors_of(const Members& members, const std::vector<int>& living) {
  Survivors left;
  for (const Peer& peer : members.peers) {
    if (!std::ranges::binary_search(living, peer.rank.value)) continue;
    if (peer.rank == members.self().rank) left.me = static_cast<int>(left.known_as.size());
    left.is_one_node = left.is_one_node && peer.node == members.self().node;
    left.known_as.push_back(peer.known_rank());
  }
  return left;
}

Outcome<std::shared_ptr<Job>> join_survivors(const Shrinking& shrinking, const Survivors& left,
                                             AgreedStore& store, const DeathAmong& death) {
  Group& group = shrinking.group;
  const GroupOptions& options = shrinking.options;
  InitOptions joining;
  joining.rank = left.me;
  joining.world_size = static_cast<int>(left.known_as.size());
  joining.timeout = options.timeout.value_or(group.timeout());
  joining.backend = options.backend.value_or(group.agreements().plan().backend);
  joining.device = group.agreements().host().cuda_device;
  Outcome<std::shared_ptr<Job>> joined =
      Job::join_group(joining, {&store, std::nullopt, left.is_one_node},
                      options.name.empty() ? group.name() : options.name, left.known_as,
                      Job::Joining{shrinking.deadline, [&] { return death.seen(); }});
  if (!joined) store.refuse(joined.error());
  return joined;
}

// One try. Null: another member has died.
Outcome<std::shared_ptr<Job>> try_to_shrink(const Shrinking& shrinking) {
  Group& group = shrinking.group;
  const Outcome<Verdict> there = shrinking.agree(BallotKind::shrink, 1, "", shrinking.deadline);
  if (!there) return tl::unexpected(there.error());
  const std::vector<int>& living = there->voters;
  const Survivors left = survivors_of(group.members(), living);
  if (left.me < 0) {
    return failed(ErrorCode::peer_failed, "the other members took this rank for dead",
                  {group.members().self().rank});
  }
  const std::shared_ptr<Watch> watch = group.agreements().watch();
  if (watch == nullptr) return failed(ErrorCode::not_initialized, "this rank has left the group");
  AgreedStore store(shrinking, living);
  Outcome<std::shared_ptr<Job>> joined =
      join_survivors(shrinking, left, store, DeathAmong(watch, living));
  if (store.lost_a_member()) return nullptr;
  if (store.is_refused()) return joined;
  const Deadline until =
      std::max(shrinking.deadline, Deadline(std::chrono::steady_clock::now() + kConfirm));
  const Outcome<Verdict> done = shrinking.agree(
      BallotKind::confirm, joined ? 1 : 0, joined ? "" : shrinking.words(joined.error()), until);
  if (!done) return tl::unexpected(done.error());
  if (done->value != 0) return joined;
  if (done->voters != living) return nullptr;
  if (!joined) return joined;
  return failed(ErrorCode::aborted, done->text);
}

}  // namespace

Outcome<std::shared_ptr<Job>> shrink(Group& group, const GroupOptions& options) {
  if (auto refused = refusal_to_agree(group, "shrink")) return tl::unexpected(std::move(*refused));
  const std::chrono::milliseconds limit = options.timeout.value_or(group.timeout());
  const Shrinking shrinking{group, options, limit,
                            deadline_after(std::chrono::steady_clock::now(), limit)};
  const std::string label = operation_label("shrink", 0, group.name());
  if (const std::string why = check_group_options(options); !why.empty())
    return failed(ErrorCode::invalid_argument, "shrink: " + why);
  for (;;) {
    Outcome<std::shared_ptr<Job>> made = try_to_shrink(shrinking);
    if (made && *made == nullptr) continue;
    if (!made) return tl::unexpected(labelled(std::move(made.error()), label));
    group.agreements().host().keep(*made);
    return made;
  }
}

}  // namespace muster::worker

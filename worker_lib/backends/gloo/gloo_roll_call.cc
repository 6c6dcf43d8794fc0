// The roll call before every collective on Gloo: each rank sends its call to every other. Gloo
// itself compares nothing: calls of different sizes end the process (an exception on Gloo's
// thread), and a call that times out does not say which ranks were missing. It costs a small
// message between each pair of ranks, and it is a barrier: no rank returns before all have arrived.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <gloo/transport/unbound_buffer.h>

#include "worker_lib/backends/gloo/gloo_mesh.h"
#include "worker_lib/backends/late_transfer.h"
#include "worker_lib/call_word.h"
#include "worker_lib/time_text.h"

namespace muster::worker {

namespace {

using std::chrono::milliseconds;

// Message from one rank to another, in host byte order.
struct Presence {
  CallSignature call;
  // Elements between these two ranks if only they know the count (gather_v, scatter_v,
  // all_to_all_v); otherwise 0.
  uint64_t sends = 0;
  uint64_t expects = 0;
};

Presence presence_of(const Operation& op, const CallSignature& call, int me, int peer) {
  if (!op.is_v) return {call};
  const auto at = static_cast<size_t>(peer);
  const uint64_t at_root = peer == op.root ? op.count : 0;
  if (op.kind == OpKind::gather) return {call, at_root, me == op.root ? op.recv_counts[at] : 0};
  if (op.kind == OpKind::scatter) return {call, me == op.root ? op.send_counts[at] : 0, at_root};
  if (op.kind == OpKind::all_to_all) return {call, op.send_counts[at], op.recv_counts[at]};
  return {call};
}

class GlooRollCall {
 public:
  GlooRollCall(const std::shared_ptr<GlooMesh>& mesh, const Members& members, const Operation& op)
      : mesh_(mesh), members_(members), op_(op), mine_(size()), theirs_(size()) {}

  // Both throw Gloo's exceptions.
  void post();
  Outcome<> finish(Deadline deadline);

 private:
  using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;
  size_t size() const { return static_cast<size_t>(members_.size()); }
  bool has_come(size_t peer, milliseconds timeout);
  std::optional<Failure> find_other_counts() const;

  const std::shared_ptr<GlooMesh>& mesh_;
  const Members& members_;
  const Operation& op_;
  std::vector<Presence> mine_;    // By receiver.
  std::vector<Presence> theirs_;  // By sender.
  std::vector<Buffer> leaving_;
  std::vector<Buffer> arriving_;
};

void GlooRollCall::post() {
  const uint64_t slot = gloo_slot(GlooSlots::roll_call, op_.sequence);
  const CallSignature call = signature_of(op_);
  for (int peer = 0; peer < members_.size(); ++peer) {
    const auto at = static_cast<size_t>(peer);
    mine_[at] = presence_of(op_, call, members_.me, peer);
    leaving_.push_back(mesh_->createUnboundBuffer(&mine_[at], sizeof mine_[at]));
    arriving_.push_back(mesh_->createUnboundBuffer(&theirs_[at], sizeof theirs_[at]));
    if (peer == members_.me) {
      theirs_[at] = mine_[at];
      continue;
    }
    arriving_[at]->recv(peer, slot);
    leaving_[at]->send(peer, slot);
  }
}

// Returns false on a time-out, after which the mesh is unusable but keeps what has arrived.
bool GlooRollCall::has_come(size_t peer, milliseconds timeout) {
  if (static_cast<int>(peer) == members_.me) return true;
  try {
    return arriving_[peer]->waitRecv(timeout);
  } catch (const std::exception& error) {
    if (is_gloo_timeout(gloo_reason(error.what()))) return false;
    throw;
  }
}

Outcome<> GlooRollCall::finish(Deadline deadline) {
  std::vector<int> missing;
  for (size_t peer = 0; peer < size(); ++peer) {
    const milliseconds left = missing.empty() ? gloo_time_left(deadline) : milliseconds{1};
    if (!has_come(peer, std::max(left, milliseconds{1}))) missing.push_back(static_cast<int>(peer));
  }
  if (!missing.empty()) {
    Failure failure = absent_members(members_, missing, within(op_.limit));
    failure.is_suspicion = true;
    return tl::unexpected(failure);
  }
  for (size_t peer = 0; peer < size(); ++peer) {
    if (static_cast<int>(peer) != members_.me)
      leaving_[peer]->waitSend(std::max(gloo_time_left(deadline), milliseconds{1}));
  }
  std::vector<CallSignature> calls;
  for (const Presence& one : theirs_)
    calls.push_back(one.call);
  if (std::optional<Failure> other = find_mismatch(calls, members_)) return tl::unexpected(*other);
  if (std::optional<Failure> other = find_other_counts()) return tl::unexpected(*other);
  return Done{};
}

std::optional<Failure> GlooRollCall::find_other_counts() const {
  for (size_t peer = 0; peer < size(); ++peer) {
    const Peer& other = members_[static_cast<int>(peer)];
    const Peer& self = members_.self();
    const auto differ = [](const Peer& from, uint64_t sends, const Peer& to, uint64_t expects) {
      return Failure{ErrorCode::mismatch,
                     fmt::format("{} sends {} elements to {}, which expects {}", describe(from),
                                 sends, describe(to), expects),
                     {std::min(from.rank, to.rank), std::max(from.rank, to.rank)}};
    };
    if (theirs_[peer].sends != mine_[peer].expects)
      return differ(other, theirs_[peer].sends, self, mine_[peer].expects);
    if (mine_[peer].sends != theirs_[peer].expects)
      return differ(self, mine_[peer].sends, other, theirs_[peer].expects);
  }
  return std::nullopt;
}

}  // namespace

Outcome<> call_the_roll(const std::shared_ptr<GlooMesh>& mesh, const Members& members,
                        const Operation& operation, Deadline deadline) {
  GlooRollCall roll(mesh, members, operation);
  roll.post();
  return roll.finish(deadline);
}

}  // namespace muster::worker

// The Gloo backend. Gloo has no asynchronous collectives and no abort (but see gloo_mesh.h). Each
// message in flight has a thread that sleeps in Gloo until it is complete, since Gloo reports
// completion only to a waiting thread, and a wait that times out makes the whole group unusable.
#include <algorithm>
#include <future>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/transport/unbound_buffer.h>

#include "worker_lib/backends/backend.h"
#include "worker_lib/backends/gloo/gloo_mesh.h"
#include "worker_lib/backends/gloo_module.h"
#include "worker_lib/backends/late_transfer.h"
#include "worker_lib/time_text.h"

namespace muster::worker {

namespace {

using std::chrono::milliseconds;

using GlooBuffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

class GlooBackend final : public GroupBackend {
 public:
  GlooBackend(Members members, std::shared_ptr<GlooMesh> mesh)
      : members_(std::move(members)), mesh_(std::move(mesh)) {}
  ~GlooBackend() override;

  Outcome<> run(const Operation& operation, Deadline deadline) override;
  Outcome<int> transfer(const Transfer& transfer, Deadline deadline) override;
  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(const std::vector<Transfer>& transfers,
                                                         Deadline deadline) override;
  void abort(const Failure& failure) override;

 private:
  GlooBuffer post(const Transfer& transfer);
  Outcome<int> wait(const Transfer& transfer, GlooBuffer buffer, Deadline deadline);
  Outcome<int> wait_in_gloo(const Transfer& transfer, ::gloo::transport::UnboundBuffer& buffer,
                            Deadline deadline);
  std::optional<Failure> aborted() const;
  // Returns the failure behind Gloo's exception; `late` if the deadline has passed.
  tl::unexpected<Failure> explain(const std::exception& error, Deadline deadline,
                                  const Failure& late);
  Failure late_failure(const Transfer& transfer) const {
    return late_transfer(transfer, members_, false);
  }
  tl::unexpected<Failure> explain_loss(const std::string& reason);

  const Members members_;
  const std::shared_ptr<GlooMesh> mesh_;

  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
  std::set<::gloo::transport::UnboundBuffer*> receiving_from_any_;
  std::vector<std::future<void>> waiting_;  // From std::async(): destructors join the threads.
};

GlooBackend::~GlooBackend() {
  abort({ErrorCode::aborted, "the group is gone"});
}

Failure late_operation(const Operation& operation) {
  Failure failure{ErrorCode::timeout,
                  fmt::format("not done {}, although all ranks had arrived; one of them may have "
                              "been stopped since, or the network is too slow for the timeout",
                              within(operation.limit))};
  failure.is_suspicion = true;
  return failure;
}

Outcome<> GlooBackend::run(const Operation& operation, Deadline deadline) {
  if (const std::optional<Failure> failure = aborted()) return tl::unexpected(*failure);
  if (gloo_time_left(deadline).count() <= 0)
    return failed(ErrorCode::timeout, "the timeout expired before the operation began");
  try {
    const Outcome<> roll = call_the_roll(mesh_, members_, operation, deadline);
    // Prefers the failure of an abort, which says more.
    if (!roll) return tl::unexpected(aborted().value_or(roll.error()));
    run_on_gloo(mesh_, operation, std::max(gloo_time_left(deadline), milliseconds{1}));
    return Done{};
  } catch (const std::exception& error) {
    return explain(error, deadline, late_operation(operation));
  }
}

// Mixes size and dtype into the slot, so that unequal ends never match and time out: a message
// larger than its receive would end the process (Gloo throws on its own thread).
uint64_t message_slot(const Transfer& transfer) {
  const uint64_t form = transfer.count * 16 + static_cast<uint64_t>(transfer.dtype);
  const uint64_t mixed = form * 0x9e3779b97f4a7c15ULL;
  return gloo_slot(GlooSlots::messages, static_cast<uint32_t>(transfer.tag)) | mixed >> 56 |
         (mixed >> 40 & 0xffff) << 48;
}

GlooBuffer GlooBackend::post(const Transfer& transfer) {
  // Gloo completes an empty receive from any rank only if the buffer itself is not empty.
  static std::byte nothing;
  const uint64_t slot = message_slot(transfer);
  const size_t bytes = transfer.count * size_of(transfer.dtype);
  GlooBuffer buffer =
      mesh_->createUnboundBuffer(bytes == 0 ? &nothing : transfer.data, std::max<size_t>(bytes, 1));
  if (transfer.kind == OpKind::send) {
    buffer->send(transfer.peer, slot, 0, bytes);
  } else if (transfer.peer >= 0) {
    buffer->recv(transfer.peer, slot, 0, bytes);
  } else {
    std::vector<int> peers;
    for (int peer = 0; peer < members_.size(); ++peer)
      if (peer != members_.me) peers.push_back(peer);
    buffer->recv(peers, slot, 0, bytes);
  }
  return buffer;
}

// A receive from any rank has no connection that interrupt() could end: abort() cancels it itself.
Outcome<int> GlooBackend::wait(const Transfer& transfer, GlooBuffer buffer, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return tl::unexpected(*failure_);
    if (transfer.peer < 0) receiving_from_any_.insert(buffer.get());
  }
  Outcome<int> outcome = wait_in_gloo(transfer, *buffer, deadline);
  const std::lock_guard lock(mutex_);
  receiving_from_any_.erase(buffer.get());
  return outcome;
}

Outcome<int> GlooBackend::wait_in_gloo(const Transfer& transfer,
                                       ::gloo::transport::UnboundBuffer& buffer,
                                       Deadline deadline) {
  try {
    const milliseconds left = std::max(gloo_time_left(deadline), milliseconds{1});
    int peer = transfer.peer;
    const bool is_done =
        transfer.kind == OpKind::send ? buffer.waitSend(left) : buffer.waitRecv(&peer, left);
    if (is_done) return peer;
    return tl::unexpected(*aborted());
  } catch (const std::exception& error) {
    return explain(error, deadline, late_failure(transfer));
  }
}

Outcome<int> GlooBackend::transfer(const Transfer& transfer, Deadline deadline) {
  if (const std::optional<Failure> failure = aborted()) return tl::unexpected(*failure);
  if (gloo_time_left(deadline).count() <= 0)
    return failed(ErrorCode::timeout, "the timeout expired before the operation began");
  try {
    return wait(transfer, post(transfer), deadline);
  } catch (const std::exception& error) {
    return explain(error, deadline, late_failure(transfer));
  }
}

Outcome<std::vector<std::shared_ptr<WorkState>>> GlooBackend::begin(
    const std::vector<Transfer>& transfers, Deadline deadline) {
  if (const std::optional<Failure> failure = aborted()) return tl::unexpected(*failure);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [](const std::future<void>& one) {
      return one.wait_for(milliseconds{0}) == std::future_status::ready;
    });
  }
  std::vector<std::shared_ptr<WorkState>> works;
  try {
    for (const Transfer& transfer : transfers) {
      auto work = std::make_shared<HostWork>();
      works.push_back(work);
      std::future<void> waiting = std::async(
          std::launch::async, [this, transfer, work, deadline, posted = post(transfer)]() mutable {
            Outcome<int> outcome = wait(transfer, std::move(posted), deadline);
            if (outcome)
              work->complete(Done{}, *outcome);
            else
              work->complete(tl::unexpected(outcome.error()));
          });
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(waiting));
    }
  } catch (const std::exception& error) {
    return explain(error, deadline, late_failure(transfers.front()));
  }
  return works;
}

void GlooBackend::abort(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    for (::gloo::transport::UnboundBuffer* buffer : receiving_from_any_)
      buffer->abortWaitRecv();
  }
  mesh_->interrupt();
}

std::optional<Failure> GlooBackend::aborted() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

tl::unexpected<Failure> GlooBackend::explain(const std::exception& error, Deadline deadline,
                                             const Failure& late) {
  const std::string reason = gloo_reason(error.what());
  if (const std::optional<Failure> failure = aborted()) return tl::unexpected(*failure);
  if (is_gloo_timeout(reason) && std::chrono::steady_clock::now() + milliseconds{1} >= deadline)
    return tl::unexpected(late);
  return explain_loss(reason);
}

// Names the peers whose connections broke: each died, or left the group after an error or an abort.
tl::unexpected<Failure> GlooBackend::explain_loss(const std::string& reason) {
  std::string names;
  std::vector<GlobalRank> ranks;
  for (const int peer : mesh_->lost_peers()) {
    names += (names.empty() ? "" : ", ") + describe(members_[peer]);
    ranks.push_back(members_[peer].rank);
  }
  if (ranks.empty()) return failed(ErrorCode::backend, fmt::format("Gloo failed: {}", reason));
  std::sort(ranks.begin(), ranks.end());
  return failed(ErrorCode::peer_failed,
                fmt::format("Gloo lost its connection to {} ({})", names, reason),
                std::move(ranks));
}

Outcome<std::unique_ptr<GroupBackend>> make_backend(GroupSetup setup) {
  Outcome<std::shared_ptr<GlooMesh>> mesh = GlooMesh::connect(setup);
  if (!mesh) return tl::unexpected(mesh.error());
  return std::make_unique<GlooBackend>(std::move(setup.members), std::move(*mesh));
}

}  // namespace

}  // namespace muster::worker

muster::worker::GlooBackendMaker* muster_gloo_module() {
  return muster::worker::make_backend;
}

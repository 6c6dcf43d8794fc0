#include "worker_lib/backends/nccl/nccl_backend.h"

#include <utility>

#include <fmt/format.h>

namespace muster::worker {

namespace {

// An operation on the GPU: complete when its mark is passed.
class GpuWork final : public WorkState {
 public:
  struct Options {
    std::shared_ptr<NcclCore> core;
    NcclCore::MarkPtr mark;
    CudaStream stream = nullptr;
    int source = -1;
    bool is_on_stream = false;  // In order on the call's own stream, which needs no wait.
    bool is_barrier = false;    // Has no buffers: a wait blocks the thread instead of a stream.
  };
  explicit GpuWork(Options options) : w_(std::move(options)) {}

  std::optional<Outcome<>> wait(Deadline until) override {
    if (w_.is_barrier) return synchronize(until);
    if (w_.mark->is_done()) return Done{};
    if (w_.core->has_failed()) return tl::unexpected(*w_.core->failure());
    if (w_.is_on_stream) return Done{};
    return w_.mark->hold(w_.stream);
  }
  std::optional<Outcome<>> synchronize(Deadline until) override {
    return w_.core->wait_for(*w_.mark, until);
  }
  std::optional<Outcome<>> outcome() const override { return w_.core->outcome_of(*w_.mark); }
  int source() const override { return w_.source; }

 private:
  const Options w_;
};

}  // namespace

NcclBackend::NcclBackend(Members members, std::shared_ptr<NcclCore> core)
    : members_(std::move(members)), core_(std::move(core)) {}

NcclBackend::~NcclBackend() {
  core_->close();
}

Outcome<> NcclBackend::check(Device device) const {
  if (device == Device::cuda(core_->gpu()->index())) return Done{};
  return failed(ErrorCode::invalid_argument,
                device.kind == Device::Kind::cpu
                    ? std::string("NCCL works on GPU memory, and this is host memory")
                    : fmt::format("the memory is on GPU {}, and this rank's GPU is {}",
                                  device.index, core_->gpu()->index()));
}

NcclTarget NcclBackend::target(CudaStream stream) const {
  const NcclCommunicator& comm = core_->communicator();
  return {comm.nccl(), comm.handle(), stream, members_.me, members_.size(), core_->barrier_word()};
}

Outcome<> NcclBackend::check(const Operation& operation) const {
  if (operation.kind != OpKind::barrier) {
    if (Outcome<> fine = check(operation.device); !fine) return fine;
  }
  if (const std::string why = nccl_refuses(operation); !why.empty())
    return failed(ErrorCode::invalid_argument, why);
  return Done{};
}

Outcome<> NcclBackend::run(const Operation& operation, Deadline deadline) {
  if (operation.kind == OpKind::barrier) {
    const Outcome<std::shared_ptr<WorkState>> work = start(operation, deadline);
    if (!work) return tl::unexpected(work.error());
    // Needs no limit: the core ends the operation at its deadline.
    return *(*work)->synchronize(Deadline::max());
  }
  if (Outcome<> fine = check(operation); !fine) return fine;
  return core_->launch(operation.stream, {operation.kind, operation.sequence, deadline},
                       [&](CudaStream stream) { return put_on_stream(target(stream), operation); });
}

Outcome<std::shared_ptr<WorkState>> NcclBackend::start(const Operation& operation,
                                                       Deadline deadline) {
  if (Outcome<> fine = check(operation); !fine) return tl::unexpected(fine.error());
  const auto launch = operation.stream_waits ? &NcclCore::launch_marked : &NcclCore::launch_aside;
  Outcome<NcclCore::MarkPtr> mark =
      std::invoke(launch, *core_, operation.stream,
                  NcclCore::Call{operation.kind, operation.sequence, deadline},
                  [&](CudaStream stream) { return put_on_stream(target(stream), operation); });
  if (!mark) return tl::unexpected(mark.error());
  return std::make_shared<GpuWork>(
      GpuWork::Options{.core = core_,
                       .mark = std::move(*mark),
                       .stream = operation.stream,
                       .is_on_stream = operation.stream_waits,
                       .is_barrier = operation.kind == OpKind::barrier});
}

std::string NcclBackend::refuses(const Transfer& transfer) const {
  return nccl_refuses(transfer);
}

Outcome<int> NcclBackend::transfer(const Transfer& transfer, Deadline deadline) {
  if (Outcome<> fine = check(transfer.device); !fine) return tl::unexpected(fine.error());
  const Outcome<> launched =
      core_->launch(transfer.stream, {transfer.kind, 0, deadline}, [&](CudaStream stream) {
        return put_on_stream(target(stream), std::vector<Transfer>{transfer});
      });
  if (!launched) return tl::unexpected(launched.error());
  return transfer.peer;
}

Outcome<std::vector<std::shared_ptr<WorkState>>> NcclBackend::begin(
    const std::vector<Transfer>& transfers, Deadline deadline) {
  std::vector<std::shared_ptr<WorkState>> works;
  if (transfers.empty()) return works;
  for (const Transfer& one : transfers)
    if (Outcome<> fine = check(one.device); !fine) return tl::unexpected(fine.error());
  Outcome<NcclCore::MarkPtr> mark = core_->launch_aside(
      transfers.front().stream, {transfers.front().kind, 0, deadline},
      [&](CudaStream stream) { return put_on_stream(target(stream), transfers); });
  if (!mark) return tl::unexpected(mark.error());
  for (const Transfer& one : transfers)
    works.push_back(std::make_shared<GpuWork>(
        GpuWork::Options{.core = core_,
                         .mark = *mark,
                         .stream = one.stream,
                         .source = one.kind == OpKind::recv ? one.peer : -1}));
  return works;
}

void NcclBackend::abort(const Failure& failure) {
  core_->fail(failure);
}

}  // namespace muster::worker

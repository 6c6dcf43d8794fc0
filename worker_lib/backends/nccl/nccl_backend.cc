#include "worker_lib/backends/nccl/nccl_backend.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/error.h"

namespace muster::worker {
namespace {

// NCCL's type for one of ours. It has no int16: operations that only move data take two bytes.
struct NcclUnit {
  NcclType type;
  size_t per_element;
};

NcclUnit unit_of(DType dtype) {
  static constexpr std::array<NcclUnit, 9> kUnits{{
      {NcclType::int8, 1},
      {NcclType::uint8, 1},
      {NcclType::int8, 2},
      {NcclType::int32, 1},
      {NcclType::int64, 1},
      {NcclType::float16, 1},
      {NcclType::bfloat16, 1},
      {NcclType::float32, 1},
      {NcclType::float64, 1},
  }};
  const auto i = static_cast<size_t>(dtype);
  CHECK(i < kUnits.size());
  return kUnits[i];
}

// An average over one rank is taken as a sum: NCCL before 2.29.7 leaves out its last elements.
NcclReduction reduction_of(ReduceOp op, int ranks) {
  static constexpr std::array kReductions{NcclReduction::sum, NcclReduction::average,
                                          NcclReduction::product, NcclReduction::min,
                                          NcclReduction::max};
  const auto i = static_cast<size_t>(op);
  CHECK(i < kReductions.size());  // nccl_refuses() excludes the others.
  return op == ReduceOp::average && ranks == 1 ? NcclReduction::sum : kReductions[i];
}

// Enqueues one operation. Keeps the first error, after which it only ends an open NCCL group.
class NcclCall {
 public:
  explicit NcclCall(const NcclTarget& target) : t_(target) {}

  void put(const Operation& op) {
    switch (op.kind) {
      case OpKind::barrier:
        return note(t_.nccl.all_reduce(t_.barrier_word, t_.barrier_word, 1, NcclType::int32,
                                       NcclReduction::sum, t_.comm, t_.stream));
      case OpKind::broadcast:
        return put_broadcast(op);
      case OpKind::reduce:
        return note(t_.nccl.reduce(op.in, at_root(op) ? op.out : nullptr, op.count,
                                   unit_of(op.dtype).type, reduction_of(op.reduce, t_.ranks),
                                   op.root, t_.comm, t_.stream));
      case OpKind::all_reduce:
        return note(t_.nccl.all_reduce(op.in, op.out, op.count, unit_of(op.dtype).type,
                                       reduction_of(op.reduce, t_.ranks), t_.comm, t_.stream));
      case OpKind::gather:
      case OpKind::scatter:
        return put_gather_or_scatter(op);
      case OpKind::all_gather:
        return put_all_gather(op);
      case OpKind::reduce_scatter:
        return put_reduce_scatter(op);
      case OpKind::all_to_all:
        return put_all_to_all(op);
      default:
        break;
    }
    CHECK(false);
  }

  void put(const std::vector<Transfer>& transfers) {
    in_group([&] {
      for (const Transfer& one : transfers) {
        if (one.count == 0 || !is_fine()) continue;
        one.kind == OpKind::send ? send(one.data, one.count, one.dtype, one.peer)
                                 : recv(one.data, one.count, one.dtype, one.peer);
      }
    });
  }

  Outcome<> outcome() const {
    if (is_fine()) return Done{};
    return failed(ErrorCode::backend,
                  fmt::format("NCCL failed: {}", t_.nccl.describe(result_, t_.comm)));
  }

 private:
  void note(NcclResult result) {
    if (result_ == NcclResult::success) result_ = result;
  }
  bool is_fine() const { return result_ == NcclResult::success; }
  bool at_root(const Operation& op) const { return t_.rank == op.root; }

  // REQUIRES: count > 0.
  void send(const std::byte* data, size_t count, DType dtype, int peer) {
    const NcclUnit unit = unit_of(dtype);
    note(t_.nccl.send(data, count * unit.per_element, unit.type, peer, t_.comm, t_.stream));
  }

  void recv(std::byte* data, size_t count, DType dtype, int peer) {
    const NcclUnit unit = unit_of(dtype);
    note(t_.nccl.recv(data, count * unit.per_element, unit.type, peer, t_.comm, t_.stream));
  }

  void put_broadcast(const Operation& op) {
    const NcclUnit unit = unit_of(op.dtype);
    std::byte* const data = op.out != nullptr ? op.out : const_cast<std::byte*>(op.in);
    note(t_.nccl.broadcast(data, data, op.count * unit.per_element, unit.type, op.root, t_.comm,
                           t_.stream));
  }

  // Sends a message between the root and each rank that has a block, also from the root to itself
  // unless its block is already in place.
  void put_gather_or_scatter(const Operation& op) {
    const bool gathers = op.kind == OpKind::gather;
    if (!at_root(op)) {
      if (op.count == 0) return;
      gathers ? send(op.in, op.count, op.dtype, op.root)
              : recv(op.out, op.count, op.dtype, op.root);
      return;
    }
    const auto& counts = gathers ? op.recv_counts : op.send_counts;
    for_blocks(counts, op.count, [&](int peer, size_t count, size_t first) {
      const bool is_own = peer == t_.rank;
      const size_t at = first * size_of(op.dtype);
      const std::byte* const from = gathers ? op.in : op.in + at;
      std::byte* const to = gathers ? op.out + at : op.out;
      if (is_own && from == to) return;
      if (is_own || !gathers) send(from, count, op.dtype, peer);
      if (is_own || gathers) recv(to, count, op.dtype, peer);
    });
  }

  // Turns unequal blocks into one broadcast per rank, in one NCCL group, which NCCL fuses.
  void put_all_gather(const Operation& op) {
    const NcclUnit unit = unit_of(op.dtype);
    if (!op.is_v) {
      note(t_.nccl.all_gather(op.in, op.out, op.count * unit.per_element, unit.type, t_.comm,
                              t_.stream));
      return;
    }
    for_blocks(op.recv_counts, op.count, [&](int root, size_t count, size_t first) {
      std::byte* const to = op.out + first * size_of(op.dtype);
      note(t_.nccl.broadcast(root == t_.rank ? op.in : to, to, count * unit.per_element, unit.type,
                             root, t_.comm, t_.stream));
    });
  }

  void put_reduce_scatter(const Operation& op) {
    const NcclType type = unit_of(op.dtype).type;
    if (!op.is_v) {
      note(t_.nccl.reduce_scatter(op.in, op.out, op.count, type, reduction_of(op.reduce, t_.ranks),
                                  t_.comm, t_.stream));
      return;
    }
    for_blocks(op.send_counts, op.count, [&](int root, size_t count, size_t first) {
      note(t_.nccl.reduce(op.in + first * size_of(op.dtype), root == t_.rank ? op.out : nullptr,
                          count, type, reduction_of(op.reduce, t_.ranks), root, t_.comm,
                          t_.stream));
    });
  }

  void put_all_to_all(const Operation& op) {
    const size_t width = size_of(op.dtype);
    in_group([&] {
      size_t sent = 0;
      size_t received = 0;
      for (int peer = 0; peer < t_.ranks; ++peer) {
        const auto at = static_cast<size_t>(peer);
        const size_t out_count = op.is_v ? op.send_counts[at] : op.count;
        const size_t in_count = op.is_v ? op.recv_counts[at] : op.count;
        if (out_count > 0 && is_fine()) send(op.in + sent * width, out_count, op.dtype, peer);
        if (in_count > 0 && is_fine()) recv(op.out + received * width, in_count, op.dtype, peer);
        sent += out_count;
        received += in_count;
      }
    });
  }

  // Calls `body()` within one NCCL group.
  template <typename Body>
  void in_group(const Body& body) {
    note(t_.nccl.group_start());
    if (!is_fine()) return;
    body();
    note(t_.nccl.group_end());
  }

  // Calls `each(peer, count, first)` for every non-empty block, in one NCCL group.
  template <typename Each>
  void for_blocks(const std::vector<size_t>& counts, size_t count, const Each& each) {
    in_group([&] {
      size_t first = 0;
      for (int peer = 0; peer < t_.ranks; ++peer) {
        const size_t size = counts.empty() ? count : counts[static_cast<size_t>(peer)];
        if (size > 0 && is_fine()) each(peer, size, first);
        first += size;
      }
    });
  }

  const NcclTarget& t_;
  NcclResult result_ = NcclResult::success;
};

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

std::string nccl_refuses(const Operation& operation) {
  if (!has_reduction(operation.kind)) return {};
  if (operation.dtype == DType::int16) return "NCCL cannot reduce int16; use int32, or host memory";
  if (operation.reduce == ReduceOp::band || operation.reduce == ReduceOp::bor ||
      operation.reduce == ReduceOp::bxor)
    return fmt::format("NCCL does not support {}; use host memory", name_of(operation.reduce));
  return {};
}

std::string nccl_refuses(const Transfer& transfer) {
  if (transfer.tag != 0) return "NCCL does not support tags; use tag 0, or host memory";
  if (transfer.peer < 0)
    return "NCCL cannot receive from any rank; name the sender, or use host memory";
  return {};
}

Outcome<> put_on_stream(const NcclTarget& target, const Operation& operation) {
  NcclCall call(target);
  call.put(operation);
  return call.outcome();
}

Outcome<> put_on_stream(const NcclTarget& target, const std::vector<Transfer>& transfers) {
  NcclCall call(target);
  call.put(transfers);
  return call.outcome();
}

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

}  // namespace muster::worker

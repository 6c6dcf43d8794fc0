// Our collectives as Gloo calls. Some are composed: reduce_scatter from all_to_all_v; gather and
// scatter from messages, since Gloo's own do not accept empty blocks. For equal blocks Gloo sends
// the same messages as for unequal ones, so these operations have no special case.
#include <numeric>
#include <utility>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>
#include <gloo/transport/unbound_buffer.h>

#include "rendezvous/base/error.h"
#include "worker_lib/backends/gloo/gloo_mesh.h"
#include "worker_lib/backends/stepped_average.h"
#include "worker_lib/copy_bytes.h"
#include "worker_lib/reduction/reduce_kernels.h"

namespace muster::worker {

namespace {

using std::chrono::milliseconds;
using Bytes = std::unique_ptr<::gloo::transport::UnboundBuffer>;

// Returns the function that Gloo combines two arrays with: out[i] = a[i] op b[i].
auto combining(DType dtype, ReduceOp op) {
  if (op == ReduceOp::average) op = ReduceOp::sum;
  return [dtype, op](void* out, const void* a, const void* b, size_t count) {
    const std::byte* const both[] = {static_cast<const std::byte*>(a),
                                     static_cast<const std::byte*>(b)};
    reduce_buffers(dtype, op, static_cast<std::byte*>(out), both, 2, count);
  };
}

// One call. Gloo moves elements of one byte, except in reductions, so counts become bytes.
class GlooCall {
 public:
  GlooCall(const std::shared_ptr<GlooMesh>& mesh, const Operation& operation, milliseconds timeout)
      : mesh_(mesh), op_(operation), timeout_(timeout), width_(size_of(operation.dtype)) {}

  void run();

 private:
  template <typename Options>
  Options options() const {
    Options made{std::shared_ptr<::gloo::Context>(mesh_)};
    made.setTag(static_cast<uint32_t>(op_.sequence));
    made.setTimeout(timeout_);
    return made;
  }
  uint8_t* in() const { return const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(op_.in)); }
  uint8_t* out() const { return reinterpret_cast<uint8_t*>(op_.out); }
  Bytes bytes(uint8_t* data, size_t size) const { return mesh_->createUnboundBuffer(data, size); }
  size_t block() const { return op_.count * width_; }
  // Returns the counts by rank; `counts` is empty if they are all equal.
  std::vector<size_t> by_rank(const std::vector<size_t>& counts) const {
    return counts.empty() ? std::vector<size_t>(ranks(), op_.count) : counts;
  }
  size_t my_block() const { return static_cast<size_t>(me()) * block(); }
  int me() const { return mesh_->rank; }
  size_t ranks() const { return static_cast<size_t>(mesh_->size); }
  bool at_root() const { return me() == op_.root; }
  void copy(uint8_t* to, const uint8_t* from, size_t size) const {
    if (to != from) copy_bytes(to, from, size);
  }

  // Sets up either reduction; `result` receives this rank's input, and then the result.
  template <typename Options>
  void reduce_in(Options& call, uint8_t* result) const;
  void divide_average();

  bool is_empty() const;
  void broadcast();
  void reduce();
  void all_reduce();
  void gather_or_scatter();
  void all_gather();
  void all_gather_v();
  void reduce_scatter();
  void all_to_all();
  void exchange(uint8_t* from, const std::vector<size_t>& sent, uint8_t* to,
                const std::vector<size_t>& received);

  const std::shared_ptr<GlooMesh>& mesh_;
  const Operation& op_;
  milliseconds timeout_;
  size_t width_;
};

void GlooCall::run() {
  if (is_empty()) return;
  switch (op_.kind) {
    case OpKind::barrier:
      return;
    case OpKind::broadcast:
      return broadcast();
    case OpKind::reduce:
      return reduce();
    case OpKind::all_reduce:
      return all_reduce();
    case OpKind::gather:
    case OpKind::scatter:
      return gather_or_scatter();
    case OpKind::all_gather:
      return op_.is_v ? all_gather_v() : all_gather();
    case OpKind::reduce_scatter:
      return reduce_scatter();
    case OpKind::all_to_all:
      return all_to_all();
    default:
      break;
  }
  CHECK(false);
}

// True if all ranks know that no data moves: Gloo does not accept empty buffers, and needs no call.
bool GlooCall::is_empty() const {
  return !op_.is_v && op_.count == 0;
}

void GlooCall::broadcast() {
  auto call = options<::gloo::BroadcastOptions>();
  if (at_root() && op_.in != nullptr && op_.in != op_.out && op_.out != nullptr)
    copy(out(), in(), block());
  call.setOutput(op_.out != nullptr ? out() : in(), block());
  call.setRoot(op_.root);
  ::gloo::broadcast(call);
}

template <typename Options>
void GlooCall::reduce_in(Options& call, uint8_t* result) const {
  // Gloo derives the width of an element from a type.
  const auto set_output = [&](auto type) {
    call.setOutput(reinterpret_cast<decltype(type)*>(result), op_.count);
  };
  width_ == 1   ? set_output(uint8_t{})
  : width_ == 2 ? set_output(uint16_t{})
  : width_ == 4 ? set_output(uint32_t{})
                : set_output(uint64_t{});
  copy(result, in(), block());
  call.setReduceFunction(combining(op_.dtype, op_.reduce));
}

// Gloo needs an output on every rank, as scratch memory.
void GlooCall::reduce() {
  auto call = options<::gloo::ReduceOptions>();
  std::vector<uint8_t> scratch(at_root() ? 0 : block());
  reduce_in(call, at_root() ? out() : scratch.data());
  call.setRoot(op_.root);
  ::gloo::reduce(call);
  if (at_root()) divide_average();
}

void GlooCall::all_reduce() {
  auto call = options<::gloo::AllreduceOptions>();
  reduce_in(call, out());
  ::gloo::allreduce(call);
  divide_average();
}

void GlooCall::divide_average() {
  if (op_.reduce != ReduceOp::average) return;
  divide(op_.dtype, op_.out, op_.count,
         mesh_->size / SteppedAverage::early_divisor(op_.dtype, mesh_->size));
}

// Sends a message between the root and each rank that has a block.
void GlooCall::gather_or_scatter() {
  const bool gathers = op_.kind == OpKind::gather;
  const bool receives = gathers == at_root();
  const uint64_t slot = gloo_slot(gathers ? GlooSlots::gather : GlooSlots::scatter, op_.sequence);
  uint8_t* const mine = gathers ? in() : out();
  std::vector<Bytes> messages;
  const auto begin = [&](uint8_t* data, size_t size, int peer) {
    if (size == 0) return;
    messages.push_back(bytes(data, size));
    receives ? messages.back()->recv(peer, slot) : messages.back()->send(peer, slot);
  };
  if (at_root()) {
    const std::vector<size_t> counts = by_rank(gathers ? op_.recv_counts : op_.send_counts);
    uint8_t* data = gathers ? out() : in();
    for (int peer = 0; peer < mesh_->size; ++peer) {
      const size_t size = counts[static_cast<size_t>(peer)] * width_;
      if (peer != me())
        begin(data, size, peer);
      else
        gathers ? copy(data, mine, size) : copy(mine, data, size);
      data += size;
    }
  } else {
    begin(mine, block(), op_.root);
  }
  for (const Bytes& one : messages)
    receives ? one->waitRecv(timeout_) : one->waitSend(timeout_);
}

void GlooCall::all_gather() {
  auto call = options<::gloo::AllgatherOptions>();
  copy(out() + my_block(), in(), block());
  call.setOutput(out(), block() * ranks());
  ::gloo::allgather(call);
}

void GlooCall::all_gather_v() {
  auto call = options<::gloo::AllgathervOptions>();
  std::vector<size_t> sizes;
  for (size_t count : op_.recv_counts)
    sizes.push_back(count * width_);
  const auto mine = sizes.begin() + me();
  copy(out() + std::accumulate(sizes.begin(), mine, size_t{0}), in(), *mine);
  call.setOutput(out(), sizes);
  ::gloo::allgatherv(call);
}

// Every rank receives all ranks' versions of its block and reduces them in rank order: each block
// crosses the network once, and the result does not depend on the order of arrival.
void GlooCall::reduce_scatter() {
  const std::vector<size_t> sent = by_rank(op_.send_counts);
  const size_t mine = sent[static_cast<size_t>(me())];
  std::vector<uint8_t> versions(mine * width_ * ranks());
  exchange(in(), sent, versions.data(), std::vector<size_t>(ranks(), mine));
  std::vector<const std::byte*> each;
  for (size_t peer = 0; peer < ranks(); ++peer)
    each.push_back(reinterpret_cast<const std::byte*>(versions.data()) + peer * mine * width_);
  if (mine > 0) reduce_buffers(op_.dtype, op_.reduce, op_.out, each.data(), each.size(), mine);
}

void GlooCall::all_to_all() {
  exchange(in(), by_rank(op_.send_counts), out(), by_rank(op_.recv_counts));
}

void GlooCall::exchange(uint8_t* from, const std::vector<size_t>& sent, uint8_t* to,
                        const std::vector<size_t>& received) {
  auto call = options<::gloo::AlltoallvOptions>();
  const auto sizes = [this](const std::vector<size_t>& counts) {
    std::vector<int64_t> made;
    for (size_t count : counts)
      made.push_back(static_cast<int64_t>(count * width_));
    return made;
  };
  call.setInput(from, sizes(sent));
  call.setOutput(to, sizes(received));
  ::gloo::alltoallv(call);
}

}  // namespace

void run_on_gloo(const std::shared_ptr<GlooMesh>& mesh, const Operation& operation,
                 milliseconds timeout) {
  // A reduce_scatter has all inputs at once.
  if (operation.kind == OpKind::reduce_scatter) return GlooCall(mesh, operation, timeout).run();
  const SteppedAverage average(operation, mesh->size, mesh->rank);
  GlooCall(mesh, average.step(), timeout).run();
  average.finish();
}

}  // namespace muster::worker

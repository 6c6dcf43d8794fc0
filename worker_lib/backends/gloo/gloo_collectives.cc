// Our collectives as Gloo calls. gather and scatter are composed of messages, since Gloo's own do
// not accept empty blocks. For equal blocks Gloo sends the same messages as for unequal ones, so
// all_to_all has no special case.
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>
#include <gloo/transport/unbound_buffer.h>

#include "muster/types.h"
#include "worker_lib/backends/gloo/gloo_mesh.h"
#include "worker_lib/copy_bytes.h"

namespace muster::worker {
namespace {

// One call. Gloo moves elements of one byte, except in reductions, so counts become bytes.
class GlooCall {
 public:
  GlooCall(const muster_module_setup& setup, const std::shared_ptr<GlooMesh>& mesh,
           const muster_operation& operation, const muster_module_call& call)
      : reduce_(setup.reduce),
        mesh_(mesh),
        op_(operation),
        sequence_(call.sequence),
        timeout_(gloo_timeout(call)),
        width_(size_of(static_cast<DType>(operation.in.dtype))) {}

  void run() {
    if (op_.kind == MUSTER_BROADCAST) return broadcast();
    if (op_.kind == MUSTER_REDUCE) return reduce();
    if (op_.kind == MUSTER_ALL_REDUCE) return all_reduce();
    if (op_.kind == MUSTER_GATHER || op_.kind == MUSTER_SCATTER) return gather_or_scatter();
    if (op_.kind == MUSTER_ALL_GATHER) return all_gather();
    if (op_.kind == MUSTER_ALL_TO_ALL) return all_to_all();
    throw std::invalid_argument("no collective has the number " + std::to_string(op_.kind));
  }

 private:
  template <typename Options>
  Options options() const {
    Options made{std::shared_ptr<::gloo::Context>(mesh_)};
    made.setTag(static_cast<uint32_t>(sequence_));
    made.setTimeout(timeout_);
    return made;
  }
  uint8_t* in() const { return static_cast<uint8_t*>(op_.in.data); }
  uint8_t* out() const { return static_cast<uint8_t*>(op_.out.data); }
  size_t in_bytes() const { return op_.in.count * width_; }
  size_t out_bytes() const { return op_.out.count * width_; }
  // Returns the sizes of the blocks in bytes.
  template <typename Size>
  std::vector<Size> sizes(const size_t* counts) const {
    std::vector<Size> made;
    for (const size_t count : std::span(counts, static_cast<size_t>(mesh_->size)))
      made.push_back(static_cast<Size>(count * width_));
    return made;
  }
  bool at_root() const { return mesh_->rank == op_.root; }
  static void copy(uint8_t* to, const uint8_t* from, size_t size) {
    if (to != from) copy_bytes(to, from, size);
  }

  void broadcast() {
    auto call = options<::gloo::BroadcastOptions>();
    call.setOutput(out(), out_bytes());
    call.setRoot(op_.root);
    ::gloo::broadcast(call);
  }

  // Sets up either reduction; `result` receives this rank's input, and then the result.
  template <typename Options>
  void reduce_in(Options& call, uint8_t* result) const {
    // Gloo derives the width of an element from a type.
    const auto set_output = [&](auto type) {
      call.setOutput(reinterpret_cast<decltype(type)*>(result), op_.in.count);
    };
    width_ == 1   ? set_output(uint8_t{})
    : width_ == 2 ? set_output(uint16_t{})
    : width_ == 4 ? set_output(uint32_t{})
                  : set_output(uint64_t{});
    copy(result, in(), in_bytes());
    call.setReduceFunction([combine = reduce_, dtype = op_.in.dtype, op = op_.reduce_op](
                               void* to, const void* a, const void* b, size_t count) {
      combine(dtype, op, to, a, b, count);
    });
  }

  // Gloo needs an output on every rank, as scratch memory.
  void reduce() {
    auto call = options<::gloo::ReduceOptions>();
    std::vector<uint8_t> scratch(at_root() ? 0 : in_bytes());
    reduce_in(call, at_root() ? out() : scratch.data());
    call.setRoot(op_.root);
    ::gloo::reduce(call);
  }

  void all_reduce() {
    auto call = options<::gloo::AllreduceOptions>();
    reduce_in(call, out());
    ::gloo::allreduce(call);
  }

  // Sends a message between the root and each rank that has a block.
  void gather_or_scatter() {
    const bool gathers = op_.kind == MUSTER_GATHER;
    const bool receives = gathers == at_root();
    const uint64_t slot = gloo_slot(gathers ? GlooSlots::gather : GlooSlots::scatter, sequence_);
    uint8_t* const mine = gathers ? in() : out();
    std::vector<std::unique_ptr<::gloo::transport::UnboundBuffer>> messages;
    const auto begin = [&](uint8_t* data, size_t size, int peer) {
      if (size == 0) return;
      messages.push_back(mesh_->createUnboundBuffer(data, size));
      receives ? messages.back()->recv(peer, slot) : messages.back()->send(peer, slot);
    };
    if (at_root()) {
      uint8_t* data = gathers ? out() : in();
      int peer = 0;
      for (const size_t size : sizes<size_t>(gathers ? op_.recv_counts : op_.send_counts)) {
        if (peer != mesh_->rank)
          begin(data, size, peer);
        else
          gathers ? copy(data, mine, size) : copy(mine, data, size);
        data += size;
        ++peer;
      }
    } else {
      begin(mine, gathers ? in_bytes() : out_bytes(), op_.root);
    }
    for (const auto& one : messages)
      receives ? one->waitRecv(timeout_) : one->waitSend(timeout_);
  }

  void all_gather() {
    const auto blocks = sizes<size_t>(op_.recv_counts);
    const auto mine = blocks.begin() + mesh_->rank;
    copy(out() + std::accumulate(blocks.begin(), mine, size_t{0}), in(), *mine);
    if (op_.is_v != 0) {
      auto call = options<::gloo::AllgathervOptions>();
      call.setOutput(out(), blocks);
      ::gloo::allgatherv(call);
    } else {
      auto call = options<::gloo::AllgatherOptions>();
      call.setOutput(out(), out_bytes());
      ::gloo::allgather(call);
    }
  }

  void all_to_all() {
    auto call = options<::gloo::AlltoallvOptions>();
    call.setInput(in(), sizes<int64_t>(op_.send_counts));
    call.setOutput(out(), sizes<int64_t>(op_.recv_counts));
    ::gloo::alltoallv(call);
  }

  decltype(muster_module_setup::reduce) reduce_;
  const std::shared_ptr<GlooMesh>& mesh_;
  const muster_operation& op_;
  uint64_t sequence_;
  std::chrono::milliseconds timeout_;
  size_t width_;
};

}  // namespace

void run_on_gloo(const muster_module_setup& setup, const std::shared_ptr<GlooMesh>& mesh,
                 const muster_operation& operation, const muster_module_call& call) {
  GlooCall(setup, mesh, operation, call).run();
}

}  // namespace muster::worker

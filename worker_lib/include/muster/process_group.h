// A group of ranks and the operations between them.
//
//   #include <vector>
//   #include <muster/init.h>
//   #include <muster/process_group.h>
//
//   muster::init_process_group();
//   muster::ProcessGroup world = muster::world();
//   std::vector<float> loss{0.25f};
//   world.all_reduce(loss, muster::ReduceOp::average);
//   muster::ProcessGroup even = muster::new_group({{0}, {2}});  // Ranks 0 and 2 of the job.
//   if (even.is_member()) even.broadcast(loss, muster::GroupRank{0});
//   world.barrier({.timeout = std::chrono::seconds(5)});
//
// The operations are MPI's and torch.distributed's, with their meanings (MPI 4.0, chapters 3 and 6;
// the documentation of torch.distributed):
//
// - An operation is collective: every member of the group calls it, with the same kind of
//   operation, count, dtype, reduction and root, and in the same order on all members. Ranks
//   outside take no part and are not waited for. The calls of a group that carry different
//   operations fail on all members with ErrorCode::mismatch where the backend can tell, and with
//   ErrorCode::timeout else.
// - A synchronous call returns when its result is in place on this rank. That says nothing of other
//   ranks, save for barrier(). An *_async call returns at once; its buffers belong to the operation
//   until its Work is complete. Operations of one group are performed in the order of the calls,
//   asynchronous ones too; point-to-point ones are ordered for each pair of ranks and tag only.
// - Sizes are counts of elements. `count` below is that of the smaller buffer; n is size(). An
//   operation on zero elements is performed (it synchronises as any other, but not on GPUs: NCCL
//   leaves it out).
// - In place means: in.data == out.data where both have the same count; where the counts differ,
//   the smaller one lies where this rank's block of the larger one is (as MPI_IN_PLACE): that is
//   found by the addresses. Any other overlap is refused.
// - Refused before anything is sent, with ErrorCode::invalid_argument: wrong counts or dtypes, a
//   root or peer that the group has not, sending to or receiving from oneself, null data with a
//   count, memory on a device that the group has no backend for, integer-only reductions of floats.
//   With ErrorCode::not_member: every operation of a group that this rank is not in. What only
//   several ranks together can get wrong is found while they exchange.
// - Everything blocks up to its deadline only: CallOptions::timeout, else the group's. Then it
//   throws ErrorCode::timeout and names the ranks that keep all others; to find them it asks those
//   that it waited for, and whom they wait for in turn, in whatever group, for up to a second. The
//   death of a member, abort() and SIGTERM (see StopPolicy) end it within a second.
//
// Threads: different groups may be used by different threads at the same time. Calls of one group
// from several threads are safe but are performed in an order that nobody promises, which other
// ranks cannot know: give each thread its own group. On GPU memory that is not enough: kernels of
// several groups on one GPU may wait for each other, so all ranks must begin the operations of all
// their groups in one order, as one thread for all of them does (NCCL's documentation, "Using
// multiple NCCL communicators concurrently"). A ProcessGroup is a handle; copies mean the same
// group.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "muster/error.h"
#include "muster/types.h"
#include "muster/work.h"

namespace muster {

namespace worker {
class Group;
}

// What carries a group's operations.
enum class Backend : uint8_t {
  automatic = 0,  // cpu for host memory, and nccl for GPU memory where there is a GPU.
  cpu = 1,        // Ours: shared memory between the ranks of a node, TCP between nodes.
  nccl = 2,       // NVIDIA's library, opened when needed. GPU memory only.
  gloo = 3,       // Debian's libgloo, where muster was built with it. Host memory only.
};

MUSTER_API const char* name_of(Backend backend);

// Of one call.
struct CallOptions {
  // Instead of the group's. Zero or less: already over.
  std::optional<std::chrono::milliseconds> timeout = {};
  // Operations on GPU memory: the cudaStream_t whose work before this call they follow, and that
  // waits for them. Null is the legacy default stream.
  void* stream = nullptr;
};

struct GroupOptions {
  std::string name = {};  // For messages; empty: "group of ranks 0,2". At most 64 characters.
  // Of each operation; none: that of the world.
  std::optional<std::chrono::milliseconds> timeout = {};
  std::optional<Backend> backend = {};  // None: that of the world.
};

// One of a batch of sends and receives.
struct P2POp {
  enum class Kind : uint8_t { send, recv };

  // Performed by batch_isend_irecv() only.
  [[nodiscard]] static P2POp send(ConstBuffer data, GroupRank to, int tag = 0);
  [[nodiscard]] static P2POp recv(Buffer data, GroupRank from, int tag = 0);

  Kind kind;
  void* data;  // Only read by a send.
  size_t count;
  DType dtype;
  Device device;
  GroupRank peer;
  int tag;
};

// How many elements go to or come from each rank, in their order: any contiguous range of size_t,
// or a list in braces ({2, 0, 1}). A view, which is looked at only during the call that takes it.
class Counts {
 public:
  Counts() = default;
  Counts(std::initializer_list<size_t> counts) : counts_(counts.begin(), counts.size()) {}
  template <typename Range>
    requires(!std::is_same_v<std::remove_cvref_t<Range>, Counts> &&
             std::is_convertible_v<Range, std::span<const size_t>>)
  Counts(Range&& range)  // NOLINT: converts on purpose.
      : counts_(std::forward<Range>(range)) {}

  operator std::span<const size_t>() const { return counts_; }  // NOLINT: converts on purpose.

 private:
  std::span<const size_t> counts_;
};

class SharedMemory;

class MUSTER_API ProcessGroup {
 public:
  // An empty handle: all but valid() throws invalid_argument until one from world(), new_group() or
  // split() is assigned.
  ProcessGroup() = default;
  explicit ProcessGroup(std::shared_ptr<worker::Group> group);

  bool valid() const noexcept { return group_ != nullptr; }

  // ---- who is in it. Never block.

  bool is_member() const;
  GroupRank rank() const;  // Throws not_member.
  int size() const;
  // The members by group rank.
  const std::vector<GlobalRank>& ranks() const;
  // Throw invalid_argument where there is none.
  GlobalRank global_rank(GroupRank rank) const;
  GroupRank group_rank(GlobalRank rank) const;
  const std::string& name() const;
  std::chrono::milliseconds timeout() const;
  // What carries operations on host memory, and on GPU memory (none: refused).
  std::optional<Backend> cpu_backend() const;
  std::optional<Backend> cuda_backend() const;

  // Where `op` or `tag` stand before the options they may be left out:
  // all_reduce(data, {.timeout = 5s}).
  //
  // ---- one to all and all to one

  // Copies `count` elements from `root` to all.
  void broadcast(Buffer data, GroupRank root, const CallOptions& options = {});
  Work broadcast_async(Buffer data, GroupRank root, const CallOptions& options = {});

  // `out` on `root` becomes the reduction of all `in`, element by element: `count` elements each.
  // Elsewhere `out` may be empty and is not touched.
  void reduce(ConstBuffer in, Buffer out, GroupRank root, ReduceOp op = ReduceOp::sum,
              const CallOptions& options = {});
  // In place: on `root` `data` becomes the result; on others it keeps its values.
  void reduce(Buffer data, GroupRank root, ReduceOp op = ReduceOp::sum,
              const CallOptions& options = {});
  Work reduce_async(ConstBuffer in, Buffer out, GroupRank root, ReduceOp op = ReduceOp::sum,
                    const CallOptions& options = {});
  Work reduce_async(Buffer data, GroupRank root, ReduceOp op = ReduceOp::sum,
                    const CallOptions& options = {});

  // `out` on `root` (n * count elements) becomes the `in` of all, by group rank. Elsewhere `out`
  // may be empty and is not touched.
  void gather(ConstBuffer in, Buffer out, GroupRank root, const CallOptions& options = {});
  Work gather_async(ConstBuffer in, Buffer out, GroupRank root, const CallOptions& options = {});
  // With counts[r] elements from rank r, which the root knows; elsewhere `counts` may be empty.
  //
  // Where a rank sends another number than is expected of it, here and in the other _v calls that
  // have a root or two lists, it is the receiving rank that finds it and throws
  // ErrorCode::mismatch. The sending one may return without an error; the group has failed all the
  // same, and its next call there throws.
  void gather_v(ConstBuffer in, Buffer out, Counts counts, GroupRank root,
                const CallOptions& options = {});
  Work gather_v_async(ConstBuffer in, Buffer out, Counts counts, GroupRank root,
                      const CallOptions& options = {});

  // Rank r's `out` (count elements) becomes block r of the root's `in` (n * count elements).
  // Elsewhere `in` may be empty.
  void scatter(ConstBuffer in, Buffer out, GroupRank root, const CallOptions& options = {});
  Work scatter_async(ConstBuffer in, Buffer out, GroupRank root, const CallOptions& options = {});
  // With counts[r] elements for rank r, which the root knows; elsewhere `counts` may be empty.
  void scatter_v(ConstBuffer in, Counts counts, Buffer out, GroupRank root,
                 const CallOptions& options = {});
  Work scatter_v_async(ConstBuffer in, Counts counts, Buffer out, GroupRank root,
                       const CallOptions& options = {});

  // ---- all to all

  // `out` on all becomes the reduction of all `in`: `count` elements each. The results are equal
  // bit by bit on all ranks, and from run to run with the same group, count and placement on nodes.
  void all_reduce(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum,
                  const CallOptions& options = {});
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum, const CallOptions& options = {});
  Work all_reduce_async(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum,
                        const CallOptions& options = {});
  Work all_reduce_async(Buffer data, ReduceOp op = ReduceOp::sum, const CallOptions& options = {});

  // `out` (n * count elements) on all becomes the `in` (count elements) of all, by group rank.
  void all_gather(ConstBuffer in, Buffer out, const CallOptions& options = {});
  Work all_gather_async(ConstBuffer in, Buffer out, const CallOptions& options = {});
  // With counts[r] elements from rank r, the same `counts` on all.
  void all_gather_v(ConstBuffer in, Buffer out, Counts counts, const CallOptions& options = {});
  Work all_gather_v_async(ConstBuffer in, Buffer out, Counts counts,
                          const CallOptions& options = {});

  // Rank r's `out` (count elements) becomes block r of the reduction of all `in` (n * count).
  void reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum,
                      const CallOptions& options = {});
  Work reduce_scatter_async(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum,
                            const CallOptions& options = {});
  // With counts[r] elements in block r, the same `counts` on all.
  void reduce_scatter_v(ConstBuffer in, Buffer out, Counts counts, ReduceOp op = ReduceOp::sum,
                        const CallOptions& options = {});
  Work reduce_scatter_v_async(ConstBuffer in, Buffer out, Counts counts,
                              ReduceOp op = ReduceOp::sum, const CallOptions& options = {});

  // Block s of rank r's `out` becomes block r of rank s's `in`; both have n * count elements. Not
  // in place.
  void all_to_all(ConstBuffer in, Buffer out, const CallOptions& options = {});
  Work all_to_all_async(ConstBuffer in, Buffer out, const CallOptions& options = {});
  // send_counts[r] elements go to rank r and recv_counts[r] come from it; rank r's
  // recv_counts[s] is rank s's send_counts[r]. See gather_v() for what happens else.
  void all_to_all_v(ConstBuffer in, Counts send_counts, Buffer out, Counts recv_counts,
                    const CallOptions& options = {});
  Work all_to_all_v_async(ConstBuffer in, Counts send_counts, Buffer out, Counts recv_counts,
                          const CallOptions& options = {});

  // ---- barriers

  // Returns when every member has called it.
  void barrier(const CallOptions& options = {});
  Work barrier_async(const CallOptions& options = {});
  // The same, but it finds out who does not come: where the deadline of one that came passes it
  // throws on every rank that came, and names all missing ones (`wait_all_ranks`), or the first one
  // alone (else). Passes through the store, one message per rank: slower than barrier(), and it
  // works when the backend's own connections do not.
  //
  // Throwing leaves the group usable. But the members' calls belong together by their number: a
  // rank that missed one must make the call up (it throws at once, and says that it came too late),
  // or its next one is taken for the one it missed.
  void monitored_barrier(const CallOptions& options = {}, bool wait_all_ranks = true);

  // ---- point to point: from one rank to another, never to oneself. Counts and dtypes of both ends
  // must be equal. `tag` (>= 0) tells several messages between the same pair apart. NCCL knows no
  // tags and receives from nobody in particular never: then a tag other than 0 and recv_any() are
  // refused.
  //
  // A receive returns with the data. A send may return before it is received, or wait for the
  // receive: how much is taken in between is the backend's business (cpu: on one node just under
  // 256 KiB for each pair of ranks, less in groups of more than 8, down to 16 KiB; between nodes
  // what the kernel's socket buffers hold), so nothing may depend on it. Two ranks that both send()
  // first and recv() then wait for each other until their time is over, once messages are large. To
  // exchange, use batch_isend_irecv(); on host memory isend(), recv(), then wait() is as good. On
  // GPU memory it is not: there a group's operations, messages too, run one after the other in the
  // order of the calls. Two ranks that both isend() first wait for each other, and so do a receive
  // before a collective and its send after it. The first message between two ranks also blocks the
  // caller there until they are connected.

  void send(ConstBuffer data, GroupRank to, int tag = 0, const CallOptions& options = {});
  void recv(Buffer data, GroupRank from, int tag = 0, const CallOptions& options = {});
  // From whoever sends first with that tag; returns who that was.
  GroupRank recv_any(Buffer data, int tag = 0, const CallOptions& options = {});
  Work isend(ConstBuffer data, GroupRank to, int tag = 0, const CallOptions& options = {});
  Work irecv(Buffer data, GroupRank from, int tag = 0, const CallOptions& options = {});
  Work irecv_any(Buffer data, int tag = 0, const CallOptions& options = {});
  // All at the same time, so that no order of sends and receives can deadlock. One Work for each,
  // in the order of `ops`.
  [[nodiscard]] std::vector<Work> batch_isend_irecv(std::span<const P2POp> ops,
                                                    const CallOptions& options = {});
  [[nodiscard]] std::vector<Work> batch_isend_irecv(std::initializer_list<P2POp> ops,
                                                    const CallOptions& options = {}) {
    return batch_isend_irecv(std::span<const P2POp>(ops.begin(), ops.size()), options);
  }

  // ---- byte strings of any length, unequal too (host memory)

  void broadcast_bytes(std::string& bytes, GroupRank root, const CallOptions& options = {});
  // By group rank.
  std::vector<std::string> all_gather_bytes(std::string_view bytes,
                                            const CallOptions& options = {});

  // ---- memory that all members on this node share

  // Collective: every member asks for `bytes` (the same number) and gets memory of its own, zeroed
  // and aligned to a page, that the other members on its node can reach. Operations on it (any
  // part of it, at the same offset on all ranks) need no copies. Members on other nodes get plain
  // memory. Throws invalid_argument above 2^43 bytes, which leaves the group usable, and
  // ErrorCode::system where the kernel refuses, which does not (/dev/shm is not used).
  SharedMemory allocate_shared(size_t bytes, const CallOptions& options = {});

  // ---- other groups

  // Collective over this group: members that pass the same `color` (>= 0) form a group, ordered by
  // `key`, then by rank here. color < 0: in none; then the result says is_member() == false.
  ProcessGroup split(int color, int key = 0, const GroupOptions& options = {});

  // Ends every blocked and future call of this group on all its ranks with ErrorCode::aborted and
  // `reason`. Any thread, any number of times. Returns at once; others know within a second.
  void abort(std::string_view reason = "abort() was called");

  // What failed this group, if something did.
  std::optional<DistributedError> failure() const;

  // ---- the calls above with options, and without the `op` or `tag` that would stand before them

  void reduce(ConstBuffer in, Buffer out, GroupRank root, const CallOptions& options) {
    reduce(in, out, root, ReduceOp::sum, options);
  }
  void reduce(Buffer data, GroupRank root, const CallOptions& options) {
    reduce(data, root, ReduceOp::sum, options);
  }
  Work reduce_async(ConstBuffer in, Buffer out, GroupRank root, const CallOptions& options) {
    return reduce_async(in, out, root, ReduceOp::sum, options);
  }
  Work reduce_async(Buffer data, GroupRank root, const CallOptions& options) {
    return reduce_async(data, root, ReduceOp::sum, options);
  }
  void all_reduce(ConstBuffer in, Buffer out, const CallOptions& options) {
    all_reduce(in, out, ReduceOp::sum, options);
  }
  void all_reduce(Buffer data, const CallOptions& options) {
    all_reduce(data, ReduceOp::sum, options);
  }
  Work all_reduce_async(ConstBuffer in, Buffer out, const CallOptions& options) {
    return all_reduce_async(in, out, ReduceOp::sum, options);
  }
  Work all_reduce_async(Buffer data, const CallOptions& options) {
    return all_reduce_async(data, ReduceOp::sum, options);
  }
  void reduce_scatter(ConstBuffer in, Buffer out, const CallOptions& options) {
    reduce_scatter(in, out, ReduceOp::sum, options);
  }
  Work reduce_scatter_async(ConstBuffer in, Buffer out, const CallOptions& options) {
    return reduce_scatter_async(in, out, ReduceOp::sum, options);
  }
  void reduce_scatter_v(ConstBuffer in, Buffer out, Counts counts, const CallOptions& options) {
    reduce_scatter_v(in, out, counts, ReduceOp::sum, options);
  }
  Work reduce_scatter_v_async(ConstBuffer in, Buffer out, Counts counts,
                              const CallOptions& options) {
    return reduce_scatter_v_async(in, out, counts, ReduceOp::sum, options);
  }
  void send(ConstBuffer data, GroupRank to, const CallOptions& options) {
    send(data, to, 0, options);
  }
  void recv(Buffer data, GroupRank from, const CallOptions& options) {
    recv(data, from, 0, options);
  }
  GroupRank recv_any(Buffer data, const CallOptions& options) { return recv_any(data, 0, options); }
  Work isend(ConstBuffer data, GroupRank to, const CallOptions& options) {
    return isend(data, to, 0, options);
  }
  Work irecv(Buffer data, GroupRank from, const CallOptions& options) {
    return irecv(data, from, 0, options);
  }
  Work irecv_any(Buffer data, const CallOptions& options) { return irecv_any(data, 0, options); }

 private:
  friend class SharedMemory;
  std::shared_ptr<worker::Group> group_;
};

// What allocate_shared() gave. A handle: the memory lives until the last copy goes (on all ranks:
// the others' mappings of it stay valid).
class MUSTER_API SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(std::shared_ptr<void> owner, void* data, size_t bytes)
      : owner_(std::move(owner)), data_(data), bytes_(bytes) {}

  void* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }
  // As elements: bytes() / sizeof(T) of them.
  template <Element T>
  std::span<T> as() const {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// The group of all ranks. Throws not_initialized.
MUSTER_API ProcessGroup world();

// A group of these global ranks, in this order. Its members call it, all with the same ranks; no
// one else has to (who does gets a group with is_member() == false, at once). Groups of the same
// ranks may be made again and again; they are different groups. Blocks until all members are there;
// where one does not come it throws ErrorCode::timeout, and all other groups stay usable. Calls for
// the same ranks belong together by their number: a rank that missed one must make the call up (it
// throws at once) before the next of them.
MUSTER_API ProcessGroup new_group(std::span<const GlobalRank> ranks,
                                  const GroupOptions& options = {});
inline ProcessGroup new_group(std::initializer_list<GlobalRank> ranks,
                              const GroupOptions& options = {}) {
  return new_group(std::span<const GlobalRank>(ranks.begin(), ranks.size()), options);
}

inline P2POp P2POp::send(ConstBuffer data, GroupRank to, int tag) {
  return {Kind::send, const_cast<void*>(data.data), data.count, data.dtype, data.device, to, tag};
}

inline P2POp P2POp::recv(Buffer data, GroupRank from, int tag) {
  return {Kind::recv, data.data, data.count, data.dtype, data.device, from, tag};
}

}  // namespace muster

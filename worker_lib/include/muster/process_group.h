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
// The operations are those of MPI and torch.distributed, with the same meanings (MPI 4.0, chapters
// 3 and 6; the documentation of torch.distributed):
//
// - Operations are collective: every member of the group calls them, with the same kind of
//   operation, count, dtype, reduction and root, and in the same order. Ranks outside the group
//   take no part and are not waited for. Calls that should match but differ fail on all members
//   with ErrorCode::mismatch where the backend can tell, and with ErrorCode::timeout otherwise.
// - A synchronous call returns when its result is in place on this rank; except for barrier(), that
//   says nothing about other ranks. An *_async call returns at once; its buffers belong to the
//   operation until its Work is complete. The operations of a group, asynchronous ones included,
//   are performed in call order; point-to-point operations only per pair of ranks and tag.
// - Sizes are element counts. Below, `count` is the number of elements of the smaller buffer, and n
//   is size(). An operation on zero elements is performed and synchronises like any other, except
//   on GPUs, where NCCL skips it.
// - In place means in.data == out.data if the counts are equal. If they differ, the smaller buffer
//   is this rank's block of the larger one (like MPI_IN_PLACE), recognised by its address. Other
//   overlaps are refused.
// - Refused with ErrorCode::invalid_argument before anything is sent: wrong counts or dtypes, a
//   root or peer outside the group, sending to or receiving from oneself, a null pointer with a
//   count above 0, memory on a device for which the group has no backend, integer-only reductions
//   of floats. Refused with ErrorCode::not_member: every operation of a group that this rank is not
//   in. Disagreements between ranks are found during the exchange.
// - Every call blocks only until its deadline: CallOptions::timeout, else the group's. Then it
//   throws ErrorCode::timeout and names the ranks that hold up all others. To find them it queries,
//   for up to a second, the ranks that it waited for, then those that they wait for, in any group.
//   The death of a member, abort() and SIGTERM (see StopPolicy) end a call within a second.
//
// Threads: different threads may use different groups at the same time. Calls on one group from
// several threads are safe but are performed in an unspecified order, which other ranks cannot
// know: give each thread its own group. On GPU memory that is not enough: kernels of several groups
// on one GPU may wait for each other, so all ranks must start the operations of all their groups in
// the same order, for example from a single thread (NCCL's documentation, "Using multiple NCCL
// communicators concurrently"). A ProcessGroup is a handle; copies refer to the same group.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "muster/error.h"
#include "muster/muster.h"
#include "muster/types.h"
#include "muster/work.h"

// A call is recorded with its place in the program, the return address of its function, which is
// therefore never inlined.
#if defined(__GNUC__)
#define MUSTER_CALL [[gnu::noinline]]
#define MUSTER_CALLER __builtin_return_address(0)
#else
#define MUSTER_CALL
#define MUSTER_CALLER nullptr
#endif

namespace muster {

// Performs a group's operations.
enum class Backend : uint8_t {
  automatic = 0,  // cpu for host memory, and nccl for GPU memory where there is a GPU.
  cpu = 1,        // muster's own: shared memory between the ranks of a node, TCP between nodes.
  nccl = 2,       // NVIDIA's library, opened when first needed. GPU memory only.
  gloo = 3,       // Debian's libgloo, if muster was built with it. Host memory only.
};

constexpr const char* name_of(Backend backend) {
  return detail::name_in({"automatic", "cpu", "nccl", "gloo"}, backend);
}

struct CallOptions {
  // Replaces the group's time-out. Zero or less: already expired.
  std::optional<std::chrono::milliseconds> timeout = {};
  // A cudaStream_t, for GPU memory. Operations follow the work that is already on it, and later
  // work on it waits for them. Null is the legacy default stream.
  void* stream = nullptr;
};

struct GroupOptions {
  std::string name = {};  // Used in messages; empty: "group of ranks 0,2". At most 64 characters.
  // Limit for each operation; nullopt: the world's.
  std::optional<std::chrono::milliseconds> timeout = {};
  std::optional<Backend> backend = {};  // nullopt: the world's.
};

// One operation of a batch of sends and receives.
struct P2POp {
  enum class Kind : uint8_t { send, recv };

  // These only describe the operation; batch_isend_irecv() performs it.
  [[nodiscard]] static P2POp send(ConstBuffer data, GroupRank to, int tag = 0);
  [[nodiscard]] static P2POp recv(Buffer data, GroupRank from, int tag = 0);

  Kind kind;
  void* data;  // A send only reads it.
  size_t count;
  DType dtype;
  Device device;
  GroupRank peer;
  int tag;
};

// Element counts to or from each rank, by group rank: any contiguous range of size_t, or a braced
// list ({2, 0, 1}). A view, which is read only during the call that takes it.
class Counts {
 public:
  Counts() = default;
  Counts(std::initializer_list<size_t> counts) : counts_(counts.begin(), counts.size()) {}
  template <typename Range, std::enable_if_t<!std::is_same_v<std::decay_t<Range>, Counts> &&
                                                 std::is_convertible_v<Range, span<const size_t>>,
                                             int> = 0>
  Counts(Range&& range)  // NOLINT: converts on purpose.
      : counts_(std::forward<Range>(range)) {}

  operator span<const size_t>() const { return counts_; }  // NOLINT: converts on purpose.

 private:
  span<const size_t> counts_;
};

// The result of allocate_shared(). A handle: the memory lives until every rank has destroyed its
// last copy.
class SharedMemory {
 public:
  SharedMemory() = default;
  // Takes over a handle of muster.h.
  explicit SharedMemory(muster_shared_memory* handle)
      : owner_(handle, muster_shared_memory_free),
        data_(muster_shared_memory_data(handle)),
        bytes_(muster_shared_memory_bytes(handle)) {}

  void* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }
  // The memory as bytes() / sizeof(T) elements.
  template <typename T, std::enable_if_t<detail::is_element_v<T>, int> = 0>
  span<T> as() const {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  std::shared_ptr<muster_shared_memory> owner_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

namespace detail {

// An index below 0 is refused, not taken for host memory.
inline muster_buffer c_buffer(const void* data, size_t count, DType dtype, Device device) {
  const int gpu = device.index < 0 ? std::numeric_limits<int>::max() : device.index;
  return {const_cast<void*>(data), count, static_cast<int>(dtype),
          device.kind == Device::Kind::cuda ? gpu : -1};
}

inline muster_operation operation(muster_kind kind, ConstBuffer in, ConstBuffer out,
                                  GroupRank root = {}, ReduceOp op = ReduceOp::sum) {
  muster_operation made{};
  made.kind = kind;
  made.in = c_buffer(in.data, in.count, in.dtype, in.device);
  made.out = c_buffer(out.data, out.count, out.dtype, out.device);
  made.root = root.value;
  made.reduce_op = static_cast<int>(op);
  return made;
}

inline muster_operation with_counts(muster_operation made, span<const size_t> send_counts,
                                    span<const size_t> recv_counts) {
  made.is_v = 1;
  made.send_counts = send_counts.data();
  made.send_counts_length = send_counts.size();
  made.recv_counts = recv_counts.data();
  made.recv_counts_length = recv_counts.size();
  return made;
}

constexpr int kAnyRank = -1;

// A receive from a rank below 0 is refused, not one from any.
inline muster_operation message(muster_kind kind, ConstBuffer data, GroupRank peer, int tag) {
  muster_operation made = operation(kind, data, data, peer);
  if (kind == MUSTER_RECV && peer.value < 0) made.root = kAnyRank - 1;
  made.tag = tag;
  return made;
}

inline muster_operation from_any(Buffer data, int tag) {
  muster_operation made = message(MUSTER_RECV, data, GroupRank{}, tag);
  made.root = kAnyRank;
  return made;
}

inline muster_call_options c_options(const CallOptions& options, const void* site) {
  muster_call_options made MUSTER_CALL_OPTIONS;
  if (options.timeout) made.timeout_ms = milliseconds_from_now(*options.timeout);
  made.stream = options.stream;
  made.site = site;
  return made;
}

inline muster_group_options c_options(const GroupOptions& options, const void* site) {
  muster_group_options made MUSTER_GROUP_OPTIONS;
  made.site = site;
  if (!options.name.empty()) made.name = options.name.c_str();
  if (options.timeout) made.timeout_ms = milliseconds_from_now(*options.timeout);
  if (options.backend) made.backend = static_cast<int>(*options.backend);
  return made;
}

struct FreeBytes {
  void operator()(void* bytes) const { muster_free(bytes); }
};
using Bytes = std::unique_ptr<void, FreeBytes>;

}  // namespace detail

class ProcessGroup {
 public:
  // An empty handle: every method except valid() throws invalid_argument until a group from
  // world(), new_group() or split() is assigned.
  ProcessGroup() = default;
  // Takes over a handle of muster.h.
  explicit ProcessGroup(muster_group* handle) noexcept : handle_(handle) {}

  bool valid() const noexcept { return handle_.get() != nullptr; }
  // For the functions of muster.h. Stays this object's.
  muster_group* handle() const noexcept { return handle_.get(); }

  // ---- membership. These never block.

  bool is_member() const { return muster_group_is_member(checked("is_member")) == 1; }
  GroupRank rank() const {  // Throws not_member.
    return GroupRank{detail::not_negative(muster_group_rank(checked("rank")))};
  }
  int size() const { return detail::not_negative(muster_group_size(checked("size"))); }
  // The members' ranks in the job, by group rank.
  std::vector<GlobalRank> ranks() const {
    std::vector<int> numbers(muster_group_ranks(checked("ranks"), nullptr, 0));
    muster_group_ranks(handle(), numbers.data(), numbers.size());
    std::vector<GlobalRank> all;
    for (const int number : numbers)
      all.push_back(GlobalRank{number});
    return all;
  }
  // These throw invalid_argument for a rank that does not exist or is not in the group.
  GlobalRank global_rank(GroupRank rank) const {
    return GlobalRank{
        detail::not_negative(muster_group_global_rank(checked("global_rank"), rank.value))};
  }
  GroupRank group_rank(GlobalRank rank) const {
    return GroupRank{
        detail::not_negative(muster_group_from_global_rank(checked("group_rank"), rank.value))};
  }
  std::string name() const { return muster_group_name(checked("name")); }
  std::chrono::milliseconds timeout() const {
    return std::chrono::milliseconds(muster_group_timeout_ms(checked("timeout")));
  }
  // The backend for host memory and for GPU memory (nullopt: refused).
  std::optional<Backend> cpu_backend() const {
    return backend_of(muster_group_backend(checked("cpu_backend"), 0));
  }
  std::optional<Backend> cuda_backend() const {
    return backend_of(muster_group_backend(checked("cuda_backend"), 1));
  }

  // ---- one to all and all to one
  //
  // In every operation an `op` or `tag` before the options may be left out:
  // all_reduce(data, {.timeout = 5s}).

  // Copies `count` elements from `root` to all.
  MUSTER_CALL void broadcast(Buffer data, GroupRank root, const CallOptions& options = {}) {
    perform("broadcast", detail::operation(MUSTER_BROADCAST, data, data, root), options,
            MUSTER_CALLER);
  }
  MUSTER_CALL Work broadcast_async(Buffer data, GroupRank root, const CallOptions& options = {}) {
    return begin("broadcast", detail::operation(MUSTER_BROADCAST, data, data, root), options,
                 MUSTER_CALLER);
  }

  // `out` on `root` becomes the element-wise reduction of every rank's `in`: `count` elements each.
  // On other ranks `out` may be empty and is not touched.
  MUSTER_CALL void reduce(ConstBuffer in, Buffer out, GroupRank root, ReduceOp op = ReduceOp::sum,
                          const CallOptions& options = {}) {
    perform("reduce", detail::operation(MUSTER_REDUCE, in, out, root, op), options, MUSTER_CALLER);
  }
  // Reduces in place: `data` on `root` becomes the result; on other ranks it keeps its values.
  MUSTER_CALL void reduce(Buffer data, GroupRank root, ReduceOp op = ReduceOp::sum,
                          const CallOptions& options = {}) {
    perform("reduce", detail::operation(MUSTER_REDUCE, data, data, root, op), options,
            MUSTER_CALLER);
  }
  MUSTER_CALL Work reduce_async(ConstBuffer in, Buffer out, GroupRank root,
                                ReduceOp op = ReduceOp::sum, const CallOptions& options = {}) {
    return begin("reduce", detail::operation(MUSTER_REDUCE, in, out, root, op), options,
                 MUSTER_CALLER);
  }
  MUSTER_CALL Work reduce_async(Buffer data, GroupRank root, ReduceOp op = ReduceOp::sum,
                                const CallOptions& options = {}) {
    return begin("reduce", detail::operation(MUSTER_REDUCE, data, data, root, op), options,
                 MUSTER_CALLER);
  }

  // `out` on `root` (n * count elements) becomes the `in` of all ranks, by group rank. On other
  // ranks `out` may be empty and is not touched.
  MUSTER_CALL void gather(ConstBuffer in, Buffer out, GroupRank root,
                          const CallOptions& options = {}) {
    perform("gather", detail::operation(MUSTER_GATHER, in, out, root), options, MUSTER_CALLER);
  }
  MUSTER_CALL Work gather_async(ConstBuffer in, Buffer out, GroupRank root,
                                const CallOptions& options = {}) {
    return begin("gather", detail::operation(MUSTER_GATHER, in, out, root), options, MUSTER_CALLER);
  }
  // Takes counts[r] elements from rank r. Only the root needs `counts`: elsewhere it may be empty.
  //
  // If a rank sends a different number of elements than the receiver expects, here and in the other
  // _v calls that have a root or two lists, the receiving rank throws ErrorCode::mismatch. The
  // sender may return normally, but the group has failed there too: its next call throws.
  MUSTER_CALL void gather_v(ConstBuffer in, Buffer out, Counts counts, GroupRank root,
                            const CallOptions& options = {}) {
    perform("gather_v",
            detail::with_counts(detail::operation(MUSTER_GATHER, in, out, root), {}, counts),
            options, MUSTER_CALLER);
  }
  MUSTER_CALL Work gather_v_async(ConstBuffer in, Buffer out, Counts counts, GroupRank root,
                                  const CallOptions& options = {}) {
    return begin("gather_v",
                 detail::with_counts(detail::operation(MUSTER_GATHER, in, out, root), {}, counts),
                 options, MUSTER_CALLER);
  }

  // `out` of rank r (count elements) becomes block r of the root's `in` (n * count elements). On
  // other ranks `in` may be empty.
  MUSTER_CALL void scatter(ConstBuffer in, Buffer out, GroupRank root,
                           const CallOptions& options = {}) {
    perform("scatter", detail::operation(MUSTER_SCATTER, in, out, root), options, MUSTER_CALLER);
  }
  MUSTER_CALL Work scatter_async(ConstBuffer in, Buffer out, GroupRank root,
                                 const CallOptions& options = {}) {
    return begin("scatter", detail::operation(MUSTER_SCATTER, in, out, root), options,
                 MUSTER_CALLER);
  }
  // Sends counts[r] elements to rank r. Only the root needs `counts`: elsewhere it may be empty.
  MUSTER_CALL void scatter_v(ConstBuffer in, Counts counts, Buffer out, GroupRank root,
                             const CallOptions& options = {}) {
    perform("scatter_v",
            detail::with_counts(detail::operation(MUSTER_SCATTER, in, out, root), counts, {}),
            options, MUSTER_CALLER);
  }
  MUSTER_CALL Work scatter_v_async(ConstBuffer in, Counts counts, Buffer out, GroupRank root,
                                   const CallOptions& options = {}) {
    return begin("scatter_v",
                 detail::with_counts(detail::operation(MUSTER_SCATTER, in, out, root), counts, {}),
                 options, MUSTER_CALLER);
  }

  // ---- all to all

  // `out` on all ranks becomes the reduction of all `in`: `count` elements each. The results are
  // bitwise equal on all ranks and across runs with the same group, count and placement.
  MUSTER_CALL void all_reduce(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum,
                              const CallOptions& options = {}) {
    perform("all_reduce", detail::operation(MUSTER_ALL_REDUCE, in, out, {}, op), options,
            MUSTER_CALLER);
  }
  MUSTER_CALL void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum,
                              const CallOptions& options = {}) {
    perform("all_reduce", detail::operation(MUSTER_ALL_REDUCE, data, data, {}, op), options,
            MUSTER_CALLER);
  }
  MUSTER_CALL Work all_reduce_async(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum,
                                    const CallOptions& options = {}) {
    return begin("all_reduce", detail::operation(MUSTER_ALL_REDUCE, in, out, {}, op), options,
                 MUSTER_CALLER);
  }
  MUSTER_CALL Work all_reduce_async(Buffer data, ReduceOp op = ReduceOp::sum,
                                    const CallOptions& options = {}) {
    return begin("all_reduce", detail::operation(MUSTER_ALL_REDUCE, data, data, {}, op), options,
                 MUSTER_CALLER);
  }

  // `out` (n * count elements) on all ranks becomes the `in` (count each) of all, by group rank.
  MUSTER_CALL void all_gather(ConstBuffer in, Buffer out, const CallOptions& options = {}) {
    perform("all_gather", detail::operation(MUSTER_ALL_GATHER, in, out), options, MUSTER_CALLER);
  }
  MUSTER_CALL Work all_gather_async(ConstBuffer in, Buffer out, const CallOptions& options = {}) {
    return begin("all_gather", detail::operation(MUSTER_ALL_GATHER, in, out), options,
                 MUSTER_CALLER);
  }
  // Takes counts[r] elements from rank r. All ranks pass the same `counts`.
  MUSTER_CALL void all_gather_v(ConstBuffer in, Buffer out, Counts counts,
                                const CallOptions& options = {}) {
    perform("all_gather_v",
            detail::with_counts(detail::operation(MUSTER_ALL_GATHER, in, out), {}, counts), options,
            MUSTER_CALLER);
  }
  MUSTER_CALL Work all_gather_v_async(ConstBuffer in, Buffer out, Counts counts,
                                      const CallOptions& options = {}) {
    return begin("all_gather_v",
                 detail::with_counts(detail::operation(MUSTER_ALL_GATHER, in, out), {}, counts),
                 options, MUSTER_CALLER);
  }

  // `out` of rank r (count elements) becomes block r of the reduction of every `in` (n * count).
  MUSTER_CALL void reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum,
                                  const CallOptions& options = {}) {
    perform("reduce_scatter", detail::operation(MUSTER_REDUCE_SCATTER, in, out, {}, op), options,
            MUSTER_CALLER);
  }
  MUSTER_CALL Work reduce_scatter_async(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::sum,
                                        const CallOptions& options = {}) {
    return begin("reduce_scatter", detail::operation(MUSTER_REDUCE_SCATTER, in, out, {}, op),
                 options, MUSTER_CALLER);
  }
  // Puts counts[r] elements into block r. All ranks pass the same `counts`.
  MUSTER_CALL void reduce_scatter_v(ConstBuffer in, Buffer out, Counts counts,
                                    ReduceOp op = ReduceOp::sum, const CallOptions& options = {}) {
    perform(
        "reduce_scatter_v",
        detail::with_counts(detail::operation(MUSTER_REDUCE_SCATTER, in, out, {}, op), counts, {}),
        options, MUSTER_CALLER);
  }
  MUSTER_CALL Work reduce_scatter_v_async(ConstBuffer in, Buffer out, Counts counts,
                                          ReduceOp op = ReduceOp::sum,
                                          const CallOptions& options = {}) {
    return begin(
        "reduce_scatter_v",
        detail::with_counts(detail::operation(MUSTER_REDUCE_SCATTER, in, out, {}, op), counts, {}),
        options, MUSTER_CALLER);
  }

  // Block s of rank r's `out` becomes block r of rank s's `in`; n * count elements each; not in
  // place.
  MUSTER_CALL void all_to_all(ConstBuffer in, Buffer out, const CallOptions& options = {}) {
    perform("all_to_all", detail::operation(MUSTER_ALL_TO_ALL, in, out), options, MUSTER_CALLER);
  }
  MUSTER_CALL Work all_to_all_async(ConstBuffer in, Buffer out, const CallOptions& options = {}) {
    return begin("all_to_all", detail::operation(MUSTER_ALL_TO_ALL, in, out), options,
                 MUSTER_CALLER);
  }
  // Sends send_counts[r] elements to rank r and receives recv_counts[r] from it; rank r's
  // recv_counts[s] must equal rank s's send_counts[r]. See gather_v() for what happens otherwise.
  MUSTER_CALL void all_to_all_v(ConstBuffer in, Counts send_counts, Buffer out, Counts recv_counts,
                                const CallOptions& options = {}) {
    perform("all_to_all_v",
            detail::with_counts(detail::operation(MUSTER_ALL_TO_ALL, in, out), send_counts,
                                recv_counts),
            options, MUSTER_CALLER);
  }
  MUSTER_CALL Work all_to_all_v_async(ConstBuffer in, Counts send_counts, Buffer out,
                                      Counts recv_counts, const CallOptions& options = {}) {
    return begin("all_to_all_v",
                 detail::with_counts(detail::operation(MUSTER_ALL_TO_ALL, in, out), send_counts,
                                     recv_counts),
                 options, MUSTER_CALLER);
  }

  // ---- barriers

  // Returns when every member has called it.
  MUSTER_CALL void barrier(const CallOptions& options = {}) {
    perform("barrier", detail::operation(MUSTER_BARRIER, {}, {}), options, MUSTER_CALLER);
  }
  MUSTER_CALL Work barrier_async(const CallOptions& options = {}) {
    return begin("barrier", detail::operation(MUSTER_BARRIER, {}, {}), options, MUSTER_CALLER);
  }
  // Works like barrier(), but finds out which members are missing: when the deadline of a member
  // that has called it passes, every rank that has called it throws, naming all missing ranks
  // (`wait_all_ranks`) or only the first. It goes through the store, one message per rank: slower
  // than barrier(), but it works when the backend's own connections do not.
  //
  // The group stays usable after it throws. But the members' calls are matched by number, so the
  // next call of a rank that missed one is taken for the one it missed. Before its next barrier,
  // such a rank makes one more call, which throws at once, saying that it arrived too late.
  MUSTER_CALL void monitored_barrier(const CallOptions& options = {}, bool wait_all_ranks = true) {
    const muster_call_options given = detail::c_options(options, MUSTER_CALLER);
    detail::throw_unless_ok(
        muster_monitored_barrier(checked("monitored_barrier"), wait_all_ranks ? 1 : 0, &given));
  }

  // ---- point to point: from one rank to another, never to oneself.
  //
  // Both ends must give the same count and dtype. `tag` (>= 0) distinguishes messages between the
  // same pair of ranks. On NCCL, which has neither tags nor receives from any source, a tag other
  // than 0 and recv_any() are refused.
  //
  // A receive returns when the data is there. A send may return before the receive or wait for it,
  // depending on how much the backend buffers, so do not rely on either. The cpu backend buffers
  // for each pair of ranks just under 256 KiB on one node (less in groups of more than 8, down to
  // 16 KiB), and what the kernel's socket buffers hold between nodes. Two ranks that both call
  // send() and then recv() block each other until their deadlines once messages are large. To
  // exchange, use batch_isend_irecv(); on host memory isend(), recv(), then wait() works as well.
  // On GPU memory it does not: there the operations of a group, messages included, run in call
  // order, so two ranks that both call isend() first wait for each other, as do a receive before a
  // collective and its send after it. The first message between two ranks also blocks the caller
  // there until they are connected.

  MUSTER_CALL void send(ConstBuffer data, GroupRank to, int tag = 0,
                        const CallOptions& options = {}) {
    perform("send", detail::message(MUSTER_SEND, data, to, tag), options, MUSTER_CALLER);
  }
  MUSTER_CALL void recv(Buffer data, GroupRank from, int tag = 0, const CallOptions& options = {}) {
    perform("recv", detail::message(MUSTER_RECV, data, from, tag), options, MUSTER_CALLER);
  }
  // Receives the first message with that tag from any rank; returns the sender.
  MUSTER_CALL GroupRank recv_any(Buffer data, int tag = 0, const CallOptions& options = {}) {
    return GroupRank{perform("recv", detail::from_any(data, tag), options, MUSTER_CALLER)};
  }
  MUSTER_CALL Work isend(ConstBuffer data, GroupRank to, int tag = 0,
                         const CallOptions& options = {}) {
    return begin("send", detail::message(MUSTER_SEND, data, to, tag), options, MUSTER_CALLER);
  }
  MUSTER_CALL Work irecv(Buffer data, GroupRank from, int tag = 0,
                         const CallOptions& options = {}) {
    return begin("recv", detail::message(MUSTER_RECV, data, from, tag), options, MUSTER_CALLER);
  }
  MUSTER_CALL Work irecv_any(Buffer data, int tag = 0, const CallOptions& options = {}) {
    return begin("recv", detail::from_any(data, tag), options, MUSTER_CALLER);
  }
  // Performs all at the same time, so that no order of sends and receives can deadlock. Returns one
  // Work for each, in the order of `ops`.
  [[nodiscard]] MUSTER_CALL std::vector<Work> batch_isend_irecv(span<const P2POp> ops,
                                                                const CallOptions& options = {}) {
    const muster_call_options given = detail::c_options(options, MUSTER_CALLER);
    std::vector<muster_operation> messages;
    for (const P2POp& op : ops) {
      messages.push_back(detail::message(op.kind == P2POp::Kind::send ? MUSTER_SEND : MUSTER_RECV,
                                         {op.data, op.count, op.dtype, op.device}, op.peer,
                                         op.tag));
    }
    std::vector<muster_work*> handles(ops.size());
    std::vector<Work> works;
    works.reserve(ops.size());
    detail::throw_unless_ok(muster_begin_messages(checked("batch_isend_irecv"), messages.data(),
                                                  messages.size(), &given, handles.data()));
    for (muster_work* const handle : handles)
      works.emplace_back(handle);
    return works;
  }
  [[nodiscard]] std::vector<Work> batch_isend_irecv(std::initializer_list<P2POp> ops,
                                                    const CallOptions& options = {}) {
    return batch_isend_irecv(span<const P2POp>(ops.begin(), ops.size()), options);
  }

  // ---- byte strings of any length, which may differ between ranks (host memory)

  MUSTER_CALL void broadcast_bytes(std::string& bytes, GroupRank root,
                                   const CallOptions& options = {}) {
    const muster_call_options given = detail::c_options(options, MUSTER_CALLER);
    muster_group* const group = checked("broadcast_bytes");
    const bool is_root = is_member() && rank() == root;
    void* received = nullptr;
    size_t length = 0;
    detail::throw_unless_ok(muster_broadcast_bytes(group, bytes.data(), bytes.size(), root.value,
                                                   is_root ? nullptr : &received,
                                                   is_root ? nullptr : &length, &given));
    const detail::Bytes owner(received);
    if (!is_root) bytes.assign(static_cast<const char*>(received), length);
  }
  // The strings of all ranks, by group rank.
  MUSTER_CALL std::vector<std::string> all_gather_bytes(std::string_view bytes,
                                                        const CallOptions& options = {}) {
    const muster_call_options given = detail::c_options(options, MUSTER_CALLER);
    muster_group* const group = checked("all_gather_bytes");
    std::vector<size_t> lengths(static_cast<size_t>(size()));
    void* received = nullptr;
    detail::throw_unless_ok(muster_all_gather_bytes(group, bytes.data(), bytes.size(), &received,
                                                    lengths.data(), &given));
    const detail::Bytes owner(received);
    const char* next = static_cast<const char*>(received);
    std::vector<std::string> texts;
    for (const size_t length : lengths) {
      texts.emplace_back(next, length);
      next += length;
    }
    return texts;
  }

  // ---- memory that all members on this node share

  // Collective: every member asks for the same number of `bytes` and gets its own memory, zeroed
  // and page-aligned, which the other members on its node can access. Operations on it (on any
  // part, at the same offset on all ranks) need no copies. Members on other nodes get ordinary
  // memory. Throws invalid_argument above 2^43 bytes; the group stays usable. Throws
  // ErrorCode::system if the kernel refuses; the group then fails. Does not use /dev/shm.
  MUSTER_CALL SharedMemory allocate_shared(size_t bytes, const CallOptions& options = {}) {
    const muster_call_options given = detail::c_options(options, MUSTER_CALLER);
    muster_shared_memory* memory = nullptr;
    detail::throw_unless_ok(
        muster_allocate_shared(checked("allocate_shared"), bytes, &given, &memory));
    return SharedMemory(memory);
  }

  // ---- other groups

  // Collective over this group: members that pass the same `color` (>= 0) form a group, ordered by
  // `key`, then by rank here. A rank with color < 0 gets a group with is_member() == false.
  MUSTER_CALL ProcessGroup split(int color, int key = 0, const GroupOptions& options = {}) {
    const muster_group_options given = detail::c_options(options, MUSTER_CALLER);
    muster_group* made = nullptr;
    detail::throw_unless_ok(muster_split(checked("split"), color, key, &given, &made));
    return ProcessGroup(made);
  }

  // ---- after a death, which fails every call of the group on all members (MPI's users know this
  // way on as ULFM: MPI_Comm_shrink() and MPI_Comm_agree())

  // Returns a group of the members that are there, in this group's order and with its name, if
  // `options` give none. All of them call it, once their calls have failed; it needs neither a
  // launcher nor the job's store. One that dies meanwhile is left out, too. Returns on all or fails
  // on all, but for those that meet the deadline. In the new group roots and peers are its ranks,
  // from 0 on; messages and failed_ranks() name its members by their ranks in the job, as here. It
  // is left with this group. world() stays what it was.
  //
  // What was in flight is lost: some members may have completed an operation that failed on others,
  // so agree on the step from which to go on. Throws timeout, with the members that live and do not
  // call it; not_initialized, not_member; peer_failed if the others took this rank for dead.
  MUSTER_CALL ProcessGroup shrink(const GroupOptions& options = {}) {
    const muster_group_options given = detail::c_options(options, MUSTER_CALLER);
    muster_group* made = nullptr;
    detail::throw_unless_ok(muster_group_shrink(checked("shrink"), &given, &made));
    return ProcessGroup(made);
  }

  // Returns the bits that are set in the `value` of all members that are there: the same on all
  // that get an answer, whatever dies meanwhile, and also if the group has failed. All of them call
  // it, equally often. Throws as shrink() does; after a timeout, at every later call as well.
  MUSTER_CALL std::uint64_t agree(std::uint64_t value, const CallOptions& options = {}) {
    const muster_call_options given = detail::c_options(options, MUSTER_CALLER);
    std::uint64_t agreed = 0;
    detail::throw_unless_ok(muster_group_agree(checked("agree"), value, &agreed, &given));
    return agreed;
  }

  // Ends every blocked and future call of this group on all its ranks with ErrorCode::aborted and
  // `reason`. Returns at once; other ranks know within a second. Any thread, any number of times.
  void abort(std::string_view reason = "abort() was called") {
    detail::throw_unless_ok(muster_group_abort(checked("abort"), std::string(reason).c_str()));
  }

  // Returns the group's failure; nullopt if it has not failed.
  std::optional<DistributedError> failure() const {
    return detail::failure_of(muster_group_failure(checked("failure")));
  }

  // ---- the calls above with options, but without the `op` or `tag` that precedes them

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
  muster_group* checked(const char* call) const {
    if (!valid()) detail::throw_empty(call, "ProcessGroup", "world(), new_group() or split()");
    return handle_.get();
  }

  static std::optional<Backend> backend_of(int number) {
    return number < 0 ? std::nullopt : std::optional(static_cast<Backend>(number));
  }

  // Returns the sender of a message.
  int perform(const char* call, const muster_operation& operation, const CallOptions& options,
              const void* site) const {
    const muster_call_options given = detail::c_options(options, site);
    int source = -1;
    detail::throw_unless_ok(muster_perform(checked(call), &operation, &given, nullptr, &source));
    return source;
  }

  Work begin(const char* call, const muster_operation& operation, const CallOptions& options,
             const void* site) const {
    const muster_call_options given = detail::c_options(options, site);
    muster_work* work = nullptr;
    detail::throw_unless_ok(muster_perform(checked(call), &operation, &given, &work, nullptr));
    return Work(work);
  }

  detail::Handle<muster_group, muster_group_copy, muster_group_free> handle_;
};

// Returns the group of all ranks. Throws not_initialized.
inline ProcessGroup world() {
  muster_group* handle = nullptr;
  detail::throw_unless_ok(muster_world(&handle));
  return ProcessGroup(handle);
}

// Makes a group of these ranks of the job, in this order. All members call it with the same ranks;
// other ranks need not (one that does gets, at once, a group with is_member() == false). Groups of
// the same ranks may be made repeatedly; each is a different group. Blocks until all members have
// called it; if one does not, throws ErrorCode::timeout, and all other groups stay usable. Calls
// for the same ranks are matched by number. Before its next call for them, a rank that missed one
// makes one more, which throws at once.
MUSTER_CALL inline ProcessGroup new_group(span<const GlobalRank> ranks,
                                          const GroupOptions& options = {}) {
  std::vector<int> numbers;
  for (const GlobalRank rank : ranks)
    numbers.push_back(rank.value);
  const muster_group_options given = detail::c_options(options, MUSTER_CALLER);
  muster_group* made = nullptr;
  detail::throw_unless_ok(muster_new_group(numbers.data(), numbers.size(), &given, &made));
  return ProcessGroup(made);
}
inline ProcessGroup new_group(std::initializer_list<GlobalRank> ranks,
                              const GroupOptions& options = {}) {
  return new_group(span<const GlobalRank>(ranks.begin(), ranks.size()), options);
}

inline P2POp P2POp::send(ConstBuffer data, GroupRank to, int tag) {
  return {Kind::send, const_cast<void*>(data.data), data.count, data.dtype, data.device, to, tag};
}

inline P2POp P2POp::recv(Buffer data, GroupRank from, int tag) {
  return {Kind::recv, data.data, data.count, data.dtype, data.device, from, tag};
}

}  // namespace muster

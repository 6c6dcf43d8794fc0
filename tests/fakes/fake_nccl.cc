// NCCL's functions of the fake in fake_gpu.h. A communicator performs its operations in call order,
// whatever their streams, as NCCL does; those of one group at the same time.
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "muster/types.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_gpu.h"
#include "worker_lib/backends/nccl/nccl_library.h"
#include "worker_lib/reduction/reduce_kernels.h"

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace muster::fake {

namespace {

using worker::NcclConfig;
using worker::NcclResult;

using Bytes = std::vector<std::byte>;

// The data that the ranks of one operation exchange.
struct Table {
  std::map<int, Bytes> brought;
  int taken = 0;
};

// The ranks of one communicator, all in this process.
struct Clique {
  explicit Clique(int ranks) : size(ranks) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  std::map<std::string, Table> tables;
  std::map<int, std::shared_ptr<Clique>> splits;
};

struct Call {
  enum class Kind { all_reduce, broadcast, reduce, all_gather, reduce_scatter, send, recv };
  Kind kind;
  const void* in;
  void* out;
  size_t count;
  int type;
  int op;
  int peer;  // The root, or the peer of a message.
  std::string key = {};
};

struct Communicator {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int gpu = 0;
  bool blocking = true;
  std::atomic<bool> is_alive{true};
  std::atomic<bool> is_stopped{false};
  std::atomic<bool> is_revoked{false};
  // Guarded by the clique's mutex.
  uint64_t issued = 0;
  uint64_t completed = 0;
  uint64_t collectives = 0;
  std::map<int, uint64_t> sent;
  std::map<int, uint64_t> received;
  int splits = 0;
  Communicator* child = nullptr;
  void** child_goes_to = nullptr;
};

struct Group {
  int depth = 0;
  Communicator* communicator = nullptr;
  void* stream = nullptr;
  std::vector<Call> calls;
};

Group& group() {
  static thread_local Group open;
  return open;
}

NcclResult misuse(NcclResult result = NcclResult::invalid_argument) {
  fake_gpu()->misuses += 1;
  return result;
}

std::mutex& cliques_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

std::shared_ptr<Clique> clique_of(uint64_t id, int ranks) {
  static auto* const cliques = new std::map<uint64_t, std::shared_ptr<Clique>>;
  const std::lock_guard lock(cliques_mutex());
  std::shared_ptr<Clique>& clique = (*cliques)[id];
  if (!clique) clique = std::make_shared<Clique>(ranks);
  return clique;
}

DType dtype_of_type(int type) {
  constexpr std::array<DType, 10> kTypes{
      DType::int8,  DType::uint8,   DType::int32,   DType::int32,   DType::int64,
      DType::int64, DType::float16, DType::float32, DType::float64, DType::bfloat16};
  return kTypes[static_cast<size_t>(type)];
}

ReduceOp reduce_of_op(int op) {
  constexpr std::array<ReduceOp, 5> kOps{ReduceOp::sum, ReduceOp::product, ReduceOp::max,
                                         ReduceOp::min, ReduceOp::average};
  return kOps[static_cast<size_t>(op)];
}

size_t width_of(int type) {
  constexpr std::array<size_t, 10> kWidths{1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kWidths[static_cast<size_t>(type)];
}

const char* name_of(Call::Kind kind) {
  constexpr std::array<const char*, 7> kNames{"all_reduce",     "broadcast", "reduce", "all_gather",
                                              "reduce_scatter", "send",      "recv"};
  return kNames[static_cast<size_t>(kind)];
}

// ---- work of a stream

class Performance {
 public:
  Performance(Communicator* communicator, std::vector<Call> calls, uint64_t ticket)
      : comm_(communicator),
        clique_(communicator->clique),
        calls_(std::move(calls)),
        ticket_(ticket) {}

  void operator()() {
    std::unique_lock lock(clique_->mutex);
    if (wait(lock, [&] { return comm_->completed == ticket_; })) {
      for (const Call& call : calls_)
        bring(call);
      clique_->changed.notify_all();
      for (const Call& call : calls_)
        if (!take(lock, call)) break;
    }
    clique_->changed.wait(lock, [&] { return comm_->completed == ticket_; });
    comm_->completed += 1;
    clique_->changed.notify_all();
  }

 private:
  template <typename Holds>
  bool wait(std::unique_lock<std::mutex>& lock, const Holds& holds) {
    clique_->changed.wait(lock, [&] { return comm_->is_stopped || holds(); });
    return !comm_->is_stopped;
  }

  void bring(const Call& call) {
    size_t bytes = call.count * width_of(call.type);
    if (call.kind == Call::Kind::recv) return;
    if (call.kind == Call::Kind::reduce_scatter) bytes *= static_cast<size_t>(clique_->size);
    if (call.kind == Call::Kind::broadcast && comm_->rank != call.peer) bytes = 0;
    Bytes copy(bytes);
    if (bytes > 0) std::memcpy(copy.data(), call.in, bytes);
    clique_->tables[call.key].brought[comm_->rank] = std::move(copy);
  }

  bool take(std::unique_lock<std::mutex>& lock, const Call& call) {
    if (call.kind == Call::Kind::send) return true;
    const int expected = call.kind == Call::Kind::recv ? 1 : clique_->size;
    Table& table = clique_->tables[call.key];
    if (!wait(lock, [&] { return static_cast<int>(table.brought.size()) == expected; }))
      return false;
    take_from(table, call);
    table.taken += 1;
    if (table.taken == expected) clique_->tables.erase(call.key);
    return true;
  }

  void take_from(const Table& table, const Call& call) const {
    const size_t bytes = call.count * width_of(call.type);
    auto* const out = static_cast<std::byte*>(call.out);
    switch (call.kind) {
      case Call::Kind::all_reduce:
        return reduce(table, call, 0);
      case Call::Kind::reduce:
        if (comm_->rank == call.peer) reduce(table, call, 0);
        return;
      case Call::Kind::reduce_scatter:
        return reduce(table, call, bytes * static_cast<size_t>(comm_->rank));
      case Call::Kind::broadcast:
        return copy(out, table.brought.at(call.peer));
      case Call::Kind::recv:
        return copy(out, table.brought.at(call.peer));
      case Call::Kind::all_gather:
        for (const auto& [rank, data] : table.brought)
          copy(out + bytes * static_cast<size_t>(rank), data);
        return;
      case Call::Kind::send:
        return;
    }
  }

  static void copy(std::byte* to, const Bytes& from) {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }

  static void reduce(const Table& table, const Call& call, size_t offset) {
    // NCCL before 2.29.7 leaves out the last elements of an average over one rank.
    const bool is_cut =
        table.brought.size() == 1 && reduce_of_op(call.op) == ReduceOp::average && call.count > 0;
    const size_t count = is_cut ? call.count - 1 : call.count;
    if (count == 0) return;
    std::vector<const std::byte*> inputs;
    for (const auto& [rank, data] : table.brought)
      inputs.push_back(data.data() + offset);
    worker::reduce_buffers(dtype_of_type(call.type), reduce_of_op(call.op),
                           static_cast<std::byte*>(call.out), inputs.data(), inputs.size(), count);
  }

  Communicator* comm_;
  std::shared_ptr<Clique> clique_;
  std::vector<Call> calls_;
  uint64_t ticket_;
};

// ---- putting calls on a stream

// Identifies a collective by its number, and a message by its ends and its number between them.
void name_call(Communicator& comm, Call& call) {
  const auto message = [](int from, int to, uint64_t number) {
    return std::to_string(from) + ">" + std::to_string(to) + "#" + std::to_string(number);
  };
  if (call.kind == Call::Kind::send)
    call.key = message(comm.rank, call.peer, comm.sent[call.peer]++);
  else if (call.kind == Call::Kind::recv)
    call.key = message(call.peer, comm.rank, comm.received[call.peer]++);
  else
    call.key = std::to_string(comm.collectives++);
}

NcclResult launch(Communicator* comm, void* stream, std::vector<Call> calls) {
  FakeStream* const on = stream_of(stream);
  if (on == nullptr || current_gpu() != comm->gpu) return misuse(NcclResult::invalid_usage);
  const std::lock_guard lock(comm->clique->mutex);
  for (Call& call : calls)
    name_call(*comm, call);
  on->put(Performance(comm, std::move(calls), comm->issued++));
  return NcclResult::success;
}

NcclResult put(void* handle, void* stream, Call call) {
  auto* const comm = static_cast<Communicator*>(handle);
  if (comm == nullptr || !comm->is_alive) return misuse();
  if (!comm->blocking)
    return misuse(NcclResult::invalid_usage);  // In NCCL each such call costs a thread.
  if (comm->is_revoked) return NcclResult::invalid_usage;
  if (call.peer < 0 || call.peer >= comm->clique->size || call.type > 9) return misuse();
  const bool reduces = call.kind == Call::Kind::all_reduce || call.kind == Call::Kind::reduce ||
                       call.kind == Call::Kind::reduce_scatter;
  fake_gpu()->note(std::string(name_of(call.kind)) + " " + std::to_string(call.count) + " type " +
                   std::to_string(call.type) + (reduces ? " op " + std::to_string(call.op) : "") +
                   (stream == nullptr ? " on the default stream" : " on a made stream"));
  Group& open = group();
  if (open.depth == 0) return launch(comm, stream, {std::move(call)});
  if (!open.calls.empty() && (open.communicator != comm || open.stream != stream)) return misuse();
  open.communicator = comm;
  open.stream = stream;
  open.calls.push_back(std::move(call));
  return NcclResult::success;
}

void wait_until_idle(Communicator& comm) {
  std::unique_lock lock(comm.clique->mutex);
  comm.clique->changed.wait(lock, [&] { return comm.completed == comm.issued; });
}

void stop(Communicator& comm) {
  {
    const std::lock_guard lock(comm.clique->mutex);
    comm.is_stopped = true;
  }
  comm.clique->changed.notify_all();
  wait_until_idle(comm);
}

// Communicators stay in memory, so that a call on a destroyed one is detected and does not crash.
Communicator* make(std::shared_ptr<Clique> clique, int rank, const NcclConfig& config) {
  auto* const comm = new Communicator;
  comm->clique = std::move(clique);
  comm->rank = rank;
  comm->gpu = current_gpu();
  comm->blocking = config.blocking != 0;
  fake_gpu()->communicators += 1;
  return comm;
}

// Keeps every communicator reachable, for leak checkers.
void remember(Communicator* comm) {
  static auto* const all = new std::vector<Communicator*>;
  const std::lock_guard lock(cliques_mutex());
  all->push_back(comm);
}

NcclResult progress_of(Communicator& comm) {
  const std::lock_guard lock(comm.clique->mutex);
  if (fake_gpu()->nobody_joins || comm.clique->joined < comm.clique->size)
    return NcclResult::in_progress;
  if (const int result = fake_gpu()->init_result) return static_cast<NcclResult>(result);
  if (comm.child == nullptr) return NcclResult::success;
  const std::lock_guard child(comm.child->clique->mutex);
  if (fake_gpu()->split_hangs || comm.child->clique->joined < comm.child->clique->size)
    return NcclResult::in_progress;
  std::atomic_ref<void*>(*comm.child_goes_to).store(std::exchange(comm.child, nullptr));
  return NcclResult::success;
}

}  // namespace
}  // namespace muster::fake

using namespace muster::fake;
using muster::worker::NcclConfig;
using muster::worker::NcclReduction;
using muster::worker::NcclResult;
using muster::worker::NcclType;
using muster::worker::NcclUniqueId;

FAKE_API NcclResult ncclGetVersion(int* version) {
  *version = fake_gpu()->nccl_version;
  return NcclResult::success;
}

FAKE_API const char* ncclGetErrorString(NcclResult result) {
  switch (static_cast<int>(result)) {
    case 0:
      return "no error";
    case 2:
      return "unhandled system error";
    case 5:
      return "invalid usage";
    case 6:
      return "remote process exited or there was a network error";
    default:
      return "another error";
  }
}

FAKE_API const char* ncclGetLastError(void*) {
  return "the fake was told to fail";
}

FAKE_API NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  static std::atomic<uint64_t> last{0};
  const uint64_t number = ++last;
  std::memset(id->bytes, 0, sizeof id->bytes);
  std::memcpy(id->bytes, &number, sizeof number);
  return NcclResult::success;
}

FAKE_API NcclResult ncclCommInitRankConfig(void** made, int ranks, NcclUniqueId id, int rank,
                                           NcclConfig* config) {
  uint64_t number = 0;
  std::memcpy(&number, id.bytes, sizeof number);
  if (config->magic != NcclConfig::kMagic || config->size != sizeof(NcclConfig) ||
      current_gpu() < 0 || number == 0 || config->blocking != 0)
    return misuse();
  Communicator* const comm = make(clique_of(number, ranks), rank, *config);
  remember(comm);
  *made = comm;
  const std::lock_guard lock(comm->clique->mutex);
  comm->clique->joined += 1;
  return NcclResult::in_progress;
}

FAKE_API NcclResult ncclCommInitRank(void** made, int ranks, NcclUniqueId id, int rank) {
  NcclConfig config;
  config.blocking = 0;
  if (const NcclResult result = ncclCommInitRankConfig(made, ranks, id, rank, &config);
      result != NcclResult::in_progress)
    return result;
  auto* const comm = static_cast<Communicator*>(*made);
  while (progress_of(*comm) == NcclResult::in_progress)
    std::this_thread::yield();
  comm->blocking = true;
  return NcclResult::success;
}

FAKE_API NcclResult ncclCommSplit(void* handle, int color, int key, void** made,
                                  NcclConfig* config) {
  auto* const comm = static_cast<Communicator*>(handle);
  if (config->magic != NcclConfig::kMagic || color != 0 || key != comm->rank) return misuse();
  const std::lock_guard lock(comm->clique->mutex);
  std::shared_ptr<Clique>& clique = comm->clique->splits[comm->splits++];
  if (!clique) clique = std::make_shared<Clique>(comm->clique->size);
  comm->child = make(clique, comm->rank, *config);
  remember(comm->child);
  comm->child_goes_to = made;
  const std::lock_guard child(clique->mutex);
  clique->joined += 1;
  return NcclResult::success;  // As in NCCL: the parent's state shows when it is done.
}

FAKE_API NcclResult ncclCommGetAsyncError(void* handle, NcclResult* state) {
  auto* const comm = static_cast<Communicator*>(handle);
  if (!comm->is_alive) return misuse();
  *state =
      comm->blocking ? static_cast<NcclResult>(fake_gpu()->async_error.load()) : progress_of(*comm);
  return NcclResult::success;
}

FAKE_API NcclResult ncclCommAbort(void* handle) {
  auto* const comm = static_cast<Communicator*>(handle);
  if (!comm->is_alive) return misuse();
  while (fake_gpu()->abort_hangs && comm->blocking)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  stop(*comm);
  comm->is_alive = false;
  if (comm->blocking) fake_gpu()->aborts += 1;
  fake_gpu()->communicators -= 1;
  return NcclResult::success;
}

FAKE_API NcclResult ncclCommRevoke(void* handle, int flags) {
  auto* const comm = static_cast<Communicator*>(handle);
  if (!comm->is_alive || flags != 0) return misuse();
  fake_gpu()->revokes += 1;
  if (!fake_gpu()->has_revoke) return NcclResult::invalid_usage;
  comm->is_revoked = true;
  stop(*comm);
  return NcclResult::success;
}

FAKE_API NcclResult ncclCommDestroy(void* handle) {
  auto* const comm = static_cast<Communicator*>(handle);
  if (!comm->is_alive) return misuse();
  wait_until_idle(*comm);
  comm->is_alive = false;
  if (comm->blocking) fake_gpu()->destroys += 1;
  fake_gpu()->communicators -= 1;
  return NcclResult::success;
}

FAKE_API NcclResult ncclAllReduce(const void* in, void* out, size_t count, NcclType type,
                                  NcclReduction op, void* comm, void* stream) {
  if (const int result = fake_gpu()->next_call_result.exchange(0))
    return static_cast<NcclResult>(result);
  fake_gpu()->in_calls += 1;
  while (fake_gpu()->calls_hang && !static_cast<Communicator*>(comm)->is_revoked)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  fake_gpu()->in_calls -= 1;
  return put(
      comm, stream,
      {Call::Kind::all_reduce, in, out, count, static_cast<int>(type), static_cast<int>(op), 0});
}

FAKE_API NcclResult ncclBroadcast(const void* in, void* out, size_t count, NcclType type, int root,
                                  void* comm, void* stream) {
  return put(comm, stream,
             {Call::Kind::broadcast, in, out, count, static_cast<int>(type), 0, root});
}

FAKE_API NcclResult ncclReduce(const void* in, void* out, size_t count, NcclType type,
                               NcclReduction op, int root, void* comm, void* stream) {
  return put(
      comm, stream,
      {Call::Kind::reduce, in, out, count, static_cast<int>(type), static_cast<int>(op), root});
}

FAKE_API NcclResult ncclAllGather(const void* in, void* out, size_t count, NcclType type,
                                  void* comm, void* stream) {
  return put(comm, stream, {Call::Kind::all_gather, in, out, count, static_cast<int>(type), 0, 0});
}

FAKE_API NcclResult ncclReduceScatter(const void* in, void* out, size_t count, NcclType type,
                                      NcclReduction op, void* comm, void* stream) {
  return put(comm, stream,
             {Call::Kind::reduce_scatter, in, out, count, static_cast<int>(type),
              static_cast<int>(op), 0});
}

FAKE_API NcclResult ncclSend(const void* data, size_t count, NcclType type, int peer, void* comm,
                             void* stream) {
  return put(comm, stream,
             {Call::Kind::send, data, nullptr, count, static_cast<int>(type), 0, peer});
}

FAKE_API NcclResult ncclRecv(void* data, size_t count, NcclType type, int peer, void* comm,
                             void* stream) {
  return put(comm, stream,
             {Call::Kind::recv, nullptr, data, count, static_cast<int>(type), 0, peer});
}

FAKE_API NcclResult ncclGroupStart() {
  group().depth += 1;
  return NcclResult::success;
}

FAKE_API NcclResult ncclGroupEnd() {
  Group& open = group();
  if (open.depth == 0) return misuse(NcclResult::invalid_usage);
  if (--open.depth > 0 || open.calls.empty()) return NcclResult::success;
  return launch(open.communicator, open.stream, std::exchange(open.calls, {}));
}

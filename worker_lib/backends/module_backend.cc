#include "worker_lib/backends/module_backend.h"

#include <algorithm>
#include <future>
#include <mutex>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "worker_lib/backends/late_transfer.h"
#include "worker_lib/backends/stepped_average.h"
#include "worker_lib/backends/store_exchange.h"
#include "worker_lib/call_word.h"
#include "worker_lib/copy_bytes.h"
#include "worker_lib/reduction/reduce_kernels.h"
#include "worker_lib/time_text.h"

namespace muster::worker {
namespace {

// ---- the two sides of the table

// One call of a function of the table, and the failure that the module reports.
struct ModuleCall : muster_module_call {
  ModuleCall(const Members& group, Deadline deadline, uint64_t number = 0)
      : muster_module_call{std::chrono::nanoseconds(deadline.time_since_epoch()).count(), number,
                           &ModuleCall::note},
        members(group) {}

  static void note(muster_module_call* call, const muster_module_failure* given) noexcept {
    auto& self = *static_cast<ModuleCall*>(call);
    const bool is_code =
        given->code >= MUSTER_ERROR_INVALID_ARGUMENT && given->code <= MUSTER_ERROR_SYSTEM;
    self.failure = {is_code ? static_cast<ErrorCode>(given->code) : ErrorCode::backend,
                    given->message != nullptr ? given->message : ""};
    self.failure.is_suspicion = given->is_suspicion != 0;
    self.ranks.clear();
    for (const int rank : std::span(given->ranks, given->ranks_length)) {
      if (rank < 0 || rank >= self.members.size()) continue;
      self.ranks.push_back(rank);
      self.failure.ranks.push_back(self.members[rank].rank);
    }
    std::ranges::sort(self.failure.ranks);
  }

  const Members& members;
  Failure failure{ErrorCode::backend, "it failed without a reason"};
  std::vector<int> ranks;  // Those of `failure`, in the group.
};

struct ConnectCall : ModuleCall {
  ConnectCall(GroupSetup& given, const std::string& name)
      : ModuleCall(given.members, given.deadline), setup(given), topic(name) {}

  static int exchange(muster_module_call* call, const void* value, size_t length,
                      muster_module_bytes* all) noexcept {
    auto& self = *static_cast<ConnectCall*>(call);
    auto values = exchange_through_store(self.setup, self.topic,
                                         std::string(static_cast<const char*>(value), length));
    if (!values) self.reason = values.error();
    if (values) self.values = std::move(*values);
    for (const std::string& one : self.values)
      *all++ = {one.data(), one.size()};
    return self.reason ? 1 : 0;
  }

  static int interrupted(muster_module_call* call) noexcept {
    auto& self = *static_cast<ConnectCall*>(call);
    if (!self.reason && self.setup.interrupted) self.reason = self.setup.interrupted();
    return self.reason ? 1 : 0;
  }

  GroupSetup& setup;
  const std::string& topic;
  std::vector<std::string> values;
  std::optional<Failure> reason;
};

void reduce_two(int dtype, int op, void* out, const void* a, const void* b, size_t count) noexcept {
  const std::byte* const both[] = {static_cast<const std::byte*>(a),
                                   static_cast<const std::byte*>(b)};
  reduce_buffers(static_cast<DType>(dtype), static_cast<ReduceOp>(op), static_cast<std::byte*>(out),
                 both, 2, count);
}

// A collective in the form of the table.
struct ModuleOperation : muster_operation {
  ModuleOperation(const Operation& op, size_t ranks) : muster_operation{}, equal(ranks, op.count) {
    const ring::CallRow& row = row_of(op.kind);
    kind = static_cast<int>(op.kind);
    reduce_op = static_cast<int>(op.reduce == ReduceOp::average ? ReduceOp::sum : op.reduce);
    root = op.root;
    is_v = op.is_v ? 1 : 0;
    in = buffer(op, op.in, row.in, op.send_counts, send_counts, send_counts_length);
    out = buffer(op, op.out, row.out, op.recv_counts, recv_counts, recv_counts_length);
    if (op.kind != OpKind::broadcast) return;
    if (out.data == nullptr) out = in;
    in = out;
  }

  muster_buffer buffer(const Operation& op, const std::byte* data, ring::Extent extent,
                       const std::vector<size_t>& given, const size_t*& counts, size_t& length) {
    size_t count = op.count;
    if (extent == ring::Extent::blocks) {
      const std::vector<size_t>& by_rank = given.empty() ? equal : given;
      counts = by_rank.data();
      length = by_rank.size();
      count = std::reduce(by_rank.begin(), by_rank.end());
    }
    return {const_cast<std::byte*>(data), count, static_cast<int>(op.dtype), -1};
  }

  std::vector<size_t> equal;
};

// ---- the roll call before every collective: each rank sends its call to every other. Libraries
// such as Gloo compare nothing: calls of different sizes end the process, and one that times out
// does not say which ranks were missing. It costs a small message between each pair of ranks, and
// is a barrier: no rank goes on before all have arrived.

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

std::optional<Failure> find_other_counts(const std::vector<Presence>& mine,
                                         const std::vector<Presence>& theirs,
                                         const Members& members) {
  for (size_t peer = 0; peer < mine.size(); ++peer) {
    const Peer& other = members[static_cast<int>(peer)];
    const Peer& self = members.self();
    const auto differ = [](const Peer& from, uint64_t sends, const Peer& to, uint64_t expects) {
      return Failure{ErrorCode::mismatch,
                     fmt::format("{} sends {} elements to {}, which expects {}", describe(from),
                                 sends, describe(to), expects),
                     {std::min(from.rank, to.rank), std::max(from.rank, to.rank)}};
    };
    if (theirs[peer].sends != mine[peer].expects)
      return differ(other, theirs[peer].sends, self, mine[peer].expects);
    if (mine[peer].sends != theirs[peer].expects)
      return differ(self, mine[peer].sends, other, theirs[peer].expects);
  }
  return std::nullopt;
}

Failure late_operation(const Operation& operation) {
  Failure failure{ErrorCode::timeout,
                  fmt::format("not done {}, although all ranks had arrived; one of them may have "
                              "been stopped since, or the network is too slow for the timeout",
                              within(operation.limit))};
  failure.is_suspicion = true;
  return failure;
}

// ---- the backend

class ModuleBackend final : public GroupBackend {
 public:
  ModuleBackend(const muster_module& module, const GroupSetup& setup);
  ~ModuleBackend() override;

  Outcome<> connect(GroupSetup& setup, const std::string& topic);
  Outcome<> run(const Operation& operation, Deadline deadline) override;
  Outcome<int> transfer(const Transfer& transfer, Deadline deadline) override;
  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(const std::vector<Transfer>& transfers,
                                                         Deadline deadline) override;
  void abort(const Failure& failure) override;

 private:
  Outcome<> call_the_roll(const Operation& operation, Deadline deadline);
  Outcome<> perform(const Operation& operation, Deadline deadline);
  Outcome<> reduce_scatter(const Operation& operation, Deadline deadline);
  Outcome<> move(const Operation& operation, Deadline deadline);
  Outcome<muster_module_message*> post(const Transfer& transfer, Deadline deadline);
  Outcome<int> wait(const Transfer& transfer, muster_module_message* message, Deadline deadline);
  std::optional<Failure> aborted() const;
  Outcome<> refuse_if_over(Deadline deadline) const;
  // Returns the failure of a call; `late` if it is a time-out in the words of this library.
  tl::unexpected<Failure> explain(const ModuleCall& call, const Failure& late) const;

  const muster_module& module_;
  const Members members_;
  const std::string name_;
  std::vector<std::string> texts_;
  std::vector<muster_module_peer> peers_;
  muster_module_setup setup_{};
  muster_module_group* group_ = nullptr;

  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
  std::vector<std::future<void>> waiting_;  // From std::async(): destructors join the threads.
};

ModuleBackend::ModuleBackend(const muster_module& module, const GroupSetup& setup)
    : module_(module), members_(setup.members), name_(setup.name) {
  for (const Peer& peer : members_.peers)
    texts_.push_back(describe(peer));
  for (const Peer& peer : members_.peers)
    peers_.push_back({texts_[peers_.size()].c_str(), peer.address.c_str()});
  setup_ = {name_.c_str(),
            members_.me,
            members_.size(),
            peers_.data(),
            &ConnectCall::exchange,
            &ConnectCall::interrupted,
            &reduce_two};
}

ModuleBackend::~ModuleBackend() {
  if (group_ == nullptr) return;
  abort({ErrorCode::aborted, "the group is gone"});
  waiting_.clear();
  module_.destroy(group_);
}

Outcome<> ModuleBackend::connect(GroupSetup& setup, const std::string& topic) {
  ConnectCall call(setup, topic);
  if (module_.connect(&setup_, &call, &group_) == 0) return Done{};
  if (call.reason) return tl::unexpected(*call.reason);
  return explain(call, {ErrorCode::timeout, "not connected " + within(setup.limit)});
}

Outcome<> ModuleBackend::run(const Operation& operation, Deadline deadline) {
  return refuse_if_over(deadline)
      .and_then([&](Done) { return call_the_roll(operation, deadline); })
      .and_then([&](Done) { return perform(operation, deadline); });
}

Outcome<> ModuleBackend::call_the_roll(const Operation& operation, Deadline deadline) {
  const CallSignature signature = signature_of(operation);
  std::vector<Presence> mine;
  for (int peer = 0; peer < members_.size(); ++peer)
    mine.push_back(presence_of(operation, signature, members_.me, peer));
  std::vector<Presence> theirs = mine;
  ModuleCall call(members_, deadline, operation.sequence);
  if (module_.exchange(group_, mine.data(), theirs.data(), sizeof(Presence), &call) != 0) {
    if (call.ranks.empty()) return explain(call, late_operation(operation));
    Failure absent = absent_members(members_, call.ranks, within(operation.limit));
    absent.is_suspicion = true;
    return explain(call, absent);
  }
  std::vector<CallSignature> calls;
  for (const Presence& one : theirs)
    calls.push_back(one.call);
  std::optional<Failure> difference = find_mismatch(calls, members_);
  if (!difference) difference = find_other_counts(mine, theirs, members_);
  // Prefers the failure of an abort, which says more.
  if (difference) return tl::unexpected(aborted().value_or(*difference));
  return Done{};
}

Outcome<> ModuleBackend::perform(const Operation& operation, Deadline deadline) {
  const bool is_empty = !operation.is_v && operation.count == 0;
  if (operation.kind == OpKind::barrier || is_empty) return Done{};
  if (operation.kind == OpKind::reduce_scatter) return reduce_scatter(operation, deadline);
  const SteppedAverage average(operation, members_.size(), members_.me);
  const Operation& step = average.step();
  const bool at_root = members_.me == step.root;
  const bool has_two = step.in != nullptr && step.out != nullptr && step.in != step.out;
  if (step.kind == OpKind::broadcast && at_root && has_two)
    copy_bytes(step.out, step.in, step.count * size_of(step.dtype));
  if (Outcome<> moved = move(step, deadline); !moved) return moved;
  const bool has_result = step.kind == OpKind::all_reduce || at_root;
  if (has_reduction(step.kind) && step.reduce == ReduceOp::average && has_result) {
    divide(step.dtype, step.out, step.count,
           members_.size() / SteppedAverage::early_divisor(step.dtype, members_.size()));
  }
  average.finish();
  return Done{};
}

// Every rank receives all ranks' versions of its block and reduces them in rank order: each block
// crosses the network once, and the result does not depend on the order of arrival.
Outcome<> ModuleBackend::reduce_scatter(const Operation& operation, Deadline deadline) {
  const auto ranks = static_cast<size_t>(members_.size());
  Operation exchange = operation;
  exchange.kind = OpKind::all_to_all;
  if (!operation.is_v) exchange.send_counts.assign(ranks, operation.count);
  const size_t mine = exchange.send_counts[static_cast<size_t>(members_.me)];
  exchange.recv_counts.assign(ranks, mine);
  const size_t bytes = mine * size_of(operation.dtype);
  std::vector<std::byte> versions(bytes * ranks);
  exchange.out = versions.data();
  if (Outcome<> moved = move(exchange, deadline); !moved || mine == 0) return moved;
  std::vector<const std::byte*> each;
  for (size_t peer = 0; peer < ranks; ++peer)
    each.push_back(versions.data() + peer * bytes);
  reduce_buffers(operation.dtype, operation.reduce, operation.out, each.data(), ranks, mine);
  return Done{};
}

Outcome<> ModuleBackend::move(const Operation& operation, Deadline deadline) {
  const ModuleOperation given(operation, static_cast<size_t>(members_.size()));
  ModuleCall call(members_, deadline, operation.sequence);
  if (module_.perform(group_, &given, &call) == 0) return Done{};
  return explain(call, late_operation(operation));
}

Outcome<muster_module_message*> ModuleBackend::post(const Transfer& transfer, Deadline deadline) {
  muster_operation message{};
  message.kind = static_cast<int>(transfer.kind);
  message.in = {transfer.data, transfer.count, static_cast<int>(transfer.dtype), -1};
  message.out = message.in;
  message.root = transfer.peer;
  message.tag = transfer.tag;
  ModuleCall call(members_, deadline);
  muster_module_message* posted = nullptr;
  if (module_.post(group_, &message, &call, &posted) == 0) return posted;
  return explain(call, late_transfer(transfer, members_, false));
}

Outcome<int> ModuleBackend::wait(const Transfer& transfer, muster_module_message* message,
                                 Deadline deadline) {
  ModuleCall call(members_, deadline);
  int source = transfer.peer;
  if (module_.wait(group_, message, &call, &source) == 0) return source;
  return explain(call, late_transfer(transfer, members_, false));
}

Outcome<int> ModuleBackend::transfer(const Transfer& transfer, Deadline deadline) {
  return refuse_if_over(deadline)
      .and_then([&](Done) { return post(transfer, deadline); })
      .and_then([&](muster_module_message* message) { return wait(transfer, message, deadline); });
}

Outcome<std::vector<std::shared_ptr<WorkState>>> ModuleBackend::begin(
    const std::vector<Transfer>& transfers, Deadline deadline) {
  if (const std::optional<Failure> failure = aborted()) return tl::unexpected(*failure);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [](const std::future<void>& one) {
      return one.wait_for(std::chrono::milliseconds{0}) == std::future_status::ready;
    });
  }
  std::vector<std::shared_ptr<WorkState>> works;
  for (const Transfer& transfer : transfers) {
    const Outcome<muster_module_message*> posted = post(transfer, deadline);
    if (!posted) return tl::unexpected(posted.error());
    auto work = std::make_shared<HostWork>();
    works.push_back(work);
    const auto complete = [this, transfer, work, deadline, message = *posted] {
      const Outcome<int> outcome = wait(transfer, message, deadline);
      work->complete(outcome.map([](int) { return Done{}; }), outcome.value_or(-1));
    };
    try {
      std::future<void> waiting = std::async(std::launch::async, complete);
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(waiting));
    } catch (const std::system_error& error) {
      static_cast<void>(wait(transfer, *posted, Deadline{}));  // Frees the message.
      return failed(ErrorCode::system,
                    fmt::format("there is no thread to wait for a message: {}", error.what()));
    }
  }
  return works;
}

void ModuleBackend::abort(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
  }
  module_.abort(group_);
}

std::optional<Failure> ModuleBackend::aborted() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Outcome<> ModuleBackend::refuse_if_over(Deadline deadline) const {
  if (const std::optional<Failure> failure = aborted()) return tl::unexpected(*failure);
  if (deadline > std::chrono::steady_clock::now()) return Done{};
  return failed(ErrorCode::timeout, "the timeout expired before the operation began");
}

tl::unexpected<Failure> ModuleBackend::explain(const ModuleCall& call, const Failure& late) const {
  if (const std::optional<Failure> failure = aborted()) return tl::unexpected(*failure);
  const bool is_late = call.failure.code == ErrorCode::timeout && call.failure.message.empty();
  return tl::unexpected<Failure>(is_late ? late : call.failure);
}

}  // namespace

std::string refusal_of(const muster_module_head& head) {
  constexpr muster_module_head kOwn = MUSTER_MODULE_HEAD;
  if (head.version == kOwn.version && std::ranges::equal(head.sizes, kOwn.sizes)) return {};
  const auto text = [](const muster_module_head& one) {
    return fmt::format("version {} (structures of {} bytes)", one.version,
                       fmt::join(one.sizes, ", "));
  };
  return fmt::format("was built for another table of backends: {}, where this library knows {}",
                     text(head), text(kOwn));
}

Outcome<std::unique_ptr<GroupBackend>> make_module_backend(const muster_module& module,
                                                           const std::string& topic,
                                                           GroupSetup setup) {
  auto backend = std::make_unique<ModuleBackend>(module, setup);
  if (const Outcome<> connected = backend->connect(setup, topic); !connected)
    return tl::unexpected(connected.error());
  return backend;
}

}  // namespace muster::worker

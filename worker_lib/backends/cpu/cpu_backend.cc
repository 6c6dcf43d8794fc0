#include "worker_lib/backends/cpu/cpu_backend.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/cpu_limit.h"
#include "worker_lib/backends/cpu/shm_links.h"
#include "worker_lib/backends/cpu/shm_meeting.h"
#include "worker_lib/backends/stepped_average.h"
#include "worker_lib/backends/store_exchange.h"
#include "worker_lib/call_word.h"

namespace muster::worker {
namespace {

// Time to poll sockets before sleeping, if every rank has a core: about the cost of a wake-up.
constexpr std::chrono::microseconds kSocketPatience{50};

// A closed connection is noticed at once; its cause (a rank died, gave up on the group, was
// stopped) reaches the watch some milliseconds later and makes the better report.
constexpr std::chrono::milliseconds kReasonGrace{150};

}  // namespace

Outcome<std::unique_ptr<GroupBackend>> make_cpu_backend(GroupSetup setup) {
  return CpuBackend::make(std::move(setup));
}

Outcome<std::unique_ptr<CpuBackend>> CpuBackend::make(GroupSetup setup) {
  std::unique_ptr<CpuBackend> backend(new CpuBackend(setup.members));
  const bool shares = backend->is_on_one_node() || backend->layout_.is_even();
  if (shares) {
    const Outcome<> made = backend->make_shared(setup);
    if (!made) return tl::unexpected(made.error());
  }
  if (!backend->is_on_one_node()) {
    const Outcome<> made = backend->make_sockets(setup);
    if (!made) return tl::unexpected(made.error());
  }
  return backend;
}

CpuBackend::CpuBackend(Members members)
    : members_(std::move(members)),
      layout_(NodeLayout::of(members_)),
      local_(layout_.members_of(members_, layout_.node_at(members_.me))),
      awaited_(members_.size()) {}

CpuBackend::~CpuBackend() = default;

Outcome<> CpuBackend::make_shared(GroupSetup& setup) {
  SegmentShape shape{.ranks = local_.size()};
  if (is_on_one_node()) shape.extra_bytes = ShmLinks::bytes_for(local_.size());
  auto segment = meet_in_segment(setup, local_, shape);
  if (!segment) return tl::unexpected(segment.error());
  shm_ = std::make_unique<ShmGroup>(*segment, local_);
  if (is_on_one_node())
    transfers_ =
        std::make_unique<TransferEngine>(std::make_unique<ShmLinks>(*segment, local_.me), members_);
  return Done{};
}

Outcome<> CpuBackend::make_sockets(GroupSetup& setup) {
  Outcome<Listeners> open = open_listeners(members_.self());
  if (!open) return tl::unexpected(open.error());
  Outcome<std::vector<ListenAddress>> addresses =
      exchange_records(setup, "address", open->address, "its address");
  if (!addresses) return tl::unexpected(addresses.error());
  addresses_ = std::move(*addresses);

  auto links = SocketLinks::make(Purpose::collectives, members_, addresses_, setup.secret);
  auto transfer_links = SocketLinks::make(Purpose::transfers, members_, addresses_, setup.secret);
  if (!links) return tl::unexpected(links.error());
  if (!transfer_links) return tl::unexpected(transfer_links.error());
  links_ = std::move(*links);
  links_->patience = (*transfer_links)->patience =
      usable_cores() >= local_.size() ? kSocketPatience : std::chrono::microseconds{0};

  auto acceptor = Acceptor::start(
      {.size = members_.size(),
       .secret = setup.secret,
       .open = std::move(*open),
       .deliver = {
           [to = links_.get()](int from, Socket s) { to->deliver(from, std::move(s)); },
           [to = transfer_links->get()](int from, Socket s) { to->deliver(from, std::move(s)); }}});
  if (!acceptor) return tl::unexpected(acceptor.error());
  transfers_ = std::make_unique<TransferEngine>(std::move(*transfer_links), members_);
  acceptor_ = std::move(*acceptor);
  exchange_ = std::make_unique<Exchange>(*links_, members_, abort_, &awaited_);
  std::vector<int> ranks(static_cast<size_t>(members_.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  flat_ = std::make_unique<FlatGroup>(*exchange_, std::move(ranks), members_.me);
  if (shm_)
    hierarchy_ = std::make_unique<Hierarchy>(*shm_, *exchange_, *flat_, layout_, members_.me);
  return Done{};
}

Outcome<> CpuBackend::run(const Operation& operation, Deadline deadline) {
  if (abort_.is_set()) return tl::unexpected(abort_.failure());
  if (is_on_one_node()) return shm_->run(operation, deadline);
  awaited_.enter(operation.sequence, signature_of(operation));
  exchange_->begin(operation, deadline);
  const Outcome<> done = run_between_nodes(operation, deadline);
  if (done) return done;
  Failure failure = settle(done.error());
  // The ranks of one node cannot know which ranks differ from the majority of the group.
  if (failure.code == ErrorCode::mismatch && !abort_.is_set()) failure.is_suspicion = true;
  return tl::unexpected(std::move(failure));
}

Outcome<> CpuBackend::run_between_nodes(const Operation& operation, Deadline deadline) {
  Outcome<> done = hierarchy_ ? hierarchy_->check(operation, deadline) : Done{};
  if (!done) return done;
  const SteppedAverage average(operation, members_.size(), members_.me);
  const Operation& step = average.step();
  done = hierarchy_ ? hierarchy_->run(step, deadline) : run_flat(*flat_, step);
  if (done) average.finish();
  return done;
}

// Replaces a failure of the links with its cause, if that becomes known within kReasonGrace.
Failure CpuBackend::settle(const Failure& failure) const {
  if (failure.code == ErrorCode::peer_failed)
    abort_.wait_until(std::chrono::steady_clock::now() + kReasonGrace);
  return abort_.is_set() ? abort_.failure() : failure;
}

Outcome<int> CpuBackend::transfer(const Transfer& transfer, Deadline deadline) {
  Outcome<int> done = transfers_->transfer(transfer, deadline);
  if (!done && !is_on_one_node()) return tl::unexpected(settle(done.error()));
  return done;
}

Outcome<std::vector<std::shared_ptr<WorkState>>> CpuBackend::begin(
    const std::vector<Transfer>& transfers, Deadline deadline) {
  return transfers_->begin(transfers, deadline);
}

void CpuBackend::abort(const Failure& failure) {
  if (!abort_.set(failure)) return;
  if (shm_) shm_->abort(failure);
  if (links_) links_->wake();
  transfers_->abort(failure);
}

Outcome<SharedBlock> CpuBackend::allocate_shared(size_t bytes, Deadline deadline) {
  if (shm_) return shm_->allocate_shared(bytes, deadline);
  return GroupBackend::allocate_shared(bytes, deadline);
}

// Returns the peers that this rank waits for over sockets; if none, those on its own node.
std::vector<int> CpuBackend::awaited() const {
  std::vector<int> peers = awaited_.peers();
  if (!peers.empty() || !shm_) return peers;
  for (const int local : shm_->awaited())
    peers.push_back(layout_.node(layout_.node_at(members_.me))[static_cast<size_t>(local)]);
  return peers;
}

std::string CpuBackend::describe() const {
  if (is_on_one_node()) return "shared memory";
  if (hierarchy_) return fmt::format("{} nodes of {} ranks", layout_.count(), local_.size());
  return fmt::format("sockets between {} ranks", members_.size());
}

}  // namespace muster::worker

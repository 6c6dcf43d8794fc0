// The cpu backend: our implementation of operations on host memory. Its parts depend on the
// placement of the members:
//
//   all on one node         collectives through shared memory (ShmGroup), transfers through
//                           rings in it (ShmLinks)
//   several nodes, even     collectives within nodes through shared memory, between them over TCP
//                           (Hierarchy); transfers over sockets
//   several nodes, uneven   everything over sockets (FlatGroup)
//
// Collectives and transfers run on the caller's thread. Another drives transfers that no caller
// waits for; on several nodes one accepts connections (Acceptor), one helps to copy (SideCopies).
#pragma once

#include <memory>
#include <vector>

#include "worker_lib/backends/backend.h"
#include "worker_lib/backends/cpu/awaited_peers.h"
#include "worker_lib/backends/cpu/exchange.h"
#include "worker_lib/backends/cpu/flat_group.h"
#include "worker_lib/backends/cpu/hierarchy.h"
#include "worker_lib/backends/cpu/p2p_engine.h"
#include "worker_lib/backends/cpu/shm_group.h"
#include "worker_lib/backends/cpu/tcp_acceptor.h"
#include "worker_lib/backends/cpu/tcp_links.h"

namespace muster::worker {

class CpuBackend final : public GroupBackend {
 public:
  static Outcome<std::unique_ptr<CpuBackend>> make(GroupSetup setup);
  ~CpuBackend() override;

  Outcome<> run(const Operation& operation, Deadline deadline) override;
  Outcome<int> transfer(const Transfer& transfer, Deadline deadline) override;
  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(const std::vector<Transfer>& transfers,
                                                         Deadline deadline) override;
  void abort(const Failure& failure) override;
  void end_transfers(const Failure& failure) override { transfers_->abort(failure); }
  Outcome<SharedBlock> allocate_shared(size_t bytes, Deadline deadline) override;

  // "shared memory", "2 nodes of 4 ranks", "sockets between 5 ranks": the parts in use.
  std::string describe() const;

  std::vector<int> awaited() const override;
  std::vector<NumberedCall> last_calls() const override { return awaited_.calls(); }

 private:
  explicit CpuBackend(Members members);
  Outcome<> make_shared(GroupSetup& setup);
  Outcome<> make_sockets(GroupSetup& setup);
  Outcome<> run_between_nodes(const Operation& operation, Deadline deadline);
  Failure settle(const Failure& failure) const;
  bool is_on_one_node() const { return layout_.count() == 1; }

  const Members members_;
  const NodeLayout layout_;
  const Members local_;
  AbortSwitch abort_;
  AwaitedPeers awaited_;           // Only for sockets.
  std::unique_ptr<ShmGroup> shm_;  // Null on several uneven nodes.
  std::vector<ListenAddress> addresses_;
  std::unique_ptr<SocketLinks> links_;  // For collectives. Null on one node, like the next two.
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<FlatGroup> flat_;
  std::unique_ptr<Hierarchy> hierarchy_;  // Null on one node and on uneven nodes.
  std::unique_ptr<TransferEngine> transfers_;
  std::unique_ptr<Acceptor> acceptor_;  // Destroyed first: it hands connections to the links.
};

}  // namespace muster::worker

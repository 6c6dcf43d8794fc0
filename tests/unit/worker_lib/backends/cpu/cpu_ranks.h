// The cpu backend with threads as ranks. Nodes are only names in the members; the sockets and the
// shared memory between them are real.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "worker_lib/backends/cpu/cpu_backend.h"

namespace muster::worker {

class CpuRanks {
 public:
  // `nodes` has one letter for each rank, the name of its node.
  explicit CpuRanks(const std::string& nodes) : ranks_(static_cast<int>(nodes.size())) {
    ranks_.adjust = [nodes](GroupSetup& setup) {
      for (size_t i = 0; i < nodes.size(); ++i)
        setup.members.peers[i].node = std::string("node-") + nodes[i];
    };
    backends_ = ranks_.make(make_cpu_backend);
  }

  int size() const { return ranks_.size(); }
  GroupBackend& operator[](int rank) const { return *backends_[static_cast<size_t>(rank)]; }
  void drop(int rank) { backends_[static_cast<size_t>(rank)].reset(); }
  void each(const std::function<void(int)>& body) const { ranks_.each(body); }
  std::string describe() const {
    return static_cast<const CpuBackend&>(*backends_.front()).describe();
  }

 private:
  BackendRanks ranks_;
  std::vector<std::unique_ptr<GroupBackend>> backends_;
};

}  // namespace muster::worker

// The NCCL backend. Operations are enqueued on a GPU stream and the calling thread continues. They
// run on the call's own stream if it would wait for them at once (one event instead of two, and no
// waits between streams), otherwise on the group's stream, so that the call's stream continues too.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker_lib/backends/backend.h"
#include "worker_lib/backends/nccl/nccl_calls.h"
#include "worker_lib/backends/nccl/nccl_core.h"

namespace muster::worker {

class NcclBackend final : public GroupBackend {
 public:
  NcclBackend(Members members, std::shared_ptr<NcclCore> core);
  ~NcclBackend() override;

  bool is_asynchronous() const override { return true; }
  Outcome<> run(const Operation& operation, Deadline deadline) override;
  Outcome<std::shared_ptr<WorkState>> start(const Operation& operation, Deadline deadline) override;
  Outcome<int> transfer(const Transfer& transfer, Deadline deadline) override;
  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(const std::vector<Transfer>& transfers,
                                                         Deadline deadline) override;
  std::string refuses(const Transfer& transfer) const override;
  void abort(const Failure& failure) override;
  std::optional<uint64_t> first_under_way() const override { return core_->first_under_way(); }
  bool is_idle() const override { return core_->is_all_done(); }
  void wait_idle() override { core_->wait_idle(); }

 private:
  Outcome<> check(Device device) const;
  Outcome<> check(const Operation& operation) const;
  NcclTarget target(CudaStream stream) const;

  const Members members_;
  const std::shared_ptr<NcclCore> core_;
};

// Record that each rank writes into the store during set-up.
struct NcclCard {
  int version = 0;
  std::string gpu_uuid;
  std::string gpu_name;
  std::array<uint8_t, sizeof(NcclUniqueId)> unique_id{};  // Set by rank 0 only, for the group.
  std::string host_id;  // NCCL_HOSTID: ranks with different ones may share a GPU.

  std::string encode() const;
  static std::optional<NcclCard> decode(std::string_view bytes);
  friend bool operator==(const NcclCard&, const NcclCard&) = default;
};

// Returns the reason if NCCL's environment variables, which override the configurations that
// callers pass, rule this backend out; else empty. `get` stands for getenv.
std::string refuse_nccl_variables(const std::function<const char*(const char*)>& get);

// Returns the reason if these ranks cannot form a group. `cards`: by group rank.
std::optional<Failure> compare_cards(const Members& members, const std::vector<NcclCard>& cards,
                                     bool may_share_gpus);

}  // namespace muster::worker

// The NCCL backend. Operations are enqueued on a GPU stream and the calling thread continues. They
// run on the call's own stream if it would wait for them at once (one event instead of two, and no
// waits between streams), otherwise on the group's stream, so that the call's stream continues too.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker_lib/backends/backend.h"
#include "worker_lib/backends/nccl/cuda_driver.h"
#include "worker_lib/backends/nccl/nccl_core.h"
#include "worker_lib/backends/nccl/nccl_library.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// ---- our operations as NCCL calls: which function, type and blocks. Every operation is enqueued
// on a stream; nothing waits for completion.

// The communicator and stream that the calls use.
struct NcclTarget {
  const NcclApi& nccl;
  NcclHandle comm;
  CudaStream stream;
  int rank;
  int ranks;
  std::byte* barrier_word;  // Four bytes of GPU memory that barriers reduce.
};

// Returns the reason if NCCL cannot do such an operation at all; else empty.
std::string nccl_refuses(const Operation& operation);
std::string nccl_refuses(const Transfer& transfer);

// Enqueues the operation. Fails with code backend. REQUIRES: nccl_refuses() is empty.
Outcome<> put_on_stream(const NcclTarget& target, const Operation& operation);
// Enqueues all transfers in one NCCL group, so that no order can deadlock.
Outcome<> put_on_stream(const NcclTarget& target, const std::vector<Transfer>& transfers);

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
  std::string refuses(const Transfer& transfer) const override { return nccl_refuses(transfer); }
  void abort(const Failure& failure) override { core_->fail(failure); }
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

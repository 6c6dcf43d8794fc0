#include "worker_lib/group/group_solo.h"

#include <cstring>

namespace muster::worker {

namespace {

class SoloBackend final : public GroupBackend {
 public:
  // The result of every kind is this rank's own input.
  Outcome<> run(const Operation& operation, Deadline) override {
    const size_t count =
        operation.recv_counts.empty() ? operation.count : operation.recv_counts.front();
    if (operation.kind != OpKind::barrier && count > 0 && operation.in != operation.out)
      std::memcpy(operation.out, operation.in, count * size_of(operation.dtype));
    return Done{};
  }

  Outcome<int> transfer(const Transfer&, Deadline) override { return nobody(); }
  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(const std::vector<Transfer>&,
                                                         Deadline) override {
    return nobody();
  }
  std::string refuses(const Transfer&) const override { return nobody().value().message; }

  // Nothing ever blocks; the group refuses later calls.
  void abort(const Failure&) override {}

 private:
  static tl::unexpected<Failure> nobody() {
    return failed(ErrorCode::invalid_argument, "the group has no other rank");
  }
};

}  // namespace

std::unique_ptr<GroupBackend> make_solo_backend() {
  return std::make_unique<SoloBackend>();
}

}  // namespace muster::worker

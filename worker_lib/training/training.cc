#include "muster/training.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "muster/section.h"
#include "rendezvous/base/text.h"
#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/group/group_bytes.h"
#include "worker_lib/joining/job.h"
#include "worker_lib/raise.h"
#include "worker_lib/recorder/call_site.h"
#include "worker_lib/recorder/recorder.h"
#include "worker_lib/training/helper_error.h"

using namespace muster;

namespace {

using worker::CallPurpose;
using worker::Failure;

// First letter of a rank's report to the others if its block failed; the reason follows, and may be
// empty. The report is empty on success and on ranks without a turn.
constexpr char kBlockFailed = '!';

struct FailedBlock {
  std::string why;
  Failure failure;
};

std::optional<FailedBlock> run_block(const char* caller, muster_block block, void* context,
                                     const worker::Job& job) {
  const Section section(caller);
  muster_outcome outcome{};
  {
    const worker::CalledBack program;
    block(context, &outcome);
  }
  if (outcome.code == MUSTER_OK) return std::nullopt;
  FailedBlock failed{.why = outcome.message != nullptr ? outcome.message : "", .failure = {}};
  failed.failure = {c_abi::error_code_of_number(outcome.code), failed.why};
  for (size_t i = 0; i < outcome.ranks_length; ++i)
    failed.failure.ranks.push_back(GlobalRank{outcome.ranks[i]});
  if (failed.failure.code == ErrorCode::system && failed.failure.ranks.empty()) {
    failed.failure.message = fmt::format("{}: the block failed: {}", caller, failed.why);
    failed.failure.ranks.push_back(GlobalRank{job.rank()});
  }
  return failed;
}

[[noreturn]] void raise_own(const char* caller, const FailedBlock& failed,
                            const worker::Group& everyone) {
  worker::raise(failed.failure, caller, everyone.name());
}

// Throws, on all other ranks alike, if the block has failed on any of the first ranks.
void pass_on_failures(const char* caller, const worker::Group& everyone,
                      const std::vector<std::string>& told) {
  std::vector<GlobalRank> failed;
  std::string words;
  for (size_t i = 0; i < told.size(); ++i) {
    if (told[i].empty()) continue;
    if (failed.empty()) words = told[i].substr(1);
    failed.push_back(everyone.members().peers[i].rank);
  }
  if (failed.empty()) return;
  const size_t more = failed.size() - 1;
  const std::string others = more == 0 ? "" : fmt::format(" (and {})", counted(more, "other"));
  worker::raise_shared({ErrorCode::peer_failed,
                        fmt::format("{}: the block failed on rank {}, so it was not run here: {}{}",
                                    caller, failed.front().value, words, others),
                        failed},
                       caller, everyone.name());
}

void take_turns(CallPurpose purpose, bool is_first, muster_block block, void* context,
                const CallOptions& options) {
  const char* const caller = name_of(purpose);
  const std::shared_ptr<worker::Job> job = worker::require_job();
  worker::Group& everyone = *job->world_group();
  std::optional<FailedBlock> failed;
  if (is_first) failed = run_block(caller, block, context, *job);
  std::vector<std::string> told;
  try {
    told = worker::in_the_name_of(purpose, [&] {
      return c_abi::value_or_raise(
          worker::all_gather_bytes(everyone, failed ? kBlockFailed + failed->why : "", options),
          "all_gather_bytes", everyone);
    });
  } catch (const DistributedError&) {
    // If the world failed too (because of SIGTERM, say), the block's own failure says more.
    if (failed) raise_own(caller, *failed, everyone);
    throw;
  }
  if (failed) raise_own(caller, *failed, everyone);
  pass_on_failures(caller, everyone, told);
  if (is_first) return;
  failed = run_block(caller, block, context, *job);
  if (failed) raise_own(caller, *failed, everyone);
}

bool should_stop_now(const CallOptions& options) {
  const std::shared_ptr<worker::Job> job = worker::require_job();
  const worker::Recorder* const recorder = worker::process_recorder();
  const bool is_told =
      job->watch().stop_requested() || (recorder != nullptr && recorder->is_warned());
  std::array<uint8_t, 1> stop{is_told ? uint8_t{1} : uint8_t{0}};
  worker::in_the_name_of(CallPurpose::should_stop, [&] {
    c_abi::perform(*job->world_group(),
                   {.kind = worker::OpKind::all_reduce,
                    .in = ConstBuffer(stop),
                    .out = Buffer(stop),
                    .reduce = ReduceOp::max},
                   options, nullptr);
  });
  return stop[0] != 0;
}

}  // namespace

muster_status muster_zero_first(int is_local, muster_block block, void* context,
                                const muster_call_options* options) {
  return c_abi::guarded(__func__, [&] {
    const c_abi::Call call(options);
    c_abi::require(reinterpret_cast<const void*>(block), "block");
    const std::shared_ptr<worker::Job> job = worker::require_job();
    const bool is_first = (is_local != 0 ? job->identity().local_rank : job->rank()) == 0;
    take_turns(is_local != 0 ? CallPurpose::local_zero_first : CallPurpose::zero_first, is_first,
               block, context, call.options);
  });
}

muster_status muster_should_stop(int* stop, const muster_call_options* options) {
  return c_abi::guarded(__func__, [&] {
    const c_abi::Call call(options);
    c_abi::require_out(stop, "stop");
    *stop = should_stop_now(call.options) ? 1 : 0;
  });
}

muster_status muster_request_stop(void) {
  return c_abi::guarded(__func__, [] { worker::require_job()->watch().request_stop(); });
}

#include "muster/training.h"

#include <array>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "muster/init.h"
#include "muster/section.h"
#include "rendezvous/base/text.h"
#include "worker_lib/joining/job.h"
#include "worker_lib/raise.h"
#include "worker_lib/recorder/recorder.h"
#include "worker_lib/training/helper_error.h"

namespace muster {

namespace {

// First letter of a rank's report to the others if its block threw; the message follows, and may be
// empty. The report is empty on success and on ranks without a turn.
constexpr char kThrew = '!';

// Runs the block; returns the report for the others, and keeps the exception for this rank.
std::string run_and_report(const char* caller, const std::function<void()>& block,
                           std::exception_ptr& thrown) {
  try {
    const Section section(caller);
    block();
    return {};
  } catch (const std::exception& error) {
    thrown = std::current_exception();
    return kThrew + std::string(error.what());
  } catch (...) {
    thrown = std::current_exception();
    return kThrew + std::string("an exception that is not a std::exception");
  }
}

// Rethrows the exception of this rank's block. Reports it to the launcher as the origin of the
// others' errors, or, for an error of the library, with the origin that it names.
[[noreturn]] void throw_own(const char* caller, const std::exception_ptr& thrown,
                            const std::string& told) {
  try {
    std::rethrow_exception(thrown);
  } catch (const DistributedError& error) {
    worker::failure_reports().add({error.code(), error.what(), error.failed_ranks()});
    throw;
  } catch (...) {
    worker::failure_reports().add({ErrorCode::system,
                                   fmt::format("{}: the block failed: {}", caller, told.substr(1)),
                                   {GlobalRank{rank()}}});
    throw;
  }
}

// Throws, on all other ranks alike, if the block has failed on any of the first ranks.
void pass_on_failures(const char* caller, const ProcessGroup& everyone,
                      const std::vector<std::string>& told) {
  std::vector<GlobalRank> failed;
  std::string words;
  for (size_t i = 0; i < told.size(); ++i) {
    if (told[i].empty()) continue;
    if (failed.empty()) words = told[i].substr(1);
    failed.push_back(everyone.ranks()[i]);
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

}  // namespace

namespace detail {

void take_turns(FirstRanks first, const std::function<void()>& block, const CallOptions& options) {
  const bool local = first == FirstRanks::local_zero;
  const worker::CallPurpose purpose =
      local ? worker::CallPurpose::local_zero_first : worker::CallPurpose::zero_first;
  ProcessGroup everyone = world();
  const bool is_first = (local ? local_rank() : rank()) == 0;
  std::exception_ptr thrown;
  const std::string mine =
      is_first ? run_and_report(name_of(purpose), block, thrown) : std::string();
  std::vector<std::string> told;
  try {
    told =
        worker::in_the_name_of(purpose, [&] { return everyone.all_gather_bytes(mine, options); });
  } catch (const DistributedError&) {
    // If the world failed too (because of SIGTERM, say), the block's own exception says more.
    if (thrown) throw_own(name_of(purpose), thrown, mine);
    throw;
  }
  if (thrown) throw_own(name_of(purpose), thrown, mine);
  pass_on_failures(name_of(purpose), everyone, told);
  if (is_first) return;
  const Section section(name_of(purpose));
  block();
}

}  // namespace detail

bool should_stop(const CallOptions& options) {
  const worker::Recorder* const recorder = worker::process_recorder();
  const bool is_told = worker::require_job()->watch().stop_requested() ||
                       (recorder != nullptr && recorder->is_warned());
  std::array<uint8_t, 1> stop{is_told ? uint8_t{1} : uint8_t{0}};
  worker::in_the_name_of(worker::CallPurpose::should_stop,
                         [&] { world().all_reduce(Buffer(stop), ReduceOp::max, options); });
  return stop[0] != 0;
}

void request_stop() {
  worker::require_job()->watch().request_stop();
}

}  // namespace muster

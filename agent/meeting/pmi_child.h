// Asks the PMI of the mpirun, mpiexec or srun that started this agent for the address of that
// launch's rank 0, in a child of the agent (HelperProcess) that may be killed at any moment:
//
//   muster --internal-pmi HOST_TEXT     the text that rank 0 publishes: see pmi_record()
//
// Waits until all processes of the launch have asked. Prints encode_pmi() of the answer.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "agent/meeting/pmi_answer.h"
#include "agent/process/helper_process.h"
#include "agent/process/worker_environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

inline constexpr const char* kPmiFlag = "--internal-pmi";
// Variable with the number of PMI-1's inherited descriptor.
inline constexpr const char* kPmiFd = "PMI_FD";

// `args`: without the flag. Returns the exit code.
int pmi_child_main(const std::vector<std::string>& args);

// All processes of the launch must ask, and they may start late.
inline constexpr auto kPmiPatience = std::chrono::seconds(60);

// The agent's side, on its control loop. `host_text`: this node's addresses, which rank 0 publishes
// (pmi_record()). `environment`: this process's own. Fails with ExitCode::rendezvous, or
// ExitCode::environment if the child cannot be started. REQUIRES: not asked yet, `helper` not busy.
void ask_pmi(HelperProcess& helper, const Environment& environment, const std::string& host_text,
             Duration limit, std::function<void(Result<PmiAnswer>)> done);

}  // namespace muster

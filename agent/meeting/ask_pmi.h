// How an agent that mpirun, mpiexec or srun started learns where rank 0 of that launch is reached,
// from the launch's own PMI. Control loop only; the asking is done by a child (pmi_child.h).
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "agent/meeting/pmi_answer.h"
#include "agent/process/helper_process.h"
#include "agent/process/worker_environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

// All processes of the launch must ask, and they may start late.
inline constexpr auto kPmiPatience = std::chrono::seconds(60);

// `host_text`: where this node is reached, which rank 0 publishes (pmi_record()). `environment`:
// this process's own. Fails with ExitCode::rendezvous, or ExitCode::environment if the child cannot
// be started. A launch's PMI can be asked once. REQUIRES: `helper` is not busy.
void ask_pmi(HelperProcess& helper, const Environment& environment, const std::string& host_text,
             Duration limit, std::function<void(Result<PmiAnswer>)> done);

}  // namespace muster

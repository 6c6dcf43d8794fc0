// Asks the PMI of the mpirun, mpiexec or srun that started this agent where rank 0 is reached, as a
// child of the agent (HelperProcess) that may be killed at any moment:
//
//   muster --internal-pmi HOST_TEXT     the text that rank 0 publishes: see pmi_record()
//
// Waits until all processes of the launch have come so far. Prints what encode_pmi() makes of the
// answer.
#pragma once

#include <string>
#include <vector>

namespace muster {

inline constexpr const char* kPmiFlag = "--internal-pmi";
// The descriptor of PMI-1, which this process inherits.
inline constexpr const char* kPmiFd = "PMI_FD";

// `args` without the flag. Returns the exit code.
int pmi_child_main(const std::vector<std::string>& args);

}  // namespace muster

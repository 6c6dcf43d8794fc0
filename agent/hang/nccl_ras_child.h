// Asks NCCL's RAS, as a child of the agent (HelperProcess) that may be killed at any moment:
//
//   muster --internal-nccl-ras ADDRESS [PID...]     PID: see ras_witness()
//
// The protocol is NCCL's own (src/ras/client_support.cc): lines of text, the answer until RAS
// closes the connection. Prints what encode_ras() makes of it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace muster::hang {

inline constexpr const char* kRasFlag = "--internal-nccl-ras";
inline constexpr const char* kRasAddress = "localhost:28028";  // NCCL's default.
inline constexpr auto kRasPatience = std::chrono::seconds(4);  // Of the child, in all.

// `args` without the flag. Returns the exit code.
int ras_child_main(const std::vector<std::string>& args);

}  // namespace muster::hang

// Simulates the end of an agent: Drain and Ending (agent/job/), combined as in the agent, in a
// world whose output, disk, console and other nodes are slow or never answer and whose user may
// send signals. One seed gives one schedule; time is virtual.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::sim {

struct EndReport {
  std::optional<std::string> violation;  // The promise that was broken.
  std::vector<std::string> trace;
  bool has_left = false;
  bool has_lost_files = false;
  bool abandons_output = false;
};

EndReport simulate_end(uint64_t seed);
std::string end_transcript(uint64_t seed, const EndReport& report);

}  // namespace muster::sim

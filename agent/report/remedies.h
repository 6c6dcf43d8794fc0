// A small table of error messages with a certain meaning: the class of failure that they prove and
// what to do. A message that can mean several things is not in it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/report/job_report.h"

namespace muster {

inline constexpr std::string_view kMemoryRemedy =
    "use less memory per worker (batch size, data-loading processes) or raise the limit (docker "
    "run --memory, Kubernetes resources.limits.memory, Slurm --mem)";
inline constexpr std::string_view kShmRemedy =
    "give /dev/shm more room: docker run --shm-size=8g (or --ipc=host); on Kubernetes mount an "
    "emptyDir with medium: Memory there";

struct Remedy {
  FailureClass kind = FailureClass::user;
  std::string text;

  friend bool operator==(const Remedy&, const Remedy&) = default;
};

// The first entry of the table that `message` contains (an exception, or the last lines of stderr).
std::optional<Remedy> known_remedy(std::string_view message);

}  // namespace muster

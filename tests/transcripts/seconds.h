// Formats a duration in transcripts: "0.5 s".
// Shared by the transcripts of the agent and of the rendezvous.
#pragma once

#include <chrono>
#include <string>

#include <fmt/format.h>

#include "rendezvous/base/time.h"

namespace muster {

inline std::string seconds_text(Duration duration) {
  return fmt::format("{:g} s", std::chrono::duration<double>(duration).count());
}

}  // namespace muster

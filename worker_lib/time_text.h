// Durations in messages, in a form in which the reader of "within 2 s" recognises the limit that
// was set. Pure.
#pragma once

#include <chrono>
#include <string>

#include <fmt/format.h>

namespace muster::worker {

// "1.5 s"; "250 ms" below a second.
inline std::string time_text(std::chrono::milliseconds time) {
  if (time.count() < 1000) return fmt::format("{} ms", time.count());
  return fmt::format("{:.7g} s", static_cast<double>(time.count()) / 1000);
}

// "within 2 s", or "in time" if the limit is unknown (0 or less).
inline std::string within(std::chrono::milliseconds limit) {
  return limit.count() <= 0 ? std::string("in time") : "within " + time_text(limit);
}

// Advice about missing ranks: "check what they are doing instead, or give a longer timeout".
inline std::string look_at(size_t missing) {
  return fmt::format("check what {} instead, or give a longer timeout",
                     missing == 1 ? "it is doing" : "they are doing");
}

}  // namespace muster::worker

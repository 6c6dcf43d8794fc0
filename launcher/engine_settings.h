// What a launch takes from an engine's facts: they become the last source of the flags about nodes,
// after the command line and the PET_* variables. A flag replaces its own fact; an endpoint, a
// master's address or --standalone replaces all facts about the meeting. N processes that an engine
// started never become N jobs of one node each by accident: what cannot be one job is refused with
// the flags that help. Pure.
#pragma once

#include <optional>
#include <string>

#include "launcher/engines/engine.h"
#include "launcher/settings.h"

namespace muster {

struct EngineUse {
  bool meets = false;                // The nodes meet by the facts.
  std::optional<TaskPlace> task;     // As that task.
  std::string line;                  // What was taken, for the user; empty: nothing.
  std::optional<StepToStart> start;  // Muster is to start itself on these nodes instead.
};

// Gives `settings` the facts that no flag replaces, and refuses what cannot be.
EngineUse use_engine(Settings& settings, const EngineFacts& facts);

}  // namespace muster

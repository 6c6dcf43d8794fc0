// Makes an engine's facts the last source of the flags about nodes, after the command line and the
// PET_* variables. A flag replaces its own fact; an endpoint, a master's address or --standalone
// replaces all facts about how the nodes meet. N processes that an engine started never become N
// one-node jobs by accident: if they cannot be one job, the launch is refused with the flags that
// help. Pure.
#pragma once

#include <optional>
#include <string>

#include "launcher/engines/engine.h"
#include "launcher/settings.h"

namespace muster {

struct EngineUse {
  bool meets = false;                // True if the nodes meet by the facts.
  std::optional<TaskPlace> task;     // The task that this process then is.
  std::string line;                  // Tells the user what was taken; empty: nothing.
  std::optional<StepToStart> start;  // Nodes on which muster is to start itself instead.
};

// Adds the facts that no flag replaces to `settings`; refuses what cannot work.
EngineUse use_engine(Settings& settings, const EngineFacts& facts);

}  // namespace muster

// What is said to a job of one node whose engine has started several processes or reserved several
// nodes: without flags for nodes these would be N jobs of one node each, all of them successful and
// none of them what was meant. Pure.
#pragma once

#include <string>

#include "launcher/engines/engine.h"

namespace muster {

struct LoneWorld {
  bool refused = false;  // Else a line to say: one process that perhaps is meant to be alone.
  std::string text;      // The facts, and the flags to give, as far as the environment tells.

  friend bool operator==(const LoneWorld&, const LoneWorld&) = default;
};

// REQUIRES: `facts` are of detect_engine(). `workers_given`: the user has said how many workers a
// node has.
LoneWorld judge_lone_world(const EngineFacts& facts, bool workers_given);

}  // namespace muster

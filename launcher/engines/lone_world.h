// The message for a job of one node whose engine has started several processes or reserved several
// nodes: without node flags these would be N jobs of one node each, all of which would succeed
// without doing what the user intended. Pure.
#pragma once

#include <string>

#include "launcher/engines/engine.h"

namespace muster {

struct LoneWorld {
  bool refused = false;  // Else `text` is a warning: a single process may be intended.
  std::string text;      // The facts, and the flags to give, as far as known.

  friend bool operator==(const LoneWorld&, const LoneWorld&) = default;
};

// REQUIRES: `facts` come from detect_engine(). `workers_given`: the user has given the number of
// workers per node.
LoneWorld judge_lone_world(const EngineFacts& facts, bool workers_given);

}  // namespace muster

#include "agent/agent.h"

#include <sys/prctl.h>

#include "agent/agent_loop.h"

namespace muster {

int run_agent(const AgentInput& input, const AgentContext& context) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "muster-agent");
  AgentLoop loop(input, context);
  return loop.run();
}

}  // namespace muster

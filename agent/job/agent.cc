#include "agent/job/agent.h"

#include <sys/prctl.h>
#include <unistd.h>

#include "agent/job/agent_loop.h"

namespace muster {

int run_agent(const AgentInput& input, const AgentContext& context) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "muster-agent");
  AgentLoop loop(input, context);
  const int exit_code = loop.run();
  // A thread that is stuck writing to a console or a disk may wake up at any time, so the objects
  // that it uses must not be destroyed before it.
  if (loop.abandoned()) _exit(exit_code);
  return exit_code;
}

}  // namespace muster

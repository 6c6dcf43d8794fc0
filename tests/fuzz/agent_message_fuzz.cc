// A stranger that speaks to the host of the rendezvous like an agent.
#include "tests/fuzz/agent_frames.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::check_frames<muster::membership::AgentMessage>(muster::fuzz::as_text(data, size));
  return 0;
}

// An unauthenticated peer sends agents' messages to the host of the rendezvous.
#include "tests/fuzz/agent_frames.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::check_frames<muster::membership::AgentMessage>(muster::fuzz::as_text(data, size));
  return 0;
}

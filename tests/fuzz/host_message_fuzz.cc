// A peer that is not the host of the rendezvous answers an agent.
#include "tests/fuzz/agent_frames.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::check_frames<muster::membership::HostMessage>(muster::fuzz::as_text(data, size));
  return 0;
}

// The messages between agents and host, one line each whatever text they contain: for the
// transcripts of the simulator and the tests.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/membership/agent_protocol.h"

namespace muster::membership {

// "Order{3, Stop{7, lost, "b was lost"}}"
std::string to_text(const AgentMessage& message);
std::string to_text(const HostMessage& message);
std::string_view to_text(StopWhy why);

}  // namespace muster::membership

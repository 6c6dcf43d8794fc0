// The inputs and outputs of a Member, one line each: for the transcripts of the simulator and the
// tests.
#pragma once

#include <string>

#include "rendezvous/membership/member.h"

namespace muster::member {

// "RoundFormed{3, node 1 of 4}"
std::string to_text(const Member::Event& event);
std::string to_text(const Member::Effect& effect);

}  // namespace muster::member

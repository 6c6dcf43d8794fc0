// The inputs and outputs of a Hosting, one line each: for the transcripts of the simulator and the
// tests.
#pragma once

#include <string>

#include "rendezvous/backends/hosting.h"

namespace muster::hosting {

// "Taken{won}"
std::string to_text(const Hosting::Event& event);
std::string to_text(const Hosting::Effect& effect);

}  // namespace muster::hosting

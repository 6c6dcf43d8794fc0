// The signal names of --signals-to-handle: those of Python's signal module, in which torchrun looks
// them up and which existing scripts therefore use. Of the real-time signals only SIGRTMIN and
// SIGRTMAX have names. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace muster {

// SIGTERM's number for "SIGTERM"; nullopt for a name without SIG or one that this system lacks.
std::optional<int> signal_number(std::string_view name);

}  // namespace muster

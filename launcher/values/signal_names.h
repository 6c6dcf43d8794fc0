// The names of signals as --signals-to-handle takes them: those of Python's signal module, because
// that is what torchrun looks them up in and what scripts therefore spell. Real-time signals have
// only SIGRTMIN and SIGRTMAX. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace muster {

// SIGTERM's number for "SIGTERM"; nothing for a name without SIG or one that this system lacks.
std::optional<int> signal_number(std::string_view name);

}  // namespace muster

// Describes the process that holds a TCP port of this machine, for an error message. Reads /proc
// and the descriptors of all processes.
#pragma once

#include <optional>
#include <string>

namespace muster {

// Returns "pid 123 (python3 train.py), user alice" for a process that listens there; nullopt if
// none does or /proc hides it.
std::optional<std::string> listener_at(int port);

// Returns "port 41427 is the local end of a connection of pid 123 (python3 train.py), user alice,
// to 10.0.0.7:80: ..." with the remedy; nullopt if no connection has the port or a process listens.
std::optional<std::string> connection_at(int port);

}  // namespace muster

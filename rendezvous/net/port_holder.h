// Which process holds a TCP port of this machine, in words for an error, as /proc shows it. Goes
// through the descriptors of all processes.
#pragma once

#include <optional>
#include <string>

namespace muster {

// "pid 123 (python3 train.py), user alice", of one that listens there; nullopt: none does, or /proc
// hides it.
std::optional<std::string> listener_at(int port);

// "port 41427 is the local end of a connection of pid 123 (python3 train.py), user alice, to
// 10.0.0.7:80, ...", and how to avoid that; nullopt: no connection has it, or something listens.
std::optional<std::string> connection_at(int port);

}  // namespace muster

// Formats times for both sides of the rendezvous and, for the host, node counts and names that
// other nodes chose, which may contain anything. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster::membership {

// "3 s", "250 ms": rounded up, to whole seconds from one second on.
std::string whole_seconds(Duration duration);

// "3 s": rounded down.
std::string full_seconds(Duration duration);

// "1.2 s".
std::string precise_seconds(Duration duration);

// Makes a name chosen by another node fit for our output: printable ASCII, bounded.
std::string quiet_name(std::string_view name);

// A sentence of another node without control characters, cut to half of kTextBytesMax.
std::string quiet_line(std::string_view text);

// Why an agent must not join another user's host. `where`: its endpoint; `host`, `node`: "uid 7".
std::string users_differ_text(std::string_view where, std::string_view host, std::string_view node);

// "1 node", "3 nodes".
std::string nodes_text(int count);

// "a, b, 7 more". `names`: the first few of `count`.
std::string list_text(std::vector<std::string> names, size_t count);

}  // namespace muster::membership

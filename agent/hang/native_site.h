// Where an address in a process lies: "libfoo.so+0x1234", the name of the mapped file and the
// offset in it. In most shared libraries and position-independent programs that is also the address
// of the code for addr2line(1) and objdump(1). Pure: the caller reads /proc/PID/maps
// (proc_pid_maps(5)).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/hang/ring_reader.h"

namespace muster {

// Those of the addresses that lie in a mapping with a name.
std::map<uint64_t, std::string> native_sites(const std::set<uint64_t>& addresses,
                                             std::string_view maps);

// Gives a text to every native site that lies in a mapping with a name.
void name_native_sites(std::vector<RecordedCall>& calls, std::string_view maps);

}  // namespace muster

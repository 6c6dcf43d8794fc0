// Names an address in a process, "libfoo.so+0x1234": the mapped file and the offset in it, which in
// most shared libraries and position-independent programs is also the address for addr2line(1) and
// objdump(1). Pure: the caller reads /proc/PID/maps (proc_pid_maps(5)).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/hang/ring_reader.h"

namespace muster {

// Names of those addresses that lie in a mapping with a name.
std::map<uint64_t, std::string> native_sites(const std::set<uint64_t>& addresses,
                                             std::string_view maps);

// Sets the text of native sites that lie in a mapping with a name.
void name_native_sites(std::vector<RecordedCall>& calls, std::string_view maps);

}  // namespace muster

// The ports of a job whose host all nodes know and whose id is unique: its nodes derive them from
// the id, so that no user has to choose one. Several, since another program may have taken one; the
// host takes the first that is free. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace muster {

inline constexpr size_t kJobPorts = 4;
// Below the ports that systems give to outgoing connections (Linux' begin at 32,768: ip(7),
// ip_local_port_range), and those of Kubernetes' services on nodes, from 30,000 on.
inline constexpr uint16_t kJobPortsFirst = 15000;
inline constexpr uint16_t kJobPortsEnd = 30000;

// Returns different ports, in the order in which to try them.
std::array<uint16_t, kJobPorts> ports_of_job(std::string_view job_id);

}  // namespace muster

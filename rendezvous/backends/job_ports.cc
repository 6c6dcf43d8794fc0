#include "rendezvous/backends/job_ports.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

// The finalizer of splitmix64: neighbouring ids get ports that are far apart.
uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

std::array<uint16_t, kJobPorts> ports_of_job(std::string_view job_id) {
  std::array<uint16_t, kJobPorts> ports{};
  const uint64_t seed = fnv1a(job_id);
  uint64_t number = 0;
  for (size_t i = 0; i < ports.size();) {
    const uint64_t offset = mixed(seed + ++number) % (kJobPortsEnd - kJobPortsFirst);
    ports[i] = static_cast<uint16_t>(kJobPortsFirst + offset);
    const auto end = ports.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(ports.begin(), end, ports[i]) == end) ++i;
  }
  return ports;
}

}  // namespace muster

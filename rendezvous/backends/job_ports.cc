#include "rendezvous/backends/job_ports.h"

#include <algorithm>

namespace muster {
namespace {

// 64-bit FNV-1a: the same in every build of muster.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// The finalizer of splitmix64: neighbouring ids get ports that are far apart.
uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

std::array<uint16_t, kJobPorts> ports_of_job(std::string_view job_id) {
  std::array<uint16_t, kJobPorts> ports{};
  const uint64_t seed = hash_of(job_id);
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

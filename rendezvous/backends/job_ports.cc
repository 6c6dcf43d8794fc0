#include "rendezvous/backends/job_ports.h"

#include <algorithm>

#include "rendezvous/base/prng.h"

namespace muster {
namespace {

// FNV-1a of 64 bits: the same in every build of muster.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::array<uint16_t, kJobPorts> ports_of_job(std::string_view job_id) {
  std::array<uint16_t, kJobPorts> ports{};
  Prng random(hash_of(job_id));
  for (size_t i = 0; i < ports.size();) {
    ports[i] = static_cast<uint16_t>(kJobPortsFirst + random.below(kJobPortsEnd - kJobPortsFirst));
    const auto end = ports.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(ports.begin(), end, ports[i]) == end) ++i;
  }
  return ports;
}

}  // namespace muster

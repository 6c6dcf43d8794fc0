// What this node contributes to a job, computed once before the first attempt: the number of
// workers, the devices and CPUs of each, OMP_NUM_THREADS, and the lines for the user. Reads
// affinity, cgroup limits and sysfs, which never block; HelperProcess has queried the devices.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "agent/launch_spec.h"
#include "agent/placement/placement.h"
#include "agent/process/worker_environment.h"
#include "rendezvous/base/error.h"

namespace muster {

struct NodeSetup {
  int workers = 1;
  Placement placement;
  std::optional<int> omp_num_threads;  // Set if the user set none.
  std::vector<std::string> lines;      // Printed on stderr: warnings and the OMP line.
  std::string table;                   // The table of --report-bindings.
};

// `devices` is nullopt if needs_devices(spec) is false.
Result<NodeSetup> set_up_node(const LaunchSpec& spec, const Environment& environment,
                              std::optional<DeviceReport> devices);

struct DescriptorNeeds {
  int workers = 1;
  bool at_most = false;  // The number of workers is not known yet and may be smaller.
  int other_nodes = 0;   // Their agents and workers may connect to this node, if it hosts.

  // Derived from the command line alone.
  static DescriptorNeeds of(const LaunchSpec& spec);
};

// The most connections from others that leave this node the descriptors to start its `workers` and
// to do all else. Called after make_room_for_descriptors().
size_t connections_beside(int workers);

// Raises the soft limit if needed and allowed, and returns the old one, which workers get back.
// Fails if the hard limit is too low; the number in the message then suffices, whatever this
// process has inherited and however many workers there will be.
Result<unsigned long> make_room_for_descriptors(const DescriptorNeeds& needs);

}  // namespace muster

// What this node contributes to a job, computed once before the first attempt: how many workers,
// which devices and CPUs each gets, OMP_NUM_THREADS, and what the user has to be told about it.
// Reads affinity, cgroup limits and sysfs, none of which blocks; the devices were asked for by
// DeviceProbe.
#pragma once

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
  std::optional<int> omp_num_threads;  // To be set where the user set none.
  std::vector<std::string> lines;      // For stderr: warnings and the OMP line.
  std::string table;                   // --report-bindings: the whole table.
};

// `devices` is nullopt where needs_devices(spec) said no.
Result<NodeSetup> set_up_node(const LaunchSpec& spec, const Environment& environment,
                              std::optional<DeviceReport> devices);

// The name of this machine, as it calls itself (gethostname).
std::string own_hostname();

// What a node has to hold open at a time.
struct DescriptorNeeds {
  int workers = 1;
  bool at_most = false;  // There may be fewer workers: their number is not known yet.
  int other_nodes = 0;   // Whose agents and workers may come to this one, if it hosts.

  // From the command line alone.
  static DescriptorNeeds of(const LaunchSpec& spec);
};

// Raises the soft limit where that is needed and allowed, and returns the limit that workers shall
// get back. Fails when the hard limit is too low; the number that is named then suffices, whatever
// this process has inherited and however many the workers turn out to be.
Result<unsigned long> make_room_for_descriptors(const DescriptorNeeds& needs);

}  // namespace muster

#include "agent/job/node_setup.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/placement/proc_devices.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/cpu_limit.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/places.h"
#include "rendezvous/ring/record_fd.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// With tee: two read ends, two files, the worker's two ends until it has started; later a pidfd, or
// a pipe where the kernel refuses those, and its connections to the store.
constexpr unsigned long kDescriptorsPerWorker = 9;
constexpr unsigned long kDescriptorsPerStart = 7;  // Those until it has started.
constexpr unsigned long kDescriptorsOfOurOwn = 40;
constexpr unsigned long kVisitsPerWorker = 3;  // Connections to the host's store.
constexpr unsigned long kVisitsLeast = 8;      // Agents, and peers not yet authenticated.

// Counts the descriptors that our parent left open: all of our own are close-on-exec. If not even a
// folder can be opened, all up to the limit are in use.
unsigned long inherited_descriptors(const rlimit& limit) {
  unsigned long count = 0;
  std::error_code error;
  for (fs::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    const int fd = std::atoi(it->path().filename().c_str());
    const int flags = fd > STDERR_FILENO ? fcntl(fd, F_GETFD) : -1;
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) ++count;
  }
  return error == std::errc::too_many_files_open ? limit.rlim_cur : count;
}

unsigned long descriptors_of(int workers) {
  return kDescriptorsOfOurOwn + kDescriptorsPerWorker * static_cast<unsigned long>(workers);
}

std::string too_few_descriptors(const DescriptorNeeds& needs, const rlimit& limit,
                                unsigned long needed) {
  const std::string remedy = geteuid() == 0
                                 ? fmt::format("raise it with `ulimit -n {}`", needed)
                                 : fmt::format(
                                       "have the hard limit raised to {} (limits.conf, systemd's "
                                       "LimitNOFILE, docker's --ulimit nofile)",
                                       needed);
  return fmt::format("{}{} {} {} open files, but the limit is {} (hard limit {}): {}{}",
                     needs.at_most ? "up to " : "", counted(needs.workers, "worker"),
                     needs.workers == 1 ? "needs" : "need", needed, limit.rlim_cur, limit.rlim_max,
                     remedy, needs.workers == 1 ? "" : ", or start fewer workers");
}

InheritedDevices inherited_devices(const Environment& environment) {
  return {lookup(environment, env::kCudaVisibleDevices),
          lookup(environment, env::kHipVisibleDevices), lookup(environment, env::kCudaDeviceOrder)};
}

void decide_threads(const LaunchSpec& spec, const Environment& environment, const CpuSet& allowed,
                    NodeSetup& setup) {
  const bool own_cpus = spec.task && spec.task->cpus;
  const int sharing = spec.task && !own_cpus ? spec.task->local_size : setup.workers;
  if ((sharing <= 1 && !own_cpus) || environment.contains(std::string(env::kOmpNumThreads))) return;
  const int all = usable_cores(allowed);
  const int usable = own_cpus ? std::min(all, *spec.task->cpus) : all;
  const int bound = static_cast<int>(setup.placement.workers.front().cpus.size());
  setup.omp_num_threads = threads_per_worker(usable, sharing, bound);
  if (spec.task) return;  // Each task would say it.
  setup.lines.push_back(fmt::format(
      "OMP_NUM_THREADS={} for each of {} ({}); set it yourself "
      "to choose another number",
      *setup.omp_num_threads, counted(sharing, "worker"), counted(usable, "usable core")));
}

std::string table_of_bindings(const NodeSetup& setup, const CpuTopology& topology,
                              const CpuSet& allowed, const Environment& environment) {
  const std::string threads = setup.omp_num_threads
                                  ? std::to_string(*setup.omp_num_threads)
                                  : lookup(environment, env::kOmpNumThreads).value_or("");
  return bindings_table(setup.placement, topology, allowed, threads);
}

}  // namespace

Result<NodeSetup> set_up_node(const LaunchSpec& spec, const Environment& environment,
                              std::optional<DeviceReport> devices) {
  const InheritedDevices inherited = inherited_devices(environment);
  const CpuSet allowed = allowed_cpus();
  if (devices) add_locality(*devices);
  const bool asked_for_devices = devices.has_value();

  NodeSetup setup;
  const Result<int> workers = worker_count(spec, inherited, devices, usable_cores(allowed));
  if (!workers) return tl::unexpected<Error>(workers.error());
  setup.workers = *workers;

  std::optional<CpuTopology> topology;
  if (needs_topology(spec)) {
    Result<CpuTopology> read = read_cpu_topology();
    if (!read) return tl::unexpected<Error>(read.error());
    topology = std::move(*read);
  }
  Result<Placement> placement =
      place({spec.placement, inherited, std::move(devices), topology, allowed, setup.workers});
  if (!placement) return tl::unexpected<Error>(placement.error());
  setup.placement = std::move(*placement);
  setup.lines = setup.placement.warnings;
  if (!asked_for_devices) {
    for (std::string& warning :
         quick_device_warnings(setup.workers, inherited, quick_gpu_count())) {
      setup.lines.push_back(std::move(warning));
    }
  }
  decide_threads(spec, environment, allowed, setup);
  if (spec.placement.report_bindings && topology) {
    setup.table = table_of_bindings(setup, *topology, allowed, environment);
  }
  return setup;
}

DescriptorNeeds DescriptorNeeds::of(const LaunchSpec& spec) {
  DescriptorNeeds needs;
  needs.other_nodes = spec.rendezvous.nnodes_max - 1 + spec.rendezvous.spares;
  const std::string& count = spec.nproc_per_node;
  const auto [end, error] =
      std::from_chars(count.data(), count.data() + count.size(), needs.workers);
  if (error == std::errc{} && end == count.data() + count.size()) return needs;
  needs.at_most = true;
  needs.workers = std::max(static_cast<int>(allowed_cpus().size()), quick_gpu_count().value_or(0));
  return needs;
}

Result<unsigned long> make_room_for_descriptors(const DescriptorNeeds& needs) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return fail(ExitCode::environment,
                fmt::format("cannot read the descriptor limit: {}", std::strerror(errno)));
  }
  const unsigned long inherited = limit.rlim_cur;
  const unsigned long taken = inherited_descriptors(limit);
  const unsigned long needed = taken + descriptors_of(needs.at_most ? 1 : needs.workers);
  if (limit.rlim_max < needed) {
    return fail(ExitCode::environment,
                too_few_descriptors(needs, limit, taken + descriptors_of(needs.workers)));
  }
  // Wanted, but not worth a refusal: the host may be another node, most of a job's workers never
  // connect, and without a high number for a ring's descriptor only the recording of calls is lost.
  const unsigned long visits = static_cast<unsigned long>(needs.other_nodes) *
                               (1 + kVisitsPerWorker * static_cast<unsigned long>(needs.workers));
  const unsigned long wanted =
      std::min<unsigned long>(needed + visits + ring::kLowestRecordFd, limit.rlim_max);
  if (limit.rlim_cur >= wanted) return inherited;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
  return inherited;
}

// `least` is allowed at any limit: workers and agents need it, and more is reserved than used.
size_t connections_beside(int workers) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return Places::kUnlimited;
  const auto count = static_cast<unsigned long>(workers);
  const unsigned long reserved =
      inherited_descriptors(limit) + kDescriptorsOfOurOwn + kDescriptorsPerStart * count;
  const unsigned long least = kVisitsLeast + kVisitsPerWorker * count;
  return limit.rlim_cur > reserved + least ? limit.rlim_cur - reserved : least;
}

}  // namespace muster

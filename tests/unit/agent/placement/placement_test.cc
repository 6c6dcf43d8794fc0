#include "agent/placement/placement.h"

#include <algorithm>
#include <ostream>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {

void PrintTo(const WorkerPlacement& worker, std::ostream* out) {
  *out << "{env";
  for (const auto& [name, value] : worker.env)
    *out << " " << name << "=" << value.value_or("UNSET");
  *out << " local_rank " << worker.local_rank << " cpus " << format_cpu_list(worker.cpus)
       << " device '" << worker.device << "' node " << worker.numa_node.value_or(-1) << "}";
}

namespace {

using EnvChanges = std::vector<std::pair<std::string, std::optional<std::string>>>;
using Lines = std::vector<std::string>;

constexpr const char* kCudaList = "CUDA_VISIBLE_DEVICES";
constexpr const char* kHipList = "HIP_VISIBLE_DEVICES";
constexpr const char* kCudaOrder = "CUDA_DEVICE_ORDER";

// Four GPUs, two on each of two nodes.
DeviceReport gpus_on_two_nodes() {
  DeviceReport report{DeviceSource::nvml, {}, ""};
  for (int i = 0; i < 4; ++i) {
    const std::string digit = std::to_string(i);
    report.gpus.push_back(
        {i, "GPU-" + digit + digit, "0000:0" + digit + ":00.0", "A100", false, {}, i / 2});
  }
  return report;
}

DeviceReport gpu_in_mig_mode() {
  return {DeviceSource::nvml,
          {{0, "GPU-aa", "0000:07:00.0", "A100", true, {{"MIG-1"}, {"MIG-2"}}, 0}},
          ""};
}

// Eight cores without hardware threads on two nodes, each a socket.
CpuTopology two_nodes() {
  CpuTopology topology;
  for (int cpu = 0; cpu < 8; ++cpu)
    topology.cpus.push_back({cpu, cpu, cpu / 4, cpu - cpu % 2});
  topology.nodes = {{0, {0, 1, 2, 3}}, {1, {4, 5, 6, 7}}};
  return topology;
}

PlacementInput placement_of(int workers) {
  PlacementInput input;
  input.devices = gpus_on_two_nodes();
  input.topology = two_nodes();
  input.allowed_cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  input.workers = workers;
  return input;
}

PlacementInput without_driver(int workers) {
  PlacementInput input = placement_of(workers);
  input.devices = DeviceReport{};
  return input;
}

PlacementInput exclusively(PlacementInput input) {
  input.spec.gpu_binding = GpuBinding::exclusive;
  return input;
}

PlacementInput virtual_ranks(PlacementInput input) {
  input.spec.virtual_local_rank = true;
  return input;
}

PlacementInput inheriting(PlacementInput input, const std::string& list) {
  input.inherited.cuda_visible_devices = list;
  return input;
}

Placement placed(const PlacementInput& input) {
  const Result<Placement> placement = place(input);
  if (!placement) ADD_FAILURE() << placement.error().message;
  Placement result = placement.value_or(Placement());
  // Lets tests index the workers even after a failure.
  result.workers.resize(static_cast<size_t>(input.workers));
  return result;
}

Error placement_error(const PlacementInput& input) {
  const Result<Placement> placement = place(input);
  if (placement) ADD_FAILURE() << "not refused";
  return placement ? Error() : placement.error();
}

std::vector<EnvChanges> environments(const PlacementInput& input) {
  std::vector<EnvChanges> result;
  for (const WorkerPlacement& worker : placed(input).workers)
    result.push_back(worker.env);
  return result;
}

std::vector<int> local_ranks(const PlacementInput& input) {
  std::vector<int> result;
  for (const WorkerPlacement& worker : placed(input).workers)
    result.push_back(worker.local_rank);
  return result;
}

TEST(SharedDevices, SetNoVariablesIfTheGpusWereNotLookedUp) {
  PlacementInput input = inheriting(placement_of(2), "0,0,junk");
  input.devices = std::nullopt;
  input.topology = std::nullopt;
  WorkerPlacement second;
  second.local_rank = 1;
  EXPECT_EQ(placed(input), (Placement{{WorkerPlacement(), second}, {}}));
}

TEST(SharedDevices, KeepTheEnvironmentIfThereIsNoDriver) {
  EXPECT_EQ(environments(without_driver(2)), (std::vector<EnvChanges>{{}, {}}));
  EXPECT_EQ(environments(inheriting(without_driver(1), "0,2,-1,1")), (std::vector<EnvChanges>{{}}));
  EXPECT_EQ(placed(inheriting(without_driver(4), "0")).warnings, Lines{});
}

TEST(SharedDevices, EveryWorkerSeesTheOrderedListOfTheNode) {
  const Placement placement = placed(placement_of(2));
  const EnvChanges env{{kCudaList, "0,1,2,3"}, {kCudaOrder, "PCI_BUS_ID"}};
  EXPECT_EQ(placement, (Placement{{{env, 0, {}, "GPU 0 (GPU-00, 0000:00:00.0)", 0},
                                   {env, 1, {}, "GPU 1 (GPU-11, 0000:01:00.0)", 0}},
                                  {}}));
}

TEST(SharedDevices, InheritedListIsSetInItsFormAndOrderWithoutADeviceOrder) {
  const Placement placement = placed(inheriting(placement_of(2), "2,0"));
  const EnvChanges env{{kCudaList, "2,0"}};
  EXPECT_EQ(placement, (Placement{{{env, 0, {}, "GPU 2 (GPU-22, 0000:02:00.0)", 1},
                                   {env, 1, {}, "GPU 0 (GPU-00, 0000:00:00.0)", 0}},
                                  {}}));
  EXPECT_EQ(environments(inheriting(placement_of(1), " GPU-3 ,GPU-11")),
            (std::vector<EnvChanges>{{{kCudaList, "GPU-3,GPU-11"}}}));
}

TEST(SharedDevices, InheritedListEndsAtItsFirstInvalidEntry) {
  EXPECT_EQ(environments(inheriting(placement_of(1), "0,2,-1,1")),
            (std::vector<EnvChanges>{{{kCudaList, "0,2"}}}));
  EXPECT_EQ(environments(inheriting(placement_of(1), "3,9,1")),
            (std::vector<EnvChanges>{{{kCudaList, "3"}}}));
}

TEST(SharedDevices, ListThatShowsNothingIsLeftAloneWithAWarning) {
  EXPECT_EQ(placed(inheriting(placement_of(1), "9,1")),
            (Placement{{WorkerPlacement()},
                       {"the workers will see no GPU: CUDA_VISIBLE_DEVICES=9,1 ends at entry '9', "
                        "which is not a device of this machine (this machine has GPUs 0-3)"}}));
  EXPECT_EQ(placed(inheriting(placement_of(1), "1,1")),
            (Placement{{WorkerPlacement()},
                       {"the workers will see no GPU: CUDA_VISIBLE_DEVICES=1,1 names a device "
                        "twice, so CUDA shows none"}}));
}

TEST(SharedDevices, HidingAllGpusOnPurposeIsNoWarning) {
  EXPECT_EQ(placed(inheriting(placement_of(1), "")), (Placement{{WorkerPlacement()}, {}}));
  EXPECT_EQ(placed(inheriting(placement_of(1), "-1")), (Placement{{WorkerPlacement()}, {}}));
}

TEST(SharedDevices, ChosenGpusAreWrittenWithTheOrderOfTheirNumbers) {
  PlacementInput input = placement_of(1);
  input.spec.gpus = {"3", "1"};
  EXPECT_EQ(environments(input),
            (std::vector<EnvChanges>{{{kCudaList, "3,1"}, {kCudaOrder, "PCI_BUS_ID"}}}));
  input.spec.gpus = {"GPU-3"};
  EXPECT_EQ(environments(input), (std::vector<EnvChanges>{{{kCudaList, "GPU-33"}}}));
  EXPECT_EQ(placed(input).workers[0].device, "GPU 3 (GPU-33, 0000:03:00.0)");
}

TEST(SharedDevices, ChosenEntriesOfAnInheritedListKeepTheirMeaning) {
  PlacementInput input = inheriting(placement_of(1), "3,1,0");
  input.spec.gpus = {"2", "0"};
  EXPECT_EQ(environments(input), (std::vector<EnvChanges>{{{kCudaList, "0,3"}}}));
}

TEST(SharedDevices, MoreWorkersThanGpusIsAWarning) {
  EXPECT_EQ(placed(placement_of(5)).warnings,
            Lines{"5 workers for 4 GPUs: workers that use device LOCAL_RANK will find none from "
                  "local rank 4 on; start 4 workers or choose devices in the program"});
  EXPECT_EQ(placed(inheriting(placement_of(2), "3")).warnings,
            Lines{"2 workers for 1 GPU: workers that use device LOCAL_RANK will find none from "
                  "local rank 1 on; start 1 worker or choose devices in the program"});
  EXPECT_EQ(placed(placement_of(4)).warnings, Lines{});
}

TEST(SharedDevices, MigDevicesAreNotSharedAndAWarningSaysSo) {
  PlacementInput input = placement_of(2);
  input.devices = gpu_in_mig_mode();
  const Placement placement = placed(input);
  EXPECT_EQ(placement.workers[0].env, EnvChanges{});
  EXPECT_EQ(placement.warnings,
            Lines{"CUDA shows a process one MIG device only; give each worker its own with "
                  "--gpu-binding exclusive"});
}

TEST(SharedDevices, UnlikeGpusWithoutADeviceOrderAreAWarning) {
  PlacementInput input = inheriting(placement_of(1), "1,0");
  input.devices->gpus[3].name = "T4";
  const Lines warning{
      "the GPUs of this machine differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID, so CUDA may number "
      "them in a different order than shown here; set CUDA_DEVICE_ORDER=PCI_BUS_ID or use UUIDs"};
  EXPECT_EQ(placed(input).warnings, warning);
  input.inherited.cuda_device_order = "FASTEST_FIRST";
  EXPECT_EQ(placed(input).warnings, warning);
  input.inherited.cuda_device_order = "PCI_BUS_ID";
  EXPECT_EQ(placed(input).warnings, Lines{});
  input.inherited.cuda_device_order = std::nullopt;
  input.inherited.cuda_visible_devices = "GPU-11";
  EXPECT_EQ(placed(input).warnings, Lines{});
}

TEST(SharedDevices, DriverProblemBecomesAWarning) {
  PlacementInput input = without_driver(1);
  input.devices->problem = "NVML failed to start: Driver/library version mismatch (NVML error 18)";
  EXPECT_EQ(placed(input).warnings, Lines{"the GPU driver reports a problem: NVML failed to start: "
                                          "Driver/library version mismatch (NVML error 18)"});
}

TEST(ExclusiveDevices, EachWorkerHasOneDeviceAndLocalRankZero) {
  const Placement placement = placed(exclusively(placement_of(2)));
  EXPECT_EQ(placement, (Placement{{{{{kCudaList, "0"}, {kCudaOrder, "PCI_BUS_ID"}},
                                    0,
                                    {},
                                    "GPU 0 (GPU-00, 0000:00:00.0)",
                                    0},
                                   {{{kCudaList, "1"}, {kCudaOrder, "PCI_BUS_ID"}},
                                    0,
                                    {},
                                    "GPU 1 (GPU-11, 0000:01:00.0)",
                                    0}},
                                  {}}));
}

TEST(ExclusiveDevices, LocalRankIsKeptOnRequest) {
  PlacementInput input = exclusively(placement_of(3));
  EXPECT_EQ(local_ranks(input), (std::vector<int>{0, 0, 0}));
  input.spec.keep_local_rank = true;
  EXPECT_EQ(local_ranks(input), (std::vector<int>{0, 1, 2}));
}

TEST(ExclusiveDevices, InheritedEntriesAreHandedOutInTheUsersForm) {
  EXPECT_EQ(environments(exclusively(inheriting(placement_of(2), "2,0"))),
            (std::vector<EnvChanges>{{{kCudaList, "2"}}, {{kCudaList, "0"}}}));
  EXPECT_EQ(environments(exclusively(inheriting(placement_of(2), "GPU-22,GPU-0"))),
            (std::vector<EnvChanges>{{{kCudaList, "GPU-22"}}, {{kCudaList, "GPU-0"}}}));
}

TEST(ExclusiveDevices, MigDevicesAreHandedOutByName) {
  PlacementInput input = exclusively(placement_of(2));
  input.devices = gpu_in_mig_mode();
  const Placement placement = placed(input);
  EXPECT_EQ(placement.workers[0].env, (EnvChanges{{kCudaList, "MIG-1"}}));
  EXPECT_EQ(placement.workers[1].env, (EnvChanges{{kCudaList, "MIG-2"}}));
  EXPECT_EQ(placement.workers[1].device, "GPU 0 (GPU-aa, MIG-2, 0000:07:00.0)");
  EXPECT_EQ(placement.warnings, Lines{});
}

TEST(ExclusiveDevices, ChosenGpusAreHandedOutInTheirOrder) {
  PlacementInput input = exclusively(placement_of(2));
  input.spec.gpus = {"3", "1"};
  EXPECT_EQ(environments(input),
            (std::vector<EnvChanges>{{{kCudaList, "3"}, {kCudaOrder, "PCI_BUS_ID"}},
                                     {{kCudaList, "1"}, {kCudaOrder, "PCI_BUS_ID"}}}));
}

TEST(ExclusiveDevices, TooFewDevicesAreAnErrorThatNamesTheAvailableOnes) {
  EXPECT_EQ(placement_error(exclusively(placement_of(5))),
            (Error{ExitCode::environment,
                   "--gpu-binding exclusive: 5 workers need a device each, but there are 4 (this "
                   "machine has GPUs 0-3); start fewer workers or make more devices visible"}));
  EXPECT_EQ(placement_error(exclusively(inheriting(placement_of(2), "1,9"))).message,
            "--gpu-binding exclusive: 2 workers need a device each, but there is 1 "
            "(CUDA_VISIBLE_DEVICES=1,9 ends at entry '9', which is not a device of this machine "
            "(this machine has GPUs 0-3)); start fewer workers or make more devices visible");
  PlacementInput input = exclusively(placement_of(2));
  input.spec.gpus = {"1"};
  EXPECT_EQ(
      placement_error(input).message,
      "--gpu-binding exclusive: 2 workers need a device each, but there is 1 (--gpus names no "
      "more); start fewer workers or make more devices visible");
}

TEST(ExclusiveDevices, NoDriverAndNoListIsAnError) {
  EXPECT_EQ(placement_error(exclusively(without_driver(1))).message,
            "--gpu-binding exclusive: 1 worker needs a device each, but there are 0 (no NVIDIA "
            "driver was found (no libnvidia-ml.so.1 and no /proc/driver/nvidia/gpus)); start fewer "
            "workers or make more devices visible");
}

TEST(ExclusiveDevices, ListIsTakenAsTextIfThereIsNoDriver) {
  EXPECT_EQ(environments(exclusively(inheriting(without_driver(2), "5,6"))),
            (std::vector<EnvChanges>{{{kCudaList, "5"}}, {{kCudaList, "6"}}}));
  EXPECT_EQ(placement_error(exclusively(inheriting(without_driver(2), "5,GPU-1"))).message,
            "--gpu-binding exclusive: 2 workers need a device each, but there is 1 "
            "(CUDA_VISIBLE_DEVICES=5,GPU-1 ends at entry 'GPU-1', which is not of the same kind as "
            "the first one); start fewer workers or make more devices visible");
}

TEST(ExclusiveDevices, RepeatedDeviceIsAnError) {
  EXPECT_EQ(placement_error(exclusively(inheriting(placement_of(2), "1,1"))),
            (Error{ExitCode::environment,
                   "--gpu-binding exclusive: CUDA_VISIBLE_DEVICES=1,1 names a device twice; name "
                   "each once"}));
}

TEST(VirtualLocalRank, UsesTheIndexIfThereIsNoDriverAndNoList) {
  EXPECT_EQ(environments(virtual_ranks(without_driver(2))),
            (std::vector<EnvChanges>{{{kCudaList, "0"}, {kCudaOrder, "PCI_BUS_ID"}},
                                     {{kCudaList, "1"}, {kCudaOrder, "PCI_BUS_ID"}}}));
  EXPECT_EQ(local_ranks(virtual_ranks(without_driver(2))), (std::vector<int>{0, 0}));
}

TEST(VirtualLocalRank, TakesTheListAsTextIfThereIsNoDriverAsTorchrunDoes) {
  EXPECT_EQ(environments(virtual_ranks(inheriting(without_driver(3), " 7, x ,"))),
            (std::vector<EnvChanges>{{{kCudaList, "7"}}, {{kCudaList, "x"}}, {{kCudaList, ""}}}));
}

TEST(VirtualLocalRank, EmptyListGivesOneWorkerNothing) {
  EXPECT_EQ(environments(virtual_ranks(inheriting(without_driver(1), ""))),
            (std::vector<EnvChanges>{{{kCudaList, ""}}}));
  EXPECT_EQ(environments(virtual_ranks(inheriting(placement_of(1), ""))),
            (std::vector<EnvChanges>{{{kCudaList, ""}}}));
  EXPECT_EQ(placement_error(virtual_ranks(inheriting(placement_of(2), ""))).code,
            ExitCode::environment);
}

TEST(VirtualLocalRank, ListThatIsTooShortIsAnError) {
  EXPECT_EQ(placement_error(virtual_ranks(inheriting(without_driver(3), "0,1"))).message,
            "--virtual-local-rank: 3 workers need a device each, but there are 2 "
            "(CUDA_VISIBLE_DEVICES=0,1); start fewer workers or make more devices visible");
}

TEST(VirtualLocalRank, ReadsAmdsListAndWritesBoth) {
  PlacementInput input = virtual_ranks(inheriting(without_driver(2), "5"));
  input.inherited.hip_visible_devices = "2, 3";
  EXPECT_EQ(environments(input), (std::vector<EnvChanges>{{{kCudaList, "2"}, {kHipList, "2"}},
                                                          {{kCudaList, "3"}, {kHipList, "3"}}}));
  input.inherited.hip_visible_devices = "";
  EXPECT_EQ(placement_error(input).code, ExitCode::environment);
}

TEST(VirtualLocalRank, ChecksTheDevicesIfThereIsADriver) {
  EXPECT_EQ(environments(virtual_ranks(inheriting(placement_of(2), "3,1,9"))),
            (std::vector<EnvChanges>{{{kCudaList, "3"}}, {{kCudaList, "1"}}}));
  EXPECT_EQ(placement_error(virtual_ranks(inheriting(placement_of(3), "3,1,9"))).code,
            ExitCode::environment);
  EXPECT_EQ(placement_error(virtual_ranks(inheriting(placement_of(1), "9"))).code,
            ExitCode::environment);
  EXPECT_EQ(placement_error(virtual_ranks(placement_of(5))).code, ExitCode::environment);
}

TEST(VirtualLocalRank, OneDeviceMayServeSeveralWorkers) {
  EXPECT_EQ(environments(virtual_ranks(inheriting(placement_of(2), "1,1"))),
            (std::vector<EnvChanges>{{{kCudaList, "1"}}, {{kCudaList, "1"}}}));
}

TEST(VirtualLocalRank, KeepsTheRankOnRequest) {
  PlacementInput input = virtual_ranks(without_driver(2));
  input.spec.keep_local_rank = true;
  EXPECT_EQ(local_ranks(input), (std::vector<int>{0, 1}));
}

std::vector<CpuSet> cpu_sets(PlacementInput input, NumaBinding mode) {
  input.spec.numa_binding = mode;
  std::vector<CpuSet> result;
  for (const WorkerPlacement& worker : placed(input).workers)
    result.push_back(worker.cpus);
  return result;
}

TEST(NumaPlacement, BindsWorkersToTheNodeOfTheirGpu) {
  EXPECT_EQ(cpu_sets(placement_of(4), NumaBinding::node),
            (std::vector<CpuSet>{{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}}));
  EXPECT_EQ(cpu_sets(inheriting(placement_of(2), "3,0"), NumaBinding::node),
            (std::vector<CpuSet>{{4, 5, 6, 7}, {0, 1, 2, 3}}));
  EXPECT_EQ(cpu_sets(exclusively(inheriting(placement_of(2), "3,0")), NumaBinding::node),
            (std::vector<CpuSet>{{4, 5, 6, 7}, {0, 1, 2, 3}}));
}

TEST(NumaPlacement, ExclusiveCountsEveryVisibleDeviceNotOnlyThoseInUse) {
  EXPECT_EQ(cpu_sets(placement_of(1), NumaBinding::exclusive), (std::vector<CpuSet>{{0, 1}}));
  EXPECT_EQ(cpu_sets(inheriting(placement_of(1), "1"), NumaBinding::exclusive),
            (std::vector<CpuSet>{{0, 1, 2, 3}}));
}

TEST(NumaPlacement, SurplusWorkersTakeTheDevicesInTurn) {
  EXPECT_EQ(cpu_sets(inheriting(placement_of(3), "3,0"), NumaBinding::socket),
            (std::vector<CpuSet>{{4, 5, 6, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST(NumaPlacement, BindsNoWorkerWithoutTheFlag) {
  EXPECT_EQ(cpu_sets(placement_of(2), NumaBinding::none), (std::vector<CpuSet>{{}, {}}));
}

TEST(NumaPlacement, IsAnErrorIfThereIsNoGpu) {
  PlacementInput input = without_driver(1);
  input.spec.numa_binding = NumaBinding::node;
  EXPECT_EQ(placement_error(input),
            (Error{ExitCode::environment,
                   "--numa-binding node: there is no GPU to bind near: no NVIDIA driver was found "
                   "(no libnvidia-ml.so.1 and no /proc/driver/nvidia/gpus); leave the flag out, or "
                   "bind the program itself with taskset or numactl"}));
  input = inheriting(placement_of(1), "");
  input.spec.numa_binding = NumaBinding::core_complex;
  EXPECT_EQ(placement_error(input).message,
            "--numa-binding core-complex: there is no GPU to bind near: CUDA_VISIBLE_DEVICES= is "
            "empty; leave the flag out, or bind the program itself with taskset or numactl");
}

TEST(NumaPlacement, GpuWithoutLocalityIsAnError) {
  PlacementInput input = placement_of(1);
  input.spec.numa_binding = NumaBinding::node;
  input.devices->gpus[2].numa_node = std::nullopt;
  EXPECT_EQ(placement_error(input).message,
            "--numa-binding node: the NUMA node of GPU 2 (GPU-22, 0000:02:00.0) is not known, as "
            "sysfs does not show bus/pci/devices/0000:02:00.0/numa_node; leave the flag out");
}

TEST(NumaPlacement, ErrorsOfTheBindingArePassedOn) {
  PlacementInput input = placement_of(1);
  input.spec.numa_binding = NumaBinding::node;
  input.allowed_cpus = {0};
  EXPECT_EQ(placement_error(input).code, ExitCode::environment);
}

InheritedDevices inheriting_list(const std::string& list) {
  return {list, std::nullopt, std::nullopt};
}

TEST(QuickWarnings, SayThatWorkersOutnumberTheVisibleGpus) {
  EXPECT_EQ(quick_device_warnings(8, {}, 4),
            Lines({"8 workers for 4 GPUs: workers that use device LOCAL_RANK will find none from "
                   "local rank 4 on"}));
  EXPECT_EQ(quick_device_warnings(2, inheriting_list("3"), 4),
            Lines({"2 workers for 1 GPU (CUDA_VISIBLE_DEVICES=3): workers that use device "
                   "LOCAL_RANK will find none from local rank 1 on"}));
}

TEST(QuickWarnings, NameTheEntryThatIsNoDevice) {
  const std::string list =
      "CUDA_VISIBLE_DEVICES=0,9,1 ends at entry '9', which is not a device of this machine (this "
      "machine has GPUs 0-3)";
  EXPECT_EQ(quick_device_warnings(1, inheriting_list("0,9,1"), 4), Lines({list}));
  EXPECT_EQ(quick_device_warnings(2, inheriting_list("0,9,1"), 4),
            Lines({list,
                   "2 workers for 1 GPU (CUDA_VISIBLE_DEVICES=0,9,1): workers that use device "
                   "LOCAL_RANK will find none from local rank 1 on"}));
  EXPECT_EQ(quick_device_warnings(1, inheriting_list("0,1,2,3"), 4), Lines{});
}

TEST(QuickWarnings, AreNotGivenWithoutReason) {
  for (const char* list : {"", "-1", "NoDevFiles", "MIG-1", "GPU-1,GPU-2"})
    EXPECT_EQ(quick_device_warnings(2, inheriting_list(list), 4), Lines{}) << list;
  EXPECT_EQ(quick_device_warnings(8, {}, std::nullopt), Lines{});
  EXPECT_EQ(quick_device_warnings(8, {}, 0), Lines{});
  EXPECT_EQ(quick_device_warnings(4, {}, 4), Lines{});
  EXPECT_EQ(quick_device_warnings(2, inheriting_list("0,9"), std::nullopt), Lines{});
}

TEST(SharedDevices, ListThatIsCutShortIsAWarning) {
  for (const char* list : {"3,9,1", "3,,1", "3,GPU-1", "3,-1"}) {
    const Placement placement = placed(inheriting(placement_of(1), list));
    ASSERT_EQ(placement.warnings.size(), 1u) << list;
    EXPECT_EQ(
        placement.warnings.front().find(std::string("CUDA_VISIBLE_DEVICES=") + list + " ends at "),
        0u);
  }
  EXPECT_EQ(placed(inheriting(placement_of(1), "3,9,1")).warnings,
            Lines({"CUDA_VISIBLE_DEVICES=3,9,1 ends at entry '9', which is not a device of this "
                   "machine (this machine has GPUs 0-3): the workers see the devices before it"}));
}

// For any list: all tokens come from it, no worker gets two devices in exclusive mode, and the
// device order is not set beside numbers that the user gave.
RC_GTEST_PROP(PlacementProperty, InheritedListsAreOnlyEverNarrowed, ()) {
  const auto entries = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("0", "1", "2", "3", "4", "-1", "GPU-0", "GPU-33", "", "x"));
  std::string list;
  for (const std::string& entry : entries)
    list += (list.empty() ? "" : ",") + entry;
  PlacementInput input = inheriting(placement_of(*rc::gen::inRange(1, 5)), list);
  if (*rc::gen::arbitrary<bool>()) input = exclusively(input);
  if (*rc::gen::arbitrary<bool>()) input = virtual_ranks(input);
  if (*rc::gen::arbitrary<bool>()) input.devices = DeviceReport{};
  const Result<Placement> placement = place(input);
  RC_PRE(placement.has_value());
  const Lines known = split_visible_devices(list);
  for (const WorkerPlacement& worker : placement->workers) {
    for (const auto& [name, value] : worker.env) {
      RC_ASSERT(name == kCudaList);
      const Lines tokens = split_visible_devices(*value);
      for (const std::string& token : tokens) {
        RC_ASSERT(std::find(known.begin(), known.end(), token) != known.end());
      }
      if (input.spec.gpu_binding == GpuBinding::exclusive) RC_ASSERT(tokens.size() == 1u);
    }
  }
}

}  // namespace
}  // namespace muster

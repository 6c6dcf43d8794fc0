#include <gtest/gtest.h>

#include "agent/placement/placement.h"

namespace muster {
namespace {

std::optional<DeviceReport> countable_gpus() {
  DeviceReport report{DeviceSource::nvml, {}, ""};
  for (int i = 0; i < 4; ++i) {
    report.gpus.push_back({i, "GPU-" + std::to_string(i), "", "A100", false, {}, {}});
  }
  return report;
}

const std::optional<DeviceReport> kNothingToCount = DeviceReport{};

LaunchSpec spec_asking_for(const std::string& nproc) {
  LaunchSpec spec;
  spec.nproc_per_node = nproc;
  return spec;
}

InheritedDevices counting_in(const std::string& list) {
  return {list, std::nullopt, std::nullopt};
}

// Returns the count with six allowed CPUs; an error fails the test.
int worker_number(const std::string& nproc, const InheritedDevices& inherited = {},
                  const std::optional<DeviceReport>& devices = countable_gpus()) {
  const Result<int> count = worker_count(spec_asking_for(nproc), inherited, devices, 6);
  if (!count) ADD_FAILURE() << count.error().message;
  return count.value_or(-1);
}

TEST(WorkerCount, ANumberIsTheNumberOfWorkers) {
  EXPECT_EQ(worker_number("1"), 1);
  EXPECT_EQ(worker_number("65536"), 65536);
}

TEST(WorkerCount, NumbersOutOfRangeAreUsageErrors) {
  for (const char* nproc : {"0", "-1", "65537"}) {
    const Result<int> count = worker_count(spec_asking_for(nproc), {}, std::nullopt, 6);
    ASSERT_FALSE(count) << nproc;
    EXPECT_EQ(count.error(),
              (Error{ExitCode::usage, std::string("--nproc-per-node ") + nproc +
                                          " is out of range; give a number from 1 to 65536"}));
  }
}

TEST(WorkerCount, CpuMeansTheCpusOfTheAffinityMask) {
  EXPECT_EQ(worker_number("cpu"), 6);
  EXPECT_EQ(worker_number("cpu", {}, std::nullopt), 6);
}

TEST(WorkerCount, GpuAndAutoCountTheVisibleDevices) {
  for (const char* nproc : {"gpu", "auto"}) {
    EXPECT_EQ(worker_number(nproc), 4);
    EXPECT_EQ(worker_number(nproc, counting_in("2,0")), 2);
    EXPECT_EQ(worker_number(nproc, counting_in("GPU-1,GPU-3,GPU-9")), 2);
    EXPECT_EQ(worker_number(nproc, counting_in("0,1,2,3,4,5")), 4);
  }
}

TEST(WorkerCount, AutoCountsTheCpusIfNoDeviceIsVisible) {
  EXPECT_EQ(worker_number("auto", {}, kNothingToCount), 6);
  EXPECT_EQ(worker_number("auto", counting_in("0,1"), kNothingToCount), 6);
  EXPECT_EQ(worker_number("auto", counting_in("")), 6);
  EXPECT_EQ(worker_number("auto", counting_in("-1")), 6);
  EXPECT_EQ(worker_number("auto", counting_in("1,1")), 6);
}

TEST(WorkerCount, GpuWithoutAVisibleDeviceIsAnErrorWithTheReason) {
  const std::vector<std::pair<InheritedDevices, std::string>> cases = {
      {counting_in(""), "CUDA_VISIBLE_DEVICES= is empty"},
      {counting_in("1,1"), "CUDA_VISIBLE_DEVICES=1,1 names a device twice, so CUDA shows none"},
      {counting_in("8"),
       "CUDA_VISIBLE_DEVICES=8 ends at entry '8', which is not a device of this machine (this "
       "machine has GPUs 0-3)"},
  };
  for (const auto& [inherited, reason] : cases) {
    const Result<int> count = worker_count(spec_asking_for("gpu"), inherited, countable_gpus(), 6);
    ASSERT_FALSE(count) << reason;
    EXPECT_EQ(count.error(),
              (Error{ExitCode::environment, "--nproc-per-node gpu: no GPU can be used: " + reason +
                                                "; give a number of workers, or cpu"}));
  }
}

TEST(WorkerCount, GpuWithoutADriverIsAnErrorWhateverTheListSays) {
  for (const InheritedDevices& inherited : {InheritedDevices{}, counting_in("0,1")}) {
    const Result<int> count = worker_count(spec_asking_for("gpu"), inherited, kNothingToCount, 6);
    ASSERT_FALSE(count);
    EXPECT_EQ(count.error().message,
              "--nproc-per-node gpu: no GPU can be used: no NVIDIA driver was found (no "
              "libnvidia-ml.so.1 and no /proc/driver/nvidia/gpus); give a number of workers, or "
              "cpu");
  }
}

TEST(WorkerCount, ChosenGpusAreCounted) {
  LaunchSpec spec = spec_asking_for("gpu");
  spec.placement.gpus = {"3", "GPU-1"};
  EXPECT_EQ(worker_count(spec, {}, countable_gpus(), 6), 2);
  spec.placement.gpus = {"4"};
  EXPECT_FALSE(worker_count(spec, {}, countable_gpus(), 6));
}

TEST(WorkerCount, MigDevicesAreCountedOneByOne) {
  std::optional<DeviceReport> devices = countable_gpus();
  devices->gpus[1].mig_enabled = true;
  devices->gpus[1].mig = {{"MIG-1"}, {"MIG-2"}, {"MIG-3"}};
  EXPECT_EQ(worker_number("gpu", {}, devices), 6);
  EXPECT_EQ(worker_number("gpu", counting_in("MIG-3,MIG-1"), devices), 2);
}

TEST(WorkerCount, AmdDevicesAreCountedByTheirList) {
  EXPECT_EQ(worker_number("gpu", {std::nullopt, "0,1,2", std::nullopt}, kNothingToCount), 3);
}

TEST(WorkerCount, VirtualRanksMayShareARepeatedDevice) {
  LaunchSpec spec = spec_asking_for("gpu");
  spec.placement.virtual_local_rank = true;
  EXPECT_EQ(worker_count(spec, counting_in("1,1"), countable_gpus(), 6), 2);
}

TEST(WorkerCount, IntelDevicesAreRefusedWithARemedy) {
  const Result<int> count = worker_count(spec_asking_for("xpu"), {}, countable_gpus(), 6);
  ASSERT_FALSE(count);
  EXPECT_EQ(count.error(),
            (Error{ExitCode::environment,
                   "--nproc-per-node xpu: Intel GPUs cannot be counted here; give their number"}));
}

TEST(WorkerCount, WorkersShareTheCoresAndEachHasAtLeastOne) {
  EXPECT_EQ(threads_per_worker(16, 4, 0), 4);
  EXPECT_EQ(threads_per_worker(16, 3, 0), 5);
  EXPECT_EQ(threads_per_worker(2, 8, 0), 1);
  EXPECT_EQ(threads_per_worker(16, 2, 4), 4);
  EXPECT_EQ(threads_per_worker(16, 4, 32), 4);
}

TEST(WorkerCount, DevicesAreLookedUpOnlyForFlagsThatNeedThem) {
  EXPECT_FALSE(needs_devices(spec_asking_for("cpu")));
  EXPECT_TRUE(needs_devices(spec_asking_for("gpu")));
  EXPECT_TRUE(needs_devices(spec_asking_for("auto")));
  struct Row {
    void (*change)(PlacementSpec&);
    bool devices, topology;
  };
  const Row rows[] = {
      {[](PlacementSpec&) {}, false, false},
      {[](PlacementSpec& s) { s.gpus = {"0"}; }, true, false},
      {[](PlacementSpec& s) { s.gpu_binding = GpuBinding::exclusive; }, true, false},
      {[](PlacementSpec& s) { s.virtual_local_rank = true; }, true, false},
      {[](PlacementSpec& s) { s.numa_binding = NumaBinding::socket; }, true, true},
      {[](PlacementSpec& s) { s.report_bindings = true; }, true, true},
      {[](PlacementSpec& s) { s.keep_local_rank = true; }, false, false},
  };
  for (const Row& row : rows) {
    LaunchSpec spec = spec_asking_for("4");
    row.change(spec.placement);
    EXPECT_EQ(needs_devices(spec), row.devices) << &row - rows;
    EXPECT_EQ(needs_topology(spec), row.topology) << &row - rows;
  }
}

}  // namespace
}  // namespace muster

// The device query end to end, against the fake driver library: child process, dlopen, NVML calls
// and JSON.
#include <array>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "agent/placement/devices.h"
#include "agent/placement/nvml.h"
#include "tests/fakes/temp_tree.h"
#include "tests/unit/paths.h"

namespace muster {
namespace {

// Runs the query program with one of the launcher's hidden flags and returns its output.
std::string printed_by_query(std::string_view flag) {
  const std::string command = fmt::format("'{}' {} 2> /dev/null", paths::kDeviceQuery, flag);
  FILE* const output = popen(command.c_str(), "re");
  std::string text;
  std::array<char, 4096> buffer;
  while (const size_t got = fread(buffer.data(), 1, buffer.size(), output))
    text.append(buffer.data(), got);
  EXPECT_EQ(pclose(output), 0);
  return text;
}

class DeviceQuery : public testing::Test {
 protected:
  DeviceQuery() { setenv("LD_LIBRARY_PATH", paths::kFakeNvmlFolder, 1); }
  ~DeviceQuery() override {
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("FAKE_NVML");
  }

  void machine(const std::string& facts) {
    tree_.write("facts", facts);
    setenv("FAKE_NVML", (tree_.root() / "facts").c_str(), 1);
  }

  static DeviceReport devices() {
    const auto report = parse_device_report(printed_by_query("--internal-devices"));
    if (!report) ADD_FAILURE() << report.error().message;
    return report.value_or(DeviceReport());
  }

  static std::vector<GpuProcess> users() {
    const auto processes = parse_gpu_processes(printed_by_query("--internal-device-users"));
    if (!processes) ADD_FAILURE() << processes.error().message;
    return processes.value_or(std::vector<GpuProcess>());
  }

  TempTree tree_;
};

TEST_F(DeviceQuery, GpusAreListedInPciOrderUnderTheirNvmlNumbers) {
  machine(
      "gpu 00000000:AF:00.0 GPU-aaaa NVIDIA A100-SXM4-80GB\n"
      "gpu 00000000:3B:00.0 GPU-bbbb NVIDIA H100\n"
      "gpu 00010000:01:00.0 GPU-cccc NVIDIA H100\n");
  EXPECT_EQ(devices(),
            (DeviceReport{DeviceSource::nvml,
                          {{1, "GPU-bbbb", "0000:3b:00.0", "NVIDIA H100", false, {}, {}},
                           {0, "GPU-aaaa", "0000:af:00.0", "NVIDIA A100-SXM4-80GB", false, {}, {}},
                           {2, "GPU-cccc", "10000:01:00.0", "NVIDIA H100", false, {}, {}}},
                          ""}));
}

TEST_F(DeviceQuery, MigDevicesAreListed) {
  machine(
      "gpu 00000000:07:00.0 GPU-aaaa A100\n"
      "gpu 00000000:0B:00.0 GPU-bbbb A100\n"
      "mig 0 MIG-1\n"
      "mig 0 MIG-2\n"
      "mig 1 -\n");
  EXPECT_EQ(
      devices().gpus,
      (std::vector<Gpu>{{0, "GPU-aaaa", "0000:07:00.0", "A100", true, {{"MIG-1"}, {"MIG-2"}}, {}},
                        {1, "GPU-bbbb", "0000:0b:00.0", "A100", true, {}, {}}}));
}

TEST_F(DeviceQuery, DriverWithoutGpusIsNoProblem) {
  EXPECT_EQ(devices(), (DeviceReport{DeviceSource::nvml, {}, ""}));
}

TEST_F(DeviceQuery, DriverThatIsNotLoadedCountsAsNoDriver) {
  machine("init_error 9");
  EXPECT_EQ(devices().problem, "");
  EXPECT_NE(devices().source, DeviceSource::nvml);
}

TEST_F(DeviceQuery, BrokenDriverIsNamed) {
  machine("init_error 18");
  EXPECT_EQ(devices().problem,
            "NVML failed to start: Driver/library version mismatch (NVML error 18)");
  EXPECT_EQ(users(), std::vector<GpuProcess>{});
}

TEST_F(DeviceQuery, LostGpuDoesNotHideTheOthers) {
  machine(
      "gpu 00000000:07:00.0 GPU-aaaa A100\n"
      "gpu 00000000:0B:00.0 GPU-bbbb A100\n"
      "lost 0\n");
  const DeviceReport report = devices();
  EXPECT_EQ(report.gpus,
            (std::vector<Gpu>{{1, "GPU-bbbb", "0000:0b:00.0", "A100", false, {}, {}}}));
  EXPECT_EQ(report.problem, "GPU 0: GPU is lost (NVML error 15)");
}

TEST_F(DeviceQuery, NoiseOfTheLibraryDoesNotSpoilTheReport) {
  machine("gpu 00000000:07:00.0 GPU-aaaa A100\nnoise hello from the driver");
  EXPECT_EQ(devices().gpus.size(), 1u);
}

TEST_F(DeviceQuery, UsersAreListedPerGpuByPid) {
  machine(
      "gpu 00000000:07:00.0 GPU-aaaa A100\n"
      "gpu 00000000:0B:00.0 GPU-bbbb A100\n"
      "process 0 77 2000\n"
      "process 0 12 1000\n"
      "process 1 12 18446744073709551615\n");
  EXPECT_EQ(users(), (std::vector<GpuProcess>{{0, 12, 1000}, {0, 77, 2000}, {1, 12, 0}}));
}

TEST_F(DeviceQuery, UsersOfMigSlicesAreAddedUp) {
  machine(
      "gpu 00000000:07:00.0 GPU-aaaa A100\n"
      "mig 0 MIG-1\n"
      "mig 0 MIG-2\n"
      "process 0 12 1000 0\n"
      "process 0 12 500 1\n"
      "process 0 13 7 1\n");
  EXPECT_EQ(users(), (std::vector<GpuProcess>{{0, 12, 1500}, {0, 13, 7}}));
}

TEST_F(DeviceQuery, UsersBeyondTheFirstGuessOfTheirNumberAreListed) {
  std::string facts = "gpu 00000000:07:00.0 GPU-aaaa A100\n";
  std::vector<GpuProcess> expected;
  for (int pid = 1000; pid < 1300; ++pid) {
    facts += "process 0 " + std::to_string(pid) + " 1\n";
    expected.push_back({0, pid, 1});
  }
  machine(facts);
  EXPECT_EQ(users(), expected);
}

TEST(NvmlInProcess, NoLibraryFallsBackToProcAndThenToNothing) {
  const TempTree tree;
  if (query_devices_in_process(tree.root()).source == DeviceSource::nvml) {
    GTEST_SKIP() << "this machine has a real NVML";
  }
  EXPECT_EQ(query_devices_in_process(tree.root()), DeviceReport());
  tree.write("driver/nvidia/gpus/0000:3b:00.0/information", "GPU UUID: \t GPU-8932");
  EXPECT_EQ(
      query_devices_in_process(tree.root()),
      (DeviceReport{DeviceSource::proc, {{0, "GPU-8932", "0000:3b:00.0", "", false, {}, {}}}, ""}));
}

}  // namespace
}  // namespace muster

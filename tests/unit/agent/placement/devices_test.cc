#include "agent/placement/devices.h"

#include <gtest/gtest.h>

#include "agent/placement/proc_devices.h"
#include "tests/fakes/temp_tree.h"

namespace muster {
namespace {

DeviceReport sample_device_report() {
  return {DeviceSource::nvml,
          {{0, "GPU-8932f937-d72c", "0000:3b:00.0", "NVIDIA H100", false, {}, {}},
           {1, "GPU-1111", "0001:af:00.0", "A100 \"x\"", true, {{"MIG-1"}, {"MIG-2"}}, {}}},
          "GPU 2: lost"};
}

TEST(Devices, ReportSurvivesItsJsonForm) {
  const Result<DeviceReport> parsed =
      parse_device_report(format_device_report(sample_device_report()));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, sample_device_report());
}

TEST(Devices, EveryEmptyReportSurvivesItsJsonForm) {
  for (const DeviceSource source : {DeviceSource::none, DeviceSource::nvml, DeviceSource::proc}) {
    const DeviceReport report{source, {}, ""};
    const Result<DeviceReport> parsed = parse_device_report(format_device_report(report));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, report);
  }
}

TEST(Devices, ProcessesSurviveTheirJsonForm) {
  const std::vector<GpuProcess> many{{3, 12, 80ull << 30}, {3, 13, 0}, {4, 12, 1}};
  for (const std::vector<GpuProcess>& processes : {many, std::vector<GpuProcess>{}}) {
    const auto parsed = parse_gpu_processes(format_gpu_processes(processes));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, processes);
  }
}

TEST(Devices, ReportIsOneLineWhateverTheDriverCallsItsGpus) {
  DeviceReport report = sample_device_report();
  report.gpus[0].name = "two\nlines \xff\xfe";
  const std::string line = format_device_report(report);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Result<DeviceReport> parsed = parse_device_report(line);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->gpus[0].name.substr(0, 9), "two\nlines");
}

TEST(Devices, TextThatALibraryPrintsBeforeTheReportIsIgnored) {
  const std::string text =
      "driver says hello\n{}\n" + format_device_report(sample_device_report()) + "\n";
  const Result<DeviceReport> parsed = parse_device_report(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, sample_device_report());
}

TEST(Devices, MalformedReportsAreRefused) {
  const std::string whole = format_device_report(sample_device_report());
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("null"), std::string("[]"), std::string("{}"),
        whole.substr(0, whole.size() / 2), whole + "x",
        std::string(R"({"source":"moon","problem":"","gpus":[]})"),
        std::string(R"({"source":"nvml","problem":"","gpus":{}})"),
        std::string(R"({"source":"nvml","problem":1,"gpus":[]})"),
        std::string(R"({"source":"nvml","problem":"","gpus":[null]})"),
        std::string(R"({"source":"nvml","problem":"","gpus":[{"index":-1}]})")}) {
    const Result<DeviceReport> parsed = parse_device_report(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ExitCode::internal);
  }
}

TEST(Devices, MalformedProcessListsAreRefused) {
  for (const char* text : {"", "null", "{}", R"({"processes":[{}]})", R"({"processes":{}})",
                           R"({"processes":[{"index":0,"pid":"1","used_bytes":0}]})"}) {
    EXPECT_FALSE(parse_gpu_processes(text)) << text;
  }
}

TEST(Devices, NumbersOutOfRangeAreRefused) {
  EXPECT_TRUE(parse_gpu_processes(R"({"processes":[{"index":0,"pid":1,"used_bytes":5}]})"));
  EXPECT_FALSE(
      parse_gpu_processes(R"({"processes":[{"index":4294967296,"pid":1,"used_bytes":5}]})"));
  EXPECT_FALSE(parse_gpu_processes(R"({"processes":[{"index":0,"pid":1,"used_bytes":-5}]})"));
  EXPECT_FALSE(parse_gpu_processes(R"({"processes":[{"index":0,"pid":1.5,"used_bytes":5}]})"));
}

TEST(Devices, PciNamesBecomeThoseOfSysfs) {
  EXPECT_EQ(normalized_pci_bus_id("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(normalized_pci_bus_id("0000:3b:00.0"), "0000:3b:00.0");
  EXPECT_EQ(normalized_pci_bus_id("00010000:01:00.0"), "10000:01:00.0");
  EXPECT_EQ(normalized_pci_bus_id("1:AF:00.0"), "0001:af:00.0");
  EXPECT_EQ(normalized_pci_bus_id(""), "");
  EXPECT_EQ(normalized_pci_bus_id("junk"), "junk");
}

TEST(Devices, LabelNamesNumberShortUuidAndBus) {
  EXPECT_EQ(device_label(sample_device_report().gpus[0], ""),
            "GPU 0 (GPU-8932f937…, 0000:3b:00.0)");
  EXPECT_EQ(device_label(sample_device_report().gpus[1], "MIG-2"),
            "GPU 1 (GPU-1111, MIG-2, 0001:af:00.0)");
  EXPECT_EQ(device_label(Gpu{}, ""), "GPU 0");
}

TEST(ProcDevices, AreUnknownWithoutTheDriverFolder) {
  const TempTree tree;
  EXPECT_EQ(read_proc_devices(tree.root()), std::nullopt);
  EXPECT_EQ(quick_gpu_count(tree.root()), std::nullopt);
}

TEST(ProcDevices, InformationFilesAreReadInBusOrder) {
  const TempTree tree;
  tree.write("driver/nvidia/gpus/0000:af:00.0/information",
             "Model: \t\t NVIDIA A100\nIRQ:   \t\t 10\nGPU UUID: \t GPU-????????");
  tree.write("driver/nvidia/gpus/0000:3b:00.0/information",
             "Model: \t\t NVIDIA H100 80GB \nGPU UUID: \t GPU-8932\nBus Location: \t 0000:3b:00.0");
  EXPECT_EQ(read_proc_devices(tree.root()),
            (std::vector<Gpu>{{0, "GPU-8932", "0000:3b:00.0", "NVIDIA H100 80GB", false, {}, {}},
                              {1, "", "0000:af:00.0", "NVIDIA A100", false, {}, {}}}));
  EXPECT_EQ(quick_gpu_count(tree.root()), 2);
}

TEST(ProcDevices, MigModeMakesTheQuickCountUnknown) {
  const TempTree tree;
  tree.write("driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t NVIDIA A100");
  tree.write("driver/nvidia/capabilities/gpu0/mig/config", "");
  EXPECT_EQ(quick_gpu_count(tree.root()), 1);
  tree.write("driver/nvidia/capabilities/gpu0/mig/gi1/access", "");
  EXPECT_EQ(quick_gpu_count(tree.root()), std::nullopt);
}

}  // namespace
}  // namespace muster

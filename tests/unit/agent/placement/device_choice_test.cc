#include "agent/placement/device_choice.h"

#include <ostream>

#include <gtest/gtest.h>

namespace muster {

void PrintTo(const DeviceChoice& choice, std::ostream* out) {
  *out << "{" << join_tokens(choice.slots) << " known " << choice.known << " inherited "
       << choice.inherited << " chosen " << choice.chosen << " repeated " << choice.repeated << " '"
       << choice.variable << "' why '" << choice.why_short << "'}";
}

namespace {

std::optional<DeviceReport> choosable_gpus() {
  return DeviceReport{DeviceSource::nvml,
                      {{0, "GPU-aaaa1111", "0000:07:00.0", "A100", false, {}, {}},
                       {1, "GPU-aaaa2222", "0000:0b:00.0", "A100", false, {}, {}},
                       {2, "GPU-bbbb3333", "0000:48:00.0", "A100", false, {}, {}}},
                      ""};
}

std::optional<DeviceReport> choosable_mig() {
  return DeviceReport{
      DeviceSource::nvml,
      {{0, "GPU-aaaa1111", "0000:07:00.0", "A100", true, {{"MIG-1111"}, {"MIG-1122"}}, {}},
       {1, "GPU-bbbb2222", "0000:0b:00.0", "A100", false, {}, {}},
       {2, "GPU-cccc3333", "0000:48:00.0", "A100", true, {}, {}}},
      ""};
}

const std::optional<DeviceReport> kNothingToChoose = DeviceReport{};

DeviceChoice choice_of(const std::vector<std::string>& gpus, const InheritedDevices& inherited,
                       const std::optional<DeviceReport>& devices) {
  PlacementSpec spec;
  spec.gpus = gpus;
  const Result<DeviceChoice> choice = choose_devices(spec, inherited, devices);
  if (!choice) ADD_FAILURE() << choice.error().message;
  return choice.value_or(DeviceChoice());
}

Error choice_error(const std::vector<std::string>& gpus, const InheritedDevices& inherited,
                   const std::optional<DeviceReport>& devices) {
  PlacementSpec spec;
  spec.gpus = gpus;
  const Result<DeviceChoice> choice = choose_devices(spec, inherited, devices);
  if (choice) ADD_FAILURE() << "not refused: " << join_tokens(choice->slots);
  return choice ? Error() : choice.error();
}

InheritedDevices choosing_in(const std::string& list) {
  return {list, std::nullopt, std::nullopt};
}

TEST(DeviceChoice, IsAllDevicesOfTheMachineByDefault) {
  EXPECT_EQ(choice_of({}, {}, choosable_gpus()),
            (DeviceChoice{{{"0", 0, "", true}, {"1", 1, "", true}, {"2", 2, "", true}},
                          true,
                          false,
                          false,
                          false,
                          "",
                          "this machine has GPUs 0-2",
                          ""}));
}

TEST(DeviceChoice, IsEmptyWithAReasonIfNoGpuIsFound) {
  EXPECT_EQ(choice_of({}, {}, kNothingToChoose).why_short,
            "no NVIDIA driver was found (no libnvidia-ml.so.1 and no /proc/driver/nvidia/gpus)");
  EXPECT_EQ(choice_of({}, {}, DeviceReport{DeviceSource::nvml, {}, ""}).why_short,
            "the NVIDIA driver reports no GPU that can be used");
  EXPECT_EQ(
      choice_of({}, {}, DeviceReport{DeviceSource::none, {}, "NVML failed to start"}).why_short,
      "NVML failed to start");
  EXPECT_EQ(choice_of({}, {}, std::nullopt).why_short, "the GPUs were not looked up");
}

TEST(DeviceChoice, InheritedListIsCheckedAgainstTheMachine) {
  EXPECT_EQ(choice_of({}, choosing_in("2,0,7,1"), choosable_gpus()),
            (DeviceChoice{{{"2", 2, "", false}, {"0", 0, "", false}},
                          true,
                          true,
                          false,
                          false,
                          "CUDA_VISIBLE_DEVICES=2,0,7,1",
                          "CUDA_VISIBLE_DEVICES=2,0,7,1 ends at entry '7', which is not a device "
                          "of this machine (this machine has GPUs 0-2)",
                          "CUDA_VISIBLE_DEVICES=2,0,7,1 ends at entry '7', which is not a device "
                          "of this machine (this machine has GPUs 0-2)"}));
}

TEST(DeviceChoice, InheritedListWithoutADriverIsText) {
  EXPECT_EQ(choice_of({}, choosing_in("2,9"), kNothingToChoose),
            (DeviceChoice{{{"2", -1, "", false}, {"9", -1, "", false}},
                          false,
                          true,
                          false,
                          false,
                          "CUDA_VISIBLE_DEVICES=2,9",
                          "CUDA_VISIBLE_DEVICES=2,9",
                          ""}));
}

TEST(DeviceChoice, SaysWhyEmptyAndRepeatedListsGiveNoDevice) {
  EXPECT_EQ(choice_of({}, choosing_in(""), choosable_gpus()).why_short,
            "CUDA_VISIBLE_DEVICES= is empty");
  EXPECT_EQ(choice_of({}, choosing_in("1,1"), choosable_gpus()).why_short,
            "CUDA_VISIBLE_DEVICES=1,1 names a device twice, so CUDA shows none");
  EXPECT_TRUE(choice_of({}, choosing_in("1,1"), choosable_gpus()).repeated);
  EXPECT_TRUE(choice_of({}, choosing_in("1,1"), kNothingToChoose).repeated);
}

TEST(DeviceChoice, UsesAmdsListIfThereIsNoNvidiaDevice) {
  const InheritedDevices both{"5", "1,2", std::nullopt};
  EXPECT_EQ(join_tokens(choice_of({}, both, kNothingToChoose).slots), "1,2");
  EXPECT_EQ(choice_of({}, both, kNothingToChoose).variable, "HIP_VISIBLE_DEVICES=1,2");
  EXPECT_EQ(choice_of({}, {"2", "1,2", std::nullopt}, choosable_gpus()).variable,
            "CUDA_VISIBLE_DEVICES=2");
  EXPECT_EQ(choice_of({}, {"5", "", std::nullopt}, kNothingToChoose).variable,
            "CUDA_VISIBLE_DEVICES=5");
}

TEST(DeviceChoice, TakesMigNamesAsTextIfOnlyProcListsTheGpus) {
  std::optional<DeviceReport> report = choosable_gpus();
  report->source = DeviceSource::proc;
  EXPECT_FALSE(choice_of({}, choosing_in("MIG-1,MIG-2"), report).known);
  EXPECT_EQ(join_tokens(choice_of({}, choosing_in("MIG-1,MIG-2"), report).slots), "MIG-1,MIG-2");
  EXPECT_TRUE(choice_of({}, choosing_in("0,1"), report).known);
}

TEST(GpusFlag, NumbersAreGpusInPciOrder) {
  const DeviceChoice choice = choice_of({"2", "0"}, {}, choosable_gpus());
  EXPECT_EQ(choice.slots, (std::vector<DeviceSlot>{{"2", 2, "", true}, {"0", 0, "", true}}));
  EXPECT_TRUE(choice.chosen);
}

TEST(GpusFlag, NumbersCountInAnInheritedListAndKeepItsForm) {
  EXPECT_EQ(choice_of({"1"}, choosing_in("2,0"), choosable_gpus()).slots,
            (std::vector<DeviceSlot>{{"0", 0, "", false}}));
  EXPECT_EQ(choice_of({"1", "0"}, choosing_in("GPU-bb,GPU-aaaa1"), choosable_gpus()).slots,
            (std::vector<DeviceSlot>{{"GPU-aaaa1", 0, "", false}, {"GPU-bb", 2, "", false}}));
  EXPECT_EQ(choice_of({"1"}, choosing_in("7,8"), kNothingToChoose).slots,
            (std::vector<DeviceSlot>{{"8", -1, "", false}}));
}

TEST(GpusFlag, NamesMayBeCutShortAndBecomeWhole) {
  EXPECT_EQ(choice_of({"GPU-bb"}, {}, choosable_gpus()).slots,
            (std::vector<DeviceSlot>{{"GPU-bbbb3333", 2, "", false}}));
}

TEST(GpusFlag, MixedNumbersAndNamesAllBecomeNames) {
  EXPECT_EQ(join_tokens(choice_of({"0", "GPU-bb"}, {}, choosable_gpus()).slots),
            "GPU-aaaa1111,GPU-bbbb3333");
}

TEST(GpusFlag, NameInAnInheritedListOfNumbersKeepsTheNumber) {
  EXPECT_EQ(choice_of({"GPU-bb"}, choosing_in("0,2"), choosable_gpus()).slots,
            (std::vector<DeviceSlot>{{"2", 2, "", false}}));
}

TEST(GpusFlag, GpuInMigModeStandsForItsMigDevices) {
  EXPECT_EQ(join_tokens(choice_of({"0"}, {}, choosable_mig()).slots), "MIG-1111,MIG-1122");
  EXPECT_EQ(join_tokens(choice_of({"GPU-aaaa"}, {}, choosable_mig()).slots), "MIG-1111,MIG-1122");
  EXPECT_EQ(join_tokens(choice_of({"MIG-1122", "1"}, {}, choosable_mig()).slots),
            "MIG-1122,GPU-bbbb2222");
}

TEST(GpusFlag, MissingDevicesAreAnErrorThatNamesWhatExists) {
  EXPECT_EQ(
      choice_error({"3"}, {}, choosable_gpus()),
      (Error{ExitCode::environment, "--gpus: there is no device '3': this machine has GPUs 0-2"}));
  EXPECT_EQ(choice_error({"GPU-dd"}, {}, choosable_gpus()).message,
            "--gpus: there is no device 'GPU-dd': this machine has GPUs 0-2");
  EXPECT_EQ(choice_error({"2"}, choosing_in("2,0"), choosable_gpus()).message,
            "--gpus: there is no device '2': CUDA_VISIBLE_DEVICES=2,0 has entries 0-1");
  EXPECT_EQ(choice_error({"GPU-aaaa2"}, choosing_in("2,0"), choosable_gpus()).message,
            "--gpus: there is no device 'GPU-aaaa2': CUDA_VISIBLE_DEVICES=2,0 has entries 0-1");
  EXPECT_EQ(choice_error({"0"}, choosing_in(""), choosable_gpus()).message,
            "--gpus: there is no device '0': CUDA_VISIBLE_DEVICES= is empty");
  EXPECT_EQ(choice_error({"0"}, {}, kNothingToChoose).message,
            "--gpus: there is no device '0': no NVIDIA driver was found (no libnvidia-ml.so.1 and "
            "no /proc/driver/nvidia/gpus)");
}

TEST(GpusFlag, GpuInMigModeWithoutMigDevicesIsAnError) {
  EXPECT_EQ(choice_error({"2"}, {}, choosable_mig()).message,
            "--gpus: there is no device '2': this machine has GPUs 0-2, of which GPU 2 is in MIG "
            "mode without a MIG device");
}

TEST(GpusFlag, JunkRepetitionsAndAmbiguousNamesAreUsageErrors) {
  EXPECT_EQ(choice_error({"x"}, {}, choosable_gpus()),
            (Error{ExitCode::usage,
                   "--gpus: 'x' is neither a device number nor a name that begins with GPU- or "
                   "MIG-"}));
  for (const char* item : {"", "-1", "1x", "99999999999999999999", "0-1"}) {
    EXPECT_EQ(choice_error({item}, {}, choosable_gpus()).code, ExitCode::usage) << item;
  }
  EXPECT_EQ(choice_error({"1", "0", "1"}, {}, choosable_gpus()),
            (Error{ExitCode::usage,
                   "--gpus: '1' names a device that is already in the list; name each device "
                   "once"}));
  EXPECT_EQ(choice_error({"0", "GPU-aaaa1"}, {}, choosable_gpus()).code, ExitCode::usage);
  EXPECT_EQ(
      choice_error({"GPU-aaaa"}, {}, choosable_gpus()),
      (Error{ExitCode::usage, "--gpus: 'GPU-aaaa' matches 2 devices; give more of the name"}));
}

TEST(GpusFlag, OneDeviceInTwoInheritedEntriesStaysARepetition) {
  EXPECT_TRUE(choice_of({"0", "2"}, choosing_in("0,1,00"), choosable_gpus()).repeated);
  EXPECT_FALSE(choice_of({"0", "1"}, choosing_in("0,1,00"), choosable_gpus()).repeated);
}

}  // namespace
}  // namespace muster

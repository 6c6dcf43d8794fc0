#include "agent/placement/visible_devices.h"

#include <ostream>

#include <gtest/gtest.h>

namespace muster {

void PrintTo(const DeviceSlot& slot, std::ostream* out) {
  *out << "{" << slot.token << ", gpu " << slot.gpu << ", mig '" << slot.mig_uuid << "', "
       << (slot.our_index ? "ours" : "theirs") << "}";
}

void PrintTo(const VisibleList& list, std::ostream* out) {
  *out << "form " << static_cast<int>(list.form) << " [";
  for (const DeviceSlot& slot : list.slots)
    *out << slot.token << ";";
  *out << "] ended by '" << list.ended_by << "' repeated " << list.repeated;
}

namespace {

std::vector<Gpu> listed_gpus() {
  return {{0, "GPU-aaaa1111", "0000:07:00.0", "A100", false, {}, {}},
          {1, "GPU-aaaa2222", "0000:0b:00.0", "A100", false, {}, {}},
          {2, "GPU-bbbb3333", "0000:48:00.0", "A100", false, {}, {}},
          {3, "GPU-cccc4444", "0000:4c:00.0", "A100", false, {}, {}}};
}

std::vector<Gpu> listed_mig_gpus() {
  return {{0, "GPU-aaaa1111", "0000:07:00.0", "A100", true, {{"MIG-1111"}, {"MIG-1122"}}, {}},
          {1, "GPU-bbbb2222", "0000:0b:00.0", "A100", false, {}, {}},
          {2, "GPU-cccc3333", "0000:48:00.0", "A100", true, {}, {}}};
}

std::vector<std::string> tokens_of(const VisibleList& list) {
  std::vector<std::string> result;
  for (const DeviceSlot& slot : list.slots)
    result.push_back(slot.token);
  return result;
}

std::vector<int> gpu_numbers_of(const VisibleList& list) {
  std::vector<int> result;
  for (const DeviceSlot& slot : list.slots)
    result.push_back(slot.gpu);
  return result;
}

VisibleList resolved(std::string_view value, const std::vector<Gpu>& gpus) {
  return resolve_visible_devices(parse_visible_devices(value), gpus);
}

using EntryTexts = std::vector<std::string>;
using GpuNumbers = std::vector<int>;

TEST(VisibleDevices, IndicesKeepTheUsersOrder) {
  const VisibleList list = parse_visible_devices("2,0,1");
  EXPECT_EQ(list, (VisibleList{DeviceForm::index,
                               {{"2", -1, "", false}, {"0", -1, "", false}, {"1", -1, "", false}},
                               "",
                               false}));
}

TEST(VisibleDevices, EntriesAreTrimmed) {
  EXPECT_EQ(tokens_of(parse_visible_devices(" 0 , 2\n")), (EntryTexts{"0", "2"}));
}

TEST(VisibleDevices, EmptyAndBlankListsHaveNoEntriesAndNoComplaint) {
  EXPECT_EQ(parse_visible_devices(""), VisibleList());
  EXPECT_EQ(parse_visible_devices("  "), VisibleList());
}

TEST(VisibleDevices, NegativeNumberEndsTheList) {
  const VisibleList list = parse_visible_devices("0,2,-1,1");
  EXPECT_EQ(tokens_of(list), (EntryTexts{"0", "2"}));
  EXPECT_EQ(list.ended_by, "entry '-1', which is not a device number");
  EXPECT_EQ(tokens_of(parse_visible_devices("-1")), EntryTexts{});
}

TEST(VisibleDevices, WordsAndEmptyEntriesEndTheList) {
  EXPECT_EQ(tokens_of(parse_visible_devices("1,,2")), EntryTexts{"1"});
  EXPECT_EQ(parse_visible_devices("1,,2").ended_by, "an empty entry");
  EXPECT_EQ(tokens_of(parse_visible_devices("1,none")), EntryTexts{"1"});
  EXPECT_EQ(tokens_of(parse_visible_devices("NoDevFiles")), EntryTexts{});
  EXPECT_EQ(tokens_of(parse_visible_devices("0,1,")), (EntryTexts{"0", "1"}));
}

TEST(VisibleDevices, OnlyLeadingDigitsCountAsInStrtoul) {
  EXPECT_EQ(gpu_numbers_of(resolved("1gpu2,2ampere,+3,-0", listed_gpus())),
            (GpuNumbers{1, 2, 3, 0}));
}

TEST(VisibleDevices, NumbersTooLargeForAnIntEndTheList) {
  EXPECT_EQ(tokens_of(parse_visible_devices("0,99999999999999999999")), EntryTexts{"0"});
}

TEST(VisibleDevices, FirstEntryFixesTheForm) {
  const VisibleList list = parse_visible_devices("GPU-a,GPU-b,0");
  EXPECT_EQ(list.form, DeviceForm::gpu_uuid);
  EXPECT_EQ(tokens_of(list), (EntryTexts{"GPU-a", "GPU-b"}));
  EXPECT_EQ(list.ended_by, "entry '0', which is not of the same kind as the first one");
  EXPECT_EQ(tokens_of(parse_visible_devices("0,GPU-a")), EntryTexts{"0"});
  EXPECT_EQ(tokens_of(parse_visible_devices("MIG-a,GPU-b")), EntryTexts{"MIG-a"});
}

TEST(VisibleDevices, RepetitionIsSeenThroughSpelling) {
  EXPECT_TRUE(parse_visible_devices("0,1,0").repeated);
  EXPECT_TRUE(parse_visible_devices("1,01").repeated);
  EXPECT_TRUE(parse_visible_devices("GPU-a,GPU-a").repeated);
  EXPECT_FALSE(parse_visible_devices("GPU-a,GPU-ab").repeated);
  EXPECT_FALSE(parse_visible_devices("0,1,2").repeated);
}

TEST(VisibleDevices, RepetitionAfterTheEndDoesNotCount) {
  EXPECT_FALSE(parse_visible_devices("0,1,-1,0").repeated);
}

TEST(VisibleDevices, SplittingKeepsInvalidItems) {
  EXPECT_EQ(split_visible_devices("0, x,,-1"), (EntryTexts{"0", "x", "", "-1"}));
  EXPECT_EQ(split_visible_devices(""), EntryTexts{""});
}

TEST(VisibleDevices, IndicesResolveInPciOrder) {
  const VisibleList list = resolved("2,0", listed_gpus());
  EXPECT_EQ(list.slots, (std::vector<DeviceSlot>{{"2", 2, "", false}, {"0", 0, "", false}}));
  EXPECT_EQ(list.ended_by, "");
}

TEST(VisibleDevices, IndexThatDoesNotExistEndsTheList) {
  const VisibleList list = resolved("3,4,0", listed_gpus());
  EXPECT_EQ(tokens_of(list), EntryTexts{"3"});
  EXPECT_EQ(list.ended_by, "entry '4', which is not a device of this machine");
}

TEST(VisibleDevices, UuidsMayBeCutShortWhileUnique) {
  const VisibleList list = resolved("GPU-bb,GPU-aaaa2", listed_gpus());
  EXPECT_EQ(tokens_of(list), (EntryTexts{"GPU-bb", "GPU-aaaa2"}));
  EXPECT_EQ(gpu_numbers_of(list), (GpuNumbers{2, 1}));
}

TEST(VisibleDevices, AmbiguousUuidEndsTheList) {
  const VisibleList list = resolved("GPU-cccc,GPU-aaaa,GPU-bb", listed_gpus());
  EXPECT_EQ(tokens_of(list), EntryTexts{"GPU-cccc"});
  EXPECT_EQ(list.ended_by, "entry 'GPU-aaaa', which matches 2 devices");
}

TEST(VisibleDevices, WholeUuidWinsOverLongerOnes) {
  std::vector<Gpu> gpus = listed_gpus();
  gpus[1].uuid = "GPU-aaaa11112";
  EXPECT_EQ(gpu_numbers_of(resolved("GPU-aaaa1111", gpus)), GpuNumbers{0});
}

TEST(VisibleDevices, SameDeviceUnderTwoNamesIsARepetition) {
  EXPECT_TRUE(resolved("GPU-bb,GPU-bbbb3333", listed_gpus()).repeated);
  EXPECT_FALSE(resolved("GPU-bb,GPU-cc", listed_gpus()).repeated);
}

TEST(VisibleDevices, MigNamesResolveToTheirSlice) {
  const VisibleList list = resolved("MIG-1122,MIG-111", listed_mig_gpus());
  EXPECT_EQ(list.slots, (std::vector<DeviceSlot>{{"MIG-1122", 0, "MIG-1122", false},
                                                 {"MIG-111", 0, "MIG-1111", false}}));
  EXPECT_FALSE(list.repeated);
}

TEST(VisibleDevices, UnknownMigNameEndsTheList) {
  EXPECT_EQ(resolved("MIG-ffff,MIG-1111", listed_mig_gpus()).slots, std::vector<DeviceSlot>{});
}

TEST(VisibleDevices, OldMigNamesAreFoundByTheirGpu) {
  const VisibleList list =
      resolved("MIG-GPU-aaaa1111/1/0,MIG-GPU-aaaa1111/2/0,MIG-GPU-bbbb2222/1/0", listed_mig_gpus());
  EXPECT_EQ(tokens_of(list), (EntryTexts{"MIG-GPU-aaaa1111/1/0", "MIG-GPU-aaaa1111/2/0"}));
  EXPECT_EQ(gpu_numbers_of(list), (GpuNumbers{0, 0}));
  EXPECT_FALSE(list.repeated);
}

TEST(VisibleDevices, AllDevicesAreOurIndicesInPciOrder) {
  EXPECT_EQ(all_device_slots(listed_gpus()),
            (std::vector<DeviceSlot>{
                {"0", 0, "", true}, {"1", 1, "", true}, {"2", 2, "", true}, {"3", 3, "", true}}));
}

TEST(VisibleDevices, AllDevicesOfAMigMachineAreNamesAndEmptyMigGpusAreLeftOut) {
  EXPECT_EQ(all_device_slots(listed_mig_gpus()),
            (std::vector<DeviceSlot>{{"MIG-1111", 0, "MIG-1111", false},
                                     {"MIG-1122", 0, "MIG-1122", false},
                                     {"GPU-bbbb2222", 1, "", false}}));
}

TEST(VisibleDevices, TokensJoinWithCommas) {
  EXPECT_EQ(join_tokens(all_device_slots(listed_gpus())), "0,1,2,3");
  EXPECT_EQ(join_tokens({}), "");
}

}  // namespace
}  // namespace muster

// The ring of records under every order of memory that C++ allows, as on a machine that reorders
// more than x86 does: RingWriter writes, and RingReader reads whatever it may see of that. For each
// scene the test also says which orderings the scene cannot do without: each is left out in turn.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/hang/ring_reader.h"
#include "rendezvous/ring/departure.h"
#include "rendezvous/ring/failure_record.h"
#include "rendezvous/ring/record_fd.h"
#include "rendezvous/ring/ring_layout.h"
#include "rendezvous/ring/ring_owner.h"
#include "rendezvous/ring/ring_writer.h"
#include "tests/model/weak_memory.h"

namespace muster {
namespace {

using model::Memory;
using model::Ordering;
using ring::RingWriter;
using testing::UnorderedElementsAre;

constexpr uint64_t kNonce = 42;
constexpr int kRunsMax = 200'000;

struct Scene {
  std::function<void(RingWriter& writer, const std::string& record_fd)> write;
  // Returns what is wrong with what the reader sees; "": nothing.
  std::function<std::string(const RingReader& reader)> look;
  int samples = 0;  // 0: all choices are tried.
};

struct Outcome {
  std::string wrong;
  int runs = 0;
  bool all_tried = false;
  std::set<Ordering> orderings;
};

Outcome play(const Scene& scene, const Ordering& left_out = {}) {
  Memory& memory = Memory::instance();
  memory.reset();
  memory.leave_out(left_out);
  const UniqueFd fd = std::move(ring::make_ring(kNonce).value());
  const ring::RecordFd record_fd{fd.get(), kNonce};
  std::string why;
  const std::unique_ptr<RingWriter> writer =
      RingWriter::attach(to_text(record_fd), ring::Source::worker_lib, why);
  scene.write(*writer, to_text(record_fd));
  const RingReader reader = std::move(RingReader::open(record_fd).value());
  Outcome outcome;
  const auto look = [&] {
    if (outcome.wrong.empty()) outcome.wrong = scene.look(reader);
  };
  if (scene.samples > 0) {
    memory.sample(scene.samples, 7, look);
  } else {
    outcome.runs = memory.explore(kRunsMax, look, &outcome.all_tried);
  }
  outcome.orderings = memory.orderings();
  memory.become(0);  // For the writer's end.
  return outcome;
}

// Returns the orderings without which the scene goes wrong.
std::vector<std::string> needed(const Scene& scene) {
  const Outcome whole = play(scene);
  EXPECT_EQ(whole.wrong, "");
  if (scene.samples == 0) {
    EXPECT_TRUE(whole.all_tried) << whole.runs << " runs were not all";
    std::printf("tried all %d ways to read\n", whole.runs);
  }
  std::vector<std::string> found;
  for (const Ordering& ordering : whole.orderings) {
    if (const std::string wrong = play(scene, ordering).wrong; !wrong.empty()) {
      found.push_back(to_text(ordering));
      std::printf("without %s: %s\n", found.back().c_str(), wrong.c_str());
    }
  }
  return found;
}

ring::Call call_number(uint64_t n) {
  return {ring::CallKind::reduce,
          ring::ElementType::float32,
          ring::Reduction::sum,
          false,
          true,
          static_cast<int32_t>(n % 1000),
          3 * n};
}

// ---- calls

// Two calls in one slot, a lap apart.
void write_two_laps(RingWriter& writer, const std::string& /*record_fd*/) {
  const int32_t group = writer.open_group({.id = "g", .name = "g", .size = 1000, .own_rank = 0});
  for (uint64_t n = 1; n <= ring::kRecords + 1; ++n)
    writer.completed(writer.called(group, n, call_number(n), nullptr));
}

// Record n is call n + 1.
std::string look_at_record(const RingReader& reader, uint64_t n) {
  const std::optional<RecordedCall> call = reader.call({.generation = 1}, n);
  if (!call) return {};
  if (call->ordinal != n + 1 || call->call != call_number(n + 1))
    return fmt::format("record {} is call {} with root {} and {} elements", n, call->ordinal,
                       call->call.root, call->call.count);
  return {};
}

TEST(RingModel, ARecordIsWholeOrOverwritten) {
  const auto first = [](const RingReader& reader) { return look_at_record(reader, 0); };
  const auto second = [](const RingReader& reader) {
    return look_at_record(reader, ring::kRecords);
  };
  EXPECT_THAT(needed({write_two_laps, first}),
              UnorderedElementsAre("load: load acquire", "write_record: fence release",
                                   "write_record: store release"));
  EXPECT_THAT(needed({write_two_laps, second}),
              UnorderedElementsAre("load: load acquire", "write_record: store release"));
}

TEST(RingModel, AFailedCallIsSeenWithItsEnd) {
  const auto write = [](RingWriter& writer, const std::string& /*record_fd*/) {
    const int32_t group = writer.open_group({.id = "g", .name = "g", .size = 1000, .own_rank = 0});
    writer.failed(writer.called(group, 1, call_number(1), nullptr));
  };
  const auto look = [](const RingReader& reader) -> std::string {
    const std::optional<RecordedCall> call = reader.call({.generation = 1}, 0);
    if (call && call->failed && !call->completed) return "failed, and not over";
    if (call && call->completed && !call->failed) return "over, and not failed";
    return look_at_record(reader, 0);
  };
  EXPECT_THAT(needed({write, look}),
              UnorderedElementsAre("load: load acquire", "write_record: store release",
                                   "flag_record: fence release", "flag_record: store release",
                                   "flag_record: store release"));
}

// ---- groups

// The names of groups tell their sizes.
std::string name_of_size(int size) {
  return fmt::format("group-of-{}-{}", size, size);
}

int32_t open_named(RingWriter& writer, int size) {
  const std::string name = name_of_size(size);
  const int32_t group =
      writer.open_group({.id = name, .name = name, .size = size, .own_rank = size - 1});
  writer.set_state(group, ring::GroupState::ready);
  return group;
}

std::string look_at_groups(const RingReader& reader) {
  const std::optional<RecordedState> state = reader.state();
  if (!state) return {};
  if (state->garbage > 0) return fmt::format("{} words of garbage", state->garbage);
  for (const RecordedGroup& group : state->groups) {
    const std::string name = name_of_size(group.size);
    if (group.id != name || group.name != name || group.own_rank != group.size - 1)
      return fmt::format("group {} of {} members has id {}", group.name, group.size, group.id);
  }
  return {};
}

// All entries are taken, one is closed, and a second group takes it over.
void reuse_a_group(RingWriter& writer, const std::string& /*record_fd*/) {
  const int32_t first = open_named(writer, 1);
  for (size_t i = 1; i < ring::kGroups; ++i)
    open_named(writer, 2);
  for (uint64_t n = 1; n <= 5; ++n) {
    writer.completed(writer.called(first, n, call_number(n), nullptr));
    writer.completed(writer.message_called(first, call_number(0), 0, nullptr));
  }
  Memory::instance().publish();
  writer.set_state(first, ring::GroupState::closed);
  const int32_t second = open_named(writer, 3);
  for (uint64_t n = 1; n <= 3; ++n)
    writer.completed(writer.called(second, n, call_number(n), nullptr));
}

TEST(RingModel, AReusedGroupIsOneOfTheTwo) {
  EXPECT_THAT(needed({reuse_a_group, look_at_groups, 400}),
              UnorderedElementsAre("load: load acquire", "open_group: fence release",
                                   "open_group: store release"));
}

// ---- hashes, sections

TEST(RingModel, AHashIsThatOfItsOrdinal) {
  const auto write = [](RingWriter& writer, const std::string& /*record_fd*/) {
    const int32_t group = open_named(writer, 1);
    for (uint64_t n = 1; n <= 2 * ring::kHashEvery * ring::kHashes; ++n)
      writer.completed(writer.called(group, n, call_number(n), nullptr));
  };
  std::vector<uint64_t> hashes{0};
  for (uint64_t n = 1; n <= 2 * ring::kHashEvery * ring::kHashes; ++n)
    hashes.push_back(ring::mixed_in(hashes.back(), call_number(n)));
  const auto look = [&hashes](const RingReader& reader) -> std::string {
    const std::optional<RecordedState> state = reader.state();
    if (!state || state->groups.empty()) return {};
    for (const RecordedHash& hash : state->groups[0].hashes) {
      if (hash.hash != hashes[hash.ordinal])
        return fmt::format("hash {} is another's", hash.ordinal);
    }
    return {};
  };
  EXPECT_THAT(needed({write, look, 2000}),
              UnorderedElementsAre("load: load acquire", "keep_hash: fence release",
                                   "keep_hash: store release"));
}

TEST(RingModel, ASectionHasOneName) {
  const auto write = [](RingWriter& writer, const std::string& /*record_fd*/) {
    for (const char letter : {'a', 'b', 'c'}) {
      writer.enter_section(std::string(40, letter));
      writer.leave_section();
    }
    writer.enter_section(std::string(40, 'd'));
  };
  const auto look = [](const RingReader& reader) -> std::string {
    const std::optional<RecordedState> state = reader.state();
    if (!state || state->sections.empty()) return {};
    const std::string& name = state->sections[0].name;
    return name.size() == 40 && name == std::string(40, name[0]) ? "" : "section " + name;
  };
  EXPECT_THAT(needed({write, look, 2000}),
              UnorderedElementsAre("load: load acquire", "enter_section: fence release",
                                   "enter_section: store release"));
}

// ---- what the agent reads after the end, or at any time

TEST(RingModel, AReportIsWhole) {
  const auto write = [](RingWriter& writer, const std::string& record_fd) {
    std::string why;
    ring::Ring* const ring = ring::map_ring(*ring::parse_record_fd(record_fd), true, why);
    for (const int rank : {3, 5}) {
      const std::string text(40, static_cast<char>('0' + rank));
      put_report(ring->notes.report,
                 {.time_ns = rank, .origin = {rank, rank + 1}, .rank = rank, .message = text});
      put_departure(ring->notes.departure, {.time_ns = rank,
                                            .kind = DepartureKind::uncaught,
                                            .pid = getpid(),
                                            .error = text,
                                            .site = text.substr(20)});
    }
    ring::unmap_ring(ring);
    writer.looked(1);
  };
  const auto report = [](const RingReader& reader) -> std::string {
    const std::optional<FailureRecord> record = reader.reported();
    if (!record) return {};
    const auto digit = static_cast<char>('0' + record->time_ns);
    const bool is_whole = record->rank == record->time_ns &&
                          record->origin == std::vector<int>{record->rank, record->rank + 1} &&
                          record->message == std::string(40, digit);
    return is_whole ? "" : fmt::format("rank {}, {}", record->rank, record->message);
  };
  const auto departure = [](const RingReader& reader) -> std::string {
    const std::optional<Departure> note = reader.departure(getpid());
    if (!note) return {};
    const auto digit = static_cast<char>('0' + note->time_ns);
    const bool is_whole =
        note->error == std::string(40, digit) && note->site == std::string(20, digit);
    return is_whole ? "" : fmt::format("{} at {}", note->error, note->site);
  };
  EXPECT_THAT(needed({write, report, 5000}),
              UnorderedElementsAre("load: load acquire", "put_report: store release",
                                   "take_back_report: fence release"));
  EXPECT_THAT(needed({write, departure, 5000}),
              UnorderedElementsAre("load: load acquire", "put_departure: store release",
                                   "take_back_departure: fence release"));
}

// ---- owners

// The owner leaves, and a second one, in thread 1, takes the ring over.
TEST(RingModel, ALookIsOfOneOwner) {
  const auto write = [](RingWriter& first, const std::string& record_fd) {
    open_named(first, 1);
    open_named(first, 1);
    first.enter_section("1");
    std::string why;
    ring::Ring* const ring = ring::map_ring(*ring::parse_record_fd(record_fd), true, why);
    ring::leave_ring(*ring);
    Memory::instance().become(1);
    const std::unique_ptr<RingWriter> second =
        RingWriter::attach(record_fd, ring::Source::python_hook, why);
    open_named(*second, 2);
    second->enter_section("2");
    ring::unmap_ring(ring);
  };
  const auto look = [](const RingReader& reader) -> std::string {
    const std::optional<RecordedState> state = reader.state();
    if (!state) return {};
    const auto owner = static_cast<int>(state->generation);
    for (const RecordedGroup& group : state->groups) {
      if (group.size != owner)
        return fmt::format("owner {} has a group of owner {}", owner, group.size);
    }
    const bool has_section = !state->sections.empty();
    if (has_section && state->sections[0].name != std::to_string(owner))
      return fmt::format("owner {} has section {}", owner, state->sections[0].name);
    const bool is_first = state->source == ring::Source::worker_lib;
    return is_first == (owner == 1) ? "" : "the other owner's source";
  };
  EXPECT_THAT(needed({write, look, 500}),
              UnorderedElementsAre("load: load acquire", "begin_generation: fence release",
                                   "take_ring: store release"));
}

}  // namespace
}  // namespace muster

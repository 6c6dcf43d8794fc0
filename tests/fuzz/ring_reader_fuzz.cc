// A worker's ring with arbitrary words, as its agent reads it and musterctl shows it. The input
// changes a sound ring, ten bytes at a time: the index of a word (little-endian) and its value.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "agent/hang/native_site.h"
#include "agent/hang/records_text.h"
#include "rendezvous/ring/ring_writer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/unit/agent/hang/sound_records.h"

namespace muster::fuzz {
namespace {

constexpr size_t kWordsOfRing = sizeof(ring::Ring) / sizeof(ring::Word);

// Two groups with calls and messages, in nested sections, after a failure.
void record_something(ring::RingWriter& writer) {
  for (const char* name : {"world", "pipeline"}) {
    const int32_t group =
        writer.open_group({.id = name, .name = name, .ranks = "0-3", .size = 4, .own_rank = 1});
    writer.set_state(group, ring::GroupState::ready);
    for (uint64_t ordinal = 1; ordinal <= 33; ++ordinal) {
      const ring::Call call{.kind = ring::CallKind::all_reduce,
                            .type = ring::ElementType::float32,
                            .reduction = ring::Reduction::sum,
                            .is_synchronous = true,
                            .count = ordinal};
      const ring::Pending pending = writer.called(group, ordinal, call, name);
      if (ordinal < 33) writer.completed(pending);
    }
    writer.message_called(group, {.kind = ring::CallKind::send, .root = 2}, 7, name);
    writer.enter_section(name);
  }
  writer.note_failure(128, "rank 2 is gone");
}

// One ring for all inputs; each input restores the words that it changes.
struct FuzzedRing {
  FuzzedRing() {
    std::string why;
    memory = ring::map_ring(record_fd, /*writable=*/true, why);
    CHECK(memory != nullptr);
    writer = ring::RingWriter::attach(ring::to_text(record_fd), ring::Source::worker_lib, why);
    CHECK(writer != nullptr);
    record_something(*writer);
    put_report(memory->notes.report, {.time_ns = 7, .origin = {2, 3}, .message = "rank 2 is gone"});
  }
  ring::Word& word(size_t at) const { return reinterpret_cast<ring::Word*>(memory)[at]; }

  const UniqueFd fd = ring::make_ring(1).value();
  const ring::RecordFd record_fd{fd.get(), 1};
  const RingReader reader = RingReader::open(record_fd).value();
  ring::Ring* memory = nullptr;
  std::unique_ptr<ring::RingWriter> writer;
};

struct Change {
  size_t at = 0;
  uint64_t before = 0;
};

std::vector<Change> change(const FuzzedRing& ring, std::string_view input) {
  std::vector<Change> changes;
  while (input.size() >= 10) {
    uint16_t at = 0;
    uint64_t value = 0;
    std::memcpy(&at, take(input, sizeof at).data(), sizeof at);
    std::memcpy(&value, take(input, sizeof value).data(), sizeof value);
    if (at < kWordsOfRing) changes.push_back({at, ring.word(at).exchange(value)});
  }
  return changes;
}

void read_all(const RingReader& reader) {
  RingPosition position;
  std::optional<uint64_t> last;
  reader.read_on(position, [&](const CallGlance& call) {
    CHECK((!last || call.record > *last) && call.called <= ring_now());
    last = call.record;
    return call.ordinal % 7 != 0;
  });
  if (const std::optional<FailureRecord> reported = reader.reported()) {
    CHECK(reported->time_ns > 0 && reported->rank >= -1);
    CHECK(std::ranges::is_sorted(reported->origin) && is_clean(reported->message));
  }
  if (const std::optional<Departure> departure = reader.departure(/*worker=*/1)) {
    CHECK(departure->time_ns > 0 && departure->pid >= 0 && is_clean(departure->error));
    CHECK(is_clean(departure->site) && is_clean(departure->threads));
  }
  const std::optional<RecordedState> state = reader.state();
  if (state) check_sound(*state, ring_now());
  for (const size_t most : {size_t{1}, ring::kRecords}) {
    RankRing of_rank{
        .rank = 0, .pid = 1, .state = state, .calls = reader.calls(most), .why_none = {}};
    check_sound(of_rank.calls, most, ring_now());
    name_native_sites(of_rank.calls, "0-ffffffffffffffff r-xp 0 0:0 0 /bin/train");
    const RankRecords records = records_of(of_rank, ring_now(), most);
    CHECK(records.calls.size() <= most);
    const std::string text = records_text({records}, /*details=*/true);
    for (const std::string_view line : split(text, '\n'))
      CHECK(is_clean(line) && line.size() <= 8192);
  }
}

void check(std::string_view input) {
  static const FuzzedRing ring;
  const std::vector<Change> changes = change(ring, input);
  read_all(ring.reader);
  for (size_t i = changes.size(); i > 0; --i)
    ring.word(changes[i - 1].at) = changes[i - 1].before;
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::check(muster::fuzz::as_text(data, size));
  return 0;
}

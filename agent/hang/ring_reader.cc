#include "agent/hang/ring_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "agent/report/text.h"
#include "rendezvous/ring/ring_clock.h"

namespace muster {
namespace {

using ring::Word;

constexpr int64_t kMembersMax = 1'000'000;
constexpr uint64_t kHandleMax = 0xffff;  // 16 bits in a record.
constexpr uint64_t kTicksMask = (uint64_t{1} << 48) - 1;
constexpr int kLooks = 2;
constexpr Duration kLooksPatience = std::chrono::seconds(1);

// Reads a word once, to check and to use it. Acquire for all: what is read later is at least as
// new, so an unchanged sequence or generation vouches for all that was read between, and a counter
// that follows another is read before it.
uint64_t load(const Word& word) {
  return word.load(std::memory_order_acquire);
}

std::string text_in(const Word* words, size_t count) {
  std::string raw;
  for (size_t i = 0; i < count; ++i) {
    const auto bytes = std::bit_cast<std::array<char, sizeof(uint64_t)>>(load(words[i]));
    const size_t size = strnlen(bytes.data(), bytes.size());
    raw.append(bytes.data(), size);
    if (size < bytes.size()) break;
  }
  return clean_line(raw, raw.size());
}

// Turns the owner's ticks into CLOCK_MONOTONIC, between its attachment and now.
class RecordedTimes {
 public:
  explicit RecordedTimes(const ring::Head& head)
      : attached_{load(head.attached_ticks), load(head.attached_ns)} {
    const uint64_t is_tsc = load(head.ticks_are_tsc);
    now_ = ring::clock_pair(is_tsc != 0);
    sound_ = is_tsc <= 1 && attached_.ticks <= now_.ticks && attached_.ns <= now_.ns;
    if (!sound_) attached_ = now_;
  }

  bool sound() const { return sound_; }
  Instant attached() const { return at(attached_.ticks); }
  Instant at(uint64_t ticks) const {
    const uint64_t within = std::clamp(ticks, attached_.ticks, now_.ticks);
    const uint64_t ns = ring::ns_of(within, attached_, now_);
    return Instant(Duration(static_cast<int64_t>(std::clamp(ns, attached_.ns, now_.ns))));
  }

 private:
  ring::ClockPair attached_;
  ring::ClockPair now_;
  bool sound_ = false;
};

// Reads what a rank records besides its calls, once.
class StateLook {
 public:
  StateLook(const ring::Ring& ring, uint64_t generation) : ring_(ring), times_(ring.head) {
    state_.generation = generation;
  }

  RecordedState take() {
    read_head();
    for (size_t i = 0; i < ring::kGroups; ++i)
      read_group(i);
    for (const ring::PeerCount& count : ring_.peers)
      read_messages(count);
    read_sections();
    read_failure();
    return std::move(state_);
  }

 private:
  void read_head() {
    const uint64_t source = load(ring_.head.source);
    // kAttaching marks a process that is about to take the ring over.
    const uint64_t owner = load(ring_.head.owner);
    count_unless(times_.sound());
    if (count_unless(source <= static_cast<uint64_t>(ring::Source::nccl_plugin)))
      state_.source = static_cast<ring::Source>(source);
    const bool has_owner = (owner & ring::kAttaching) == 0;
    if (has_owner && count_unless(std::in_range<pid_t>(owner)))
      state_.owner = static_cast<pid_t>(owner);
    state_.owner_started = load(ring_.head.owner_started);
    state_.attached = times_.attached();
    if (const uint64_t looked = load(ring_.head.looked_ticks)) state_.looked = times_.at(looked);
    state_.calls = load(ring_.head.next_record);
    state_.dropped = load(ring_.head.dropped);
    state_.groups_left_out = load(ring_.head.without_group);
  }

  void read_group(size_t index) {
    const ring::Group& from = ring_.groups[index];
    const uint64_t state = load(from.state);
    const uint64_t kind = state & 0xff;
    if (kind == static_cast<uint64_t>(ring::GroupState::unused)) return;
    const uint64_t garbage = state_.garbage;
    RecordedGroup group;
    const uint64_t size = load(from.size);
    const uint64_t own_rank = load(from.own_rank);
    const uint64_t flags = load(from.flags);
    group.completion_is_late = (flags & ring::kCompletionIsLate) != 0;
    group.completion_is_unknown = (flags & ring::kCompletionIsUnknown) != 0;
    group.is_on_device = (flags & ring::kIsOnDevice) != 0;
    group.calls_are_unknown = (flags & ring::kCallsAreUnknown) != 0;
    group.id = text_in(from.id, ring::kWordsOfText);
    group.name = text_in(from.name, ring::kWordsOfText);
    group.ranks = text_in(from.ranks, ring::kWordsOfText);
    read_progress(from, group);
    if (load(from.state) >> 8 != state >> 8) {
      state_.garbage = garbage;  // The entry was reused meanwhile; nothing is wrong.
      return;
    }
    const uint64_t handle = (state >> 8) << 7 | index;
    if (!count_unless(kind <= static_cast<uint64_t>(ring::GroupState::closed) &&
                      handle >= ring::kGroups && handle <= kHandleMax && size <= kMembersMax &&
                      own_rank < size))
      return;
    group.handle = static_cast<uint32_t>(handle);
    group.state = static_cast<ring::GroupState>(kind);
    group.size = static_cast<int>(size);
    group.own_rank = static_cast<int>(own_rank);
    state_.groups.push_back(std::move(group));
    places_[index] = state_.groups.size();
  }

  // Reads `called` last, since a writer moves it first.
  void read_progress(const ring::Group& from, RecordedGroup& group) {
    std::array<RecordedHash, ring::kHashes> hashes;
    for (size_t i = 0; i < ring::kHashes; ++i)
      hashes[i] = hash_of(from, i);
    group.completed = load(from.completed);
    group.started = load(from.started);
    group.called = load(from.called);
    for (uint64_t* const counter : {&group.completed, &group.started})
      limit(*counter, group.called);
    for (const RecordedHash& hash : hashes) {
      // A hash beyond `called` is of a withdrawn call.
      if (hash.ordinal > 0 && hash.ordinal <= group.called) group.hashes.push_back(hash);
    }
    std::ranges::sort(group.hashes, {}, &RecordedHash::ordinal);
    group.state_since = times_.at(load(from.state_ticks));
    group.called_at = group.called == 0 ? group.state_since : times_.at(load(from.called_ticks));
  }

  // Ordinal 0: none, or just being replaced.
  RecordedHash hash_of(const ring::Group& from, size_t i) {
    const uint64_t ordinal = load(from.hash_ordinal[i]);
    const uint64_t hash = load(from.hash[i]);
    if (ordinal == 0 || load(from.hash_ordinal[i]) != ordinal) return {};
    const bool in_place =
        ordinal % ring::kHashEvery == 0 && ordinal / ring::kHashEvery % ring::kHashes == i;
    return count_unless(in_place) ? RecordedHash{ordinal, hash} : RecordedHash{};
  }

  void read_messages(const ring::PeerCount& from) {
    const uint64_t key = load(from.key);
    if (key == 0) return;
    RecordedMessages messages;
    messages.completed = load(from.completed);
    messages.called = load(from.called);
    messages.called_at = times_.at(load(from.called_ticks));
    messages.is_recv = (key >> 62 & 1) != 0;
    messages.group = static_cast<uint32_t>(key >> 32 & 0x3fffffff);
    const uint64_t peer = key & 0xffffffff;  // Plus 1.
    if (load(from.key) != key || !count_unless(key >> 63 == 1)) return;
    if (messages.called == 0) return;  // The entry is being taken, or freed.
    const RecordedGroup* const group = group_of(messages.group);
    if (group == nullptr || !count_unless(peer <= static_cast<uint64_t>(group->size))) return;
    messages.peer = static_cast<int>(peer) - 1;
    limit(messages.completed, messages.called);
    state_.messages.push_back(messages);
  }

  const RecordedGroup* group_of(uint32_t handle) const {
    const size_t place = places_[handle % ring::kGroups];
    if (place == 0 || state_.groups[place - 1].handle != handle) return nullptr;
    return &state_.groups[place - 1];
  }

  void read_sections() {
    const auto depth = std::min<uint64_t>(load(ring_.notes.depth), ring::kSections);
    for (size_t i = 0; i < depth; ++i) {
      const uint64_t entered = load(ring_.notes.section_ticks[i]);
      std::string name = text_in(ring_.notes.sections[i], ring::kWordsOfText);
      // A change means that another section has begun, and the text may be of both.
      if (entered == 0 || load(ring_.notes.section_ticks[i]) != entered) return;
      state_.sections.push_back({std::move(name), times_.at(entered)});
    }
  }

  void read_failure() {
    const ring::Notes& notes = ring_.notes;
    const uint64_t failed = load(notes.failed_ticks);
    if (failed == 0) return;
    const uint64_t group = load(notes.failed_group);
    if (!count_unless(group <= kHandleMax)) return;
    state_.failure =
        RecordedFailure{static_cast<uint32_t>(group),
                        text_in(notes.failure, std::size(notes.failure)), times_.at(failed)};
  }

  bool count_unless(bool sound) {
    if (!sound) ++state_.garbage;
    return sound;
  }
  void limit(uint64_t& counter, uint64_t most) {
    if (!count_unless(counter <= most)) counter = most;
  }

  const ring::Ring& ring_;
  const RecordedTimes times_;
  RecordedState state_;
  // By index: 1 + the place of its group in `state_.groups`; 0: none.
  std::array<size_t, ring::kGroups> places_{};
};

// Reads the calls, once.
class CallsLook {
  // Records searched for each collective, if messages are between.
  static constexpr uint64_t kRecordsPerCall = 8;

 public:
  explicit CallsLook(const ring::Ring& ring) : ring_(ring), times_(ring.head) {}

  std::vector<RecordedCall> take(size_t most) const {
    const uint64_t next = load(ring_.head.next_record);
    std::vector<RecordedCall> calls;
    for (uint64_t back = 1; back <= std::min<uint64_t>(next, ring::kRecords); ++back) {
      if (calls.size() >= most) break;
      if (auto call = call_of(next - back)) calls.push_back(*std::move(call));
    }
    std::ranges::reverse(calls);
    return calls;
  }

  std::vector<RecordedCall> take_recent(size_t most, std::set<uint32_t> also) const {
    const uint64_t next = load(ring_.head.next_record);
    const auto oldest = std::min<uint64_t>(next, ring::kRecords);
    std::vector<RecordedCall> calls;
    size_t collectives = 0;
    for (uint64_t back = 1; back <= oldest; ++back) {
      const bool is_recent = back <= most * kRecordsPerCall && collectives < most;
      if (!is_recent && also.empty()) break;
      const auto glance = glance_at(next - back);
      if (!glance) continue;
      const bool is_message = ring::is_message(glance->kind);
      const bool is_last = !is_message && also.erase(glance->group) > 0;
      if (!is_last && !(is_message ? back <= most : is_recent)) continue;
      collectives += is_message ? 0 : 1;
      if (auto call = call_of(next - back)) calls.push_back(*std::move(call));
    }
    std::ranges::reverse(calls);
    return calls;
  }

  // Reads the calls from `position` on, and moves it behind them.
  std::vector<CallGlance> take_new(RingPosition& position) const {
    const uint64_t next = load(ring_.head.next_record);
    const uint64_t oldest = next - std::min<uint64_t>(next, ring::kRecords);
    uint64_t n = std::clamp(position.next, oldest, next);
    position.overwritten += n - std::min(n, position.next);
    std::vector<CallGlance> glances;
    for (; n < next; ++n) {
      const uint64_t sequence = load(ring_.records[n % ring::kRecords].sequence);
      if (sequence < 2 * n + 2 && position.unwritten != n + 1) {
        position.unwritten = n + 1;
        break;
      }
      if (const auto glance = glance_at(n)) {
        glances.push_back(*glance);
      } else {
        ++position.overwritten;
      }
    }
    position.next = n;
    return glances;
  }

  std::optional<RecordedCall> call_of(uint64_t n) const {
    const std::optional<Words> words = words_of(n);
    if (!words) return std::nullopt;
    RecordedCall call;
    put_kinds(words->what, call);
    call.ordinal = words->ordinal;
    if (call.ordinal == 0 && !is_message(call.call.kind)) return std::nullopt;
    call.call.count = words->count;
    call.group = static_cast<uint32_t>(words->what & kHandleMax);
    const uint64_t root = words->peer & 0xffffffff;  // Plus 1.
    if (root <= kMembersMax) call.call.root = static_cast<int32_t>(root) - 1;
    call.tag = static_cast<int>(static_cast<uint32_t>(words->peer >> 32));
    call.called = times_.at(words->called);
    call.started = time_since(words->called, words->started, n);
    call.completed = time_since(words->called, words->completed, n);
    put_site(words->what >> 48, call);
    return call;
  }

 private:
  struct Words {
    uint64_t what = 0;
    uint64_t peer = 0;
    uint64_t ordinal = 0;
    uint64_t count = 0;
    uint64_t called = 0;
    uint64_t started = 0;
    uint64_t completed = 0;
  };

  // Returns those of record n, all of one state; nullopt: it is being written, or is another one's.
  std::optional<Words> words_of(uint64_t n) const {
    const ring::Record& record = ring_.records[n % ring::kRecords];
    const uint64_t sequence = 2 * n + 2;
    for (int look = 0; look < 3 && load(record.sequence) == sequence; ++look) {
      const Words words{load(record.what),     load(record.peer),         load(record.ordinal),
                        load(record.count),    load(record.called_ticks), load(record.started),
                        load(record.completed)};
      if (load(record.sequence) != sequence) break;
      // A flag that was set meanwhile has left the sequence as it was. There are two of them.
      if (load(record.what) == words.what) return words;
    }
    return std::nullopt;
  }

  std::optional<CallGlance> glance_at(uint64_t n) const {
    const std::optional<Words> words = words_of(n);
    if (!words) return std::nullopt;
    return CallGlance{.record = n,
                      .group = static_cast<uint32_t>(words->what & kHandleMax),
                      .ordinal = words->ordinal,
                      .kind = known(words->what >> 16 & 0xff, ring::kLastCallKind),
                      .is_synchronous = (words->what >> 40 & ring::kIsSynchronous) != 0,
                      .withdrawn = (words->what >> 40 & ring::kWithdrawn) != 0,
                      .called = times_.at(words->called),
                      .completed = time_since(words->called, words->completed, n)};
  }

  template <typename Enum>
  static Enum known(uint64_t number, Enum last) {
    return number <= static_cast<uint64_t>(last) ? static_cast<Enum>(number) : Enum::unknown;
  }

  static void put_kinds(uint64_t what, RecordedCall& call) {
    call.call.kind = known(what >> 16 & 0xff, ring::kLastCallKind);
    call.call.type = known(what >> 24 & 0xff, ring::ElementType::boolean);
    call.call.reduction = known(what >> 32 & 0xff, ring::Reduction::premultiplied_sum);
    const uint64_t flags = what >> 40 & 0xff;
    call.call.is_v = (flags & ring::kIsV) != 0;
    call.call.is_synchronous = (flags & ring::kIsSynchronous) != 0;
    call.withdrawn = (flags & ring::kWithdrawn) != 0;
    call.failed = (flags & ring::kFailed) != 0;
  }

  // `word` belongs to record n only if it has its lap.
  std::optional<Instant> time_since(uint64_t called, uint64_t word, uint64_t n) const {
    if ((word & kTicksMask) == 0 || word >> 48 != (n / ring::kRecords & 0xffff)) return {};
    const uint64_t since = word & kTicksMask;
    return times_.at(std::min(called, std::numeric_limits<uint64_t>::max() - since) + since);
  }

  void put_site(uint64_t index, RecordedCall& call) const {
    if (index >= ring::kSites) return;
    const ring::Site& site = ring_.sites[index];
    const uint64_t address = load(site.address);
    call.site = text_in(site.text, std::size(site.text));
    if (call.site.empty()) call.site_address = address;
  }

  const ring::Ring& ring_;
  const RecordedTimes times_;
};

// Returns what `take` reads of one owner; nullopt: no owner, or a new one at each try.
template <typename Take>
auto of_one_owner(const ring::Head& head, const Take& take) -> std::optional<decltype(take(0))> {
  for (int look = 0; look < kLooks; ++look) {
    const uint64_t generation = load(head.generation);
    if (generation == 0 || load(head.attached) != generation) return std::nullopt;
    auto taken = take(generation);
    if (load(head.generation) == generation) return taken;
  }
  return std::nullopt;
}

}  // namespace

const RecordedGroup* RecordedState::group(uint32_t handle) const {
  const auto found = std::ranges::find(groups, handle, &RecordedGroup::handle);
  return found == groups.end() ? nullptr : &*found;
}

bool completions_are_stale(const RecordedState& state, Instant now) {
  return state.looked && now - *state.looked > kLooksPatience;
}

Result<RingReader> RingReader::open(const ring::RecordFd& record_fd) {
  std::string why;
  if (ring::Ring* const ring = ring::map_ring(record_fd, /*writable=*/true, why))
    return RingReader(ring);
  return fail(ExitCode::environment, std::move(why));
}

const std::atomic<uint32_t>& RingReader::attachments() const {
  static_assert(std::endian::native == std::endian::little);
  const void* const counter = &ring_->head.futex;  // The kernel's futexes have 32 bits.
  return *static_cast<const std::atomic<uint32_t>*>(counter);
}

std::optional<FailureRecord> RingReader::reported() const {
  const ring::Report& report = ring_->notes.report;
  const uint64_t time_ns = load(report.time_ns);
  if (time_ns == 0 || time_ns > INT64_MAX) return std::nullopt;
  const uint64_t what = load(report.what);
  if ((what >> 32) > INT_MAX) return std::nullopt;
  FailureRecord record{.time_ns = static_cast<int64_t>(time_ns),
                       .rank = static_cast<int>(what >> 32) - 1};
  const uint64_t code = what & 0xff;
  if (code <= static_cast<uint64_t>(FailureCode::system))
    record.code = static_cast<FailureCode>(code);
  for (const Word& ranks : report.origin) {
    const uint64_t both = load(ranks);
    for (const uint64_t rank : {both & UINT32_MAX, both >> 32}) {
      if (rank == 0) continue;
      if (rank > INT_MAX) return std::nullopt;
      record.origin.push_back(static_cast<int>(rank) - 1);
    }
  }
  const bool ascends =
      std::ranges::adjacent_find(record.origin, std::greater_equal<>()) == record.origin.end();
  if (!ascends) return std::nullopt;
  record.message = text_in(report.message, std::size(report.message));
  return load(report.time_ns) == time_ns ? std::optional(std::move(record)) : std::nullopt;
}

std::optional<Departure> RingReader::departure(pid_t worker) const {
  std::optional<Departure> note = noted(worker);
  return note && note->kind != DepartureKind::thread_ended ? std::move(note) : std::nullopt;
}

std::optional<Departure> RingReader::ended_thread(pid_t worker) const {
  std::optional<Departure> note = noted(worker);
  return note && note->kind == DepartureKind::thread_ended ? std::move(note) : std::nullopt;
}

std::optional<Departure> RingReader::noted(pid_t worker) const {
  const ring::DepartureNote& note = ring_->notes.departure;
  const uint64_t time_ns = load(note.time_ns);
  const uint64_t what = load(note.what);
  const uint64_t kind = what & 0xff;
  const bool is_sound = time_ns != 0 && time_ns <= INT64_MAX && (what >> 32) <= INT_MAX &&
                        kind != 0 && kind <= static_cast<uint64_t>(DepartureKind::thread_ended);
  if (!is_sound) return std::nullopt;
  Departure departure{.time_ns = static_cast<int64_t>(time_ns),
                      .kind = static_cast<DepartureKind>(kind),
                      .pid = static_cast<pid_t>(what >> 32),
                      .error = text_in(note.error, std::size(note.error)),
                      .site = text_in(note.site, std::size(note.site)),
                      .threads = text_in(note.threads, std::size(note.threads))};
  if (load(note.time_ns) != time_ns) return std::nullopt;
  if (departure.pid == worker) return departure;
  const std::optional<RecordedState> recorded = state();
  return recorded && recorded->owner == departure.pid ? std::optional(std::move(departure))
                                                      : std::nullopt;
}

std::optional<RecordedState> RingReader::state() const {
  return of_one_owner(ring_->head,
                      [&](uint64_t generation) { return StateLook(*ring_, generation).take(); });
}

void RingReader::read_on(RingPosition& position,
                         const std::function<bool(const CallGlance&)>& visit) const {
  RingPosition behind;
  const auto glances = of_one_owner(ring_->head, [&](uint64_t generation) {
    behind = position.generation == generation ? position : RingPosition{.generation = generation};
    return CallsLook(*ring_).take_new(behind);
  });
  if (!glances) return;
  const uint64_t first = position.generation == behind.generation ? position.next : 0;
  const uint64_t missed = position.generation == behind.generation ? position.overwritten : 0;
  const auto stopped = std::ranges::find_if_not(*glances, visit);
  if (stopped != glances->end()) {
    behind.next = stopped->record;
    const auto shown = static_cast<uint64_t>(stopped - glances->begin());
    behind.overwritten = missed + (behind.next - first) - shown;
  }
  position = behind;
}

std::optional<RecordedCall> RingReader::call(const RingPosition& position, uint64_t record) const {
  return of_one_owner(ring_->head,
                      [&](uint64_t generation) -> std::optional<RecordedCall> {
                        if (generation != position.generation) return std::nullopt;
                        return CallsLook(*ring_).call_of(record);
                      })
      .value_or(std::nullopt);
}

std::vector<RecordedCall> RingReader::recent_calls(size_t most,
                                                   const std::set<uint32_t>& also) const {
  return of_one_owner(
             ring_->head,
             [&](uint64_t /*generation*/) { return CallsLook(*ring_).take_recent(most, also); })
      .value_or(std::vector<RecordedCall>());
}

std::vector<RecordedCall> RingReader::calls(size_t most) const {
  return of_one_owner(ring_->head,
                      [&](uint64_t /*generation*/) { return CallsLook(*ring_).take(most); })
      .value_or(std::vector<RecordedCall>());
}

}  // namespace muster

#include "rendezvous/store/store_machine.h"

#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text.h"

namespace muster {

using tcpstore::Breach;
using tcpstore::Op;
using tcpstore::Request;

namespace {

// The asker of a SET made by the owner.
constexpr ClientId kNoConnection = std::numeric_limits<ClientId>::max();

// Approximate overhead of a key or a queue item, counted so that empty ones are not free.
constexpr size_t kEntryBytes = 128;
constexpr size_t kWorthTaking = size_t{64} << 10;  // Minimum size of a value to move, not copy.

// Parses like C's strtoll: tolerates leading whitespace and trailing garbage, because PyTorch's
// server does. Returns nullopt if there is no number or it is out of range.
std::optional<int64_t> leading_number(std::string_view text) {
  while (!text.empty() && (text[0] == ' ' || (text[0] >= '\t' && text[0] <= '\r')))
    text.remove_prefix(1);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.empty() || text[0] == '-') return std::nullopt;
  }
  return take_number<int64_t>(text);
}

// Wraps around on overflow, which is undefined for signed operands.
int64_t wrapping_sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

std::string_view to_decimal(int64_t number, char (&buffer)[24]) {
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, number);
  CHECK(error == std::errc{});
  return {buffer, static_cast<size_t>(end - buffer)};
}

}  // namespace

StoreMachine::StoreMachine(const Options& options)
    : options_(options),
      keys_(options.hash_seed),
      queues_(0, KeyedHash(options.hash_seed)),
      waiters_(options.hash_seed) {}

StoreMachine::~StoreMachine() = default;

void StoreMachine::opened(Instant now, ClientId id) {
  if (sessions_.size() <= id) sessions_.resize(id + 1);
  CHECK(!sessions_[id].open);
  sessions_[id] = {.serial = ++serial_, .open = true};
  handshakes_.push_back({now + options_.handshake_timeout, id, serial_});
}

void StoreMachine::closed(ClientId id) {
  CHECK(sessions_[id].open);
  sessions_[id].open = false;
  waiters_.forget(id);
}

// May be early: entries of clients that are validated or gone stay until their deadline.
Instant StoreMachine::next_deadline() const {
  return handshakes_.empty() ? kNever : handshakes_.front().deadline;
}

void StoreMachine::expire(Instant now, std::vector<ClientId>& late) {
  while (!handshakes_.empty() && handshakes_.front().deadline <= now) {
    const Handshake& handshake = handshakes_.front();
    if (is_half_open(handshake)) late.push_back(handshake.id);
    handshakes_.pop_front();
  }
}

bool StoreMachine::is_half_open(const Handshake& handshake) const {
  const Session& session = sessions_[handshake.id];
  return session.open && session.serial == handshake.serial && !session.validated;
}

std::optional<ClientId> StoreMachine::oldest_half_open() {
  while (!handshakes_.empty() && !is_half_open(handshakes_.front()))
    handshakes_.pop_front();
  if (handshakes_.empty()) return std::nullopt;
  return handshakes_.front().id;
}

std::optional<Breach> StoreMachine::request(ClientId id, const Request& request,
                                            StoreEffects& out) {
  Session& session = sessions_[id];
  CHECK(session.open);
  if (request.op == Op::validate) {
    session.validated = true;
    return std::nullopt;
  }
  if (!session.validated) return Breach::not_validated;
  asker_ = session.serial;
  return perform(id, request, out);
}

StoreMachine::MaybeBreach StoreMachine::perform(ClientId id, const Request& request,
                                                StoreEffects& out) {
  switch (request.op) {
    case Op::set:
      return set(request, id, out);
    case Op::compare_set:
      return compare_set(request, id, out);
    case Op::get:
      return get(request, out);
    case Op::add:
      return add(request, id, out);
    case Op::check:
      check(request, out);
      return {};
    case Op::wait:
      return wait(request, id, out);
    case Op::num_keys:
      tcpstore::put_u64(out.reply, keys_.size());
      return {};
    case Op::delete_key:
      delete_key(request, out);
      return {};
    case Op::append:
      return append(request, id, out);
    case Op::multi_get:
      return multi_get(request, out);
    case Op::multi_set:
      return multi_set(request, id, out);
    case Op::cancel_wait:
      waiters_.forget(id);
      out.reply.push_back(tcpstore::kCancelled);
      return {};
    case Op::ping:
      sessions_[id].nonce = static_cast<uint32_t>(request.number);
      tcpstore::put_u32(out.reply, static_cast<uint32_t>(request.number));
      return {};
    case Op::queue_push:
      return queue_push(request, id, out);
    case Op::queue_pop:
      queue_pop(request, out);
      return {};
    case Op::queue_len:
      queue_len(request, out);
      return {};
    case Op::list_keys:
      return list_keys(out);
    case Op::barrier:
      return barrier(request, id, out);
    case Op::validate:
      break;
  }
  return Breach::second_validate;
}

StoreMachine::Entry& StoreMachine::entry(std::string_view key) {
  bool added = false;
  Entry& entry = keys_.find_or_add(key, added);
  if (added) note_added(entry);
  return entry;
}

void StoreMachine::note_added(Entry& entry) {
  stored_bytes_ += kEntryBytes + entry.name().size();
  entry.creator = asker_;
}

void StoreMachine::assign(Entry& entry, std::string_view value) {
  stored_bytes_ += value.size();
  stored_bytes_ -= entry.value.size();
  // A shrinking string keeps its capacity; a large one must not.
  if (entry.value.capacity() > 2 * value.size() + 64) entry.value = std::string();
  entry.value.assign(value);
}

// Moves a large value to the front of the buffer it came in, which costs a third of a copy into
// memory that the kernel has to provide first. Invalidates the request's fields.
void StoreMachine::take(Entry& entry, const Request& request) {
  const std::string_view value = request.value();
  const size_t begin = static_cast<size_t>(value.data() - request.storage->data());
  const size_t size = value.size();
  stored_bytes_ += size;
  stored_bytes_ -= entry.value.size();
  entry.value = std::move(*request.storage);
  entry.value.resize(begin + size);
  entry.value.erase(0, begin);
}

bool StoreMachine::is_queue(std::string_view key) const {
  return !queues_.empty() && queues_.contains(key);
}

// Conservative: does not subtract the value that is replaced.
bool StoreMachine::fits(size_t more_bytes) const {
  return stored_bytes() + more_bytes + kEntryBytes <= options_.stored_bytes_max;
}

// An asker that wakes itself (a SET after its own parked WAIT) gets the byte within its reply.
void StoreMachine::wake(std::string_view key, WakeKind kind, ClientId asker, StoreEffects& out) {
  if (waiters_.empty()) return;
  const size_t before = out.woken.size();
  waiters_.wake(key, kind, out.woken);
  for (size_t i = before; i < out.woken.size(); i++) {
    if (out.woken[i] != asker) continue;
    out.woken.erase(out.woken.begin() + static_cast<std::ptrdiff_t>(i));
    out.reply.push_back(tcpstore::kReady);
    return;
  }
}

StoreMachine::MaybeBreach StoreMachine::set(const Request& request, ClientId id,
                                            StoreEffects& out) {
  if (!fits(request.key().size() + request.value().size())) return Breach::store_full;
  Entry& changed = entry(request.key());
  if (request.storage != nullptr && request.value().size() >= kWorthTaking) {
    take(changed, request);
  } else {
    assign(changed, request.value());
  }
  wake(changed.name(), WakeKind::all, id, out);
  return {};
}

bool StoreMachine::put(std::string_view key, std::string_view value, StoreEffects& out) {
  asker_ = 0;
  return !set({Op::set, 0, {key, value}}, kNoConnection, out);
}

// Replies with the value stored afterwards or, if a missing key was expected to have a value, with
// that expected value, as PyTorch's server does.
StoreMachine::MaybeBreach StoreMachine::compare_set(const Request& request, ClientId id,
                                                    StoreEffects& out) {
  const std::string_view expected = request.fields[1];
  const std::string_view desired = request.fields[2];
  const Entry* const found = keys_.find(request.key());
  if (found != nullptr ? found->value != expected : !expected.empty()) {
    tcpstore::put_string(out.reply, found != nullptr ? std::string_view(found->value) : expected);
    return {};
  }
  if (!fits(request.key().size() + desired.size())) return Breach::store_full;
  assign(entry(request.key()), desired);
  wake(request.key(), WakeKind::all, id, out);
  tcpstore::put_string(out.reply, desired);
  return {};
}

StoreMachine::MaybeBreach StoreMachine::get(const Request& request, StoreEffects& out) const {
  const Entry* const found = keys_.find(request.key());
  const std::string_view value = found != nullptr ? std::string_view(found->value) : "";
  if (value.size() > options_.reply_bytes_max) return Breach::reply_too_large;
  tcpstore::put_string(out.reply, value);
  return {};
}

// Adds to the number stored under `key`; a missing key counts as zero.
StoreMachine::MaybeBreach StoreMachine::count_up(std::string_view key, int64_t by, int64_t& sum) {
  Entry* counter = keys_.find(key);
  sum = by;
  if (counter != nullptr) {
    const std::optional<int64_t> stored = leading_number(counter->value);
    if (!stored) return Breach::not_a_number;
    sum = wrapping_sum(*stored, by);
  } else {
    if (!fits(key.size() + sizeof(int64_t))) return Breach::store_full;
    counter = &entry(key);
  }
  char digits[24];
  assign(*counter, to_decimal(sum, digits));
  return {};
}

StoreMachine::MaybeBreach StoreMachine::add(const Request& request, ClientId id,
                                            StoreEffects& out) {
  int64_t sum = 0;
  if (const MaybeBreach breach = count_up(request.key(), request.number, sum)) return breach;
  wake(request.key(), WakeKind::all, id, out);  // The asker's own wake-up precedes the sum.
  tcpstore::put_i64(out.reply, sum);
  return {};
}

StoreMachine::MaybeBreach StoreMachine::append(const Request& request, ClientId id,
                                               StoreEffects& out) {
  if (!fits(request.key().size() + request.value().size())) return Breach::store_full;
  entry(request.key()).value.append(request.value());
  stored_bytes_ += request.value().size();
  wake(request.key(), WakeKind::all, id, out);
  return {};
}

void StoreMachine::check(const Request& request, StoreEffects& out) const {
  char answer = tcpstore::kReady;
  keys_.find_all(request.fields, [&](size_t i, const Entry* entry) {
    if (entry == nullptr && !is_queue(request.fields[i])) answer = tcpstore::kNotReady;
    return answer == tcpstore::kReady;
  });
  out.reply.push_back(answer);
}

// As in PyTorch's server, a WAIT that is answered at once leaves an earlier one of the same
// connection parked.
StoreMachine::MaybeBreach StoreMachine::wait(const Request& request, ClientId id,
                                             StoreEffects& out) {
  std::vector<std::string_view> missing;
  size_t bytes = 0;
  keys_.find_all(request.fields, [&](size_t i, const Entry* entry) {
    const std::string_view key = request.fields[i];
    if (entry != nullptr || is_queue(key)) return true;
    missing.push_back(key);
    bytes += key.size() + kEntryBytes;
    return true;
  });
  if (missing.empty()) {
    out.reply.push_back(tcpstore::kReady);
    return {};
  }
  if (!fits(bytes)) return Breach::store_full;
  waiters_.park(id, missing);
  return {};
}

void StoreMachine::delete_key(const Request& request, StoreEffects& out) {
  Entry* const gone = keys_.find(request.key());
  tcpstore::put_i64(out.reply, gone == nullptr ? 0 : 1);
  if (gone == nullptr) return;
  stored_bytes_ -= kEntryBytes + gone->name().size() + gone->value.size();
  keys_.erase(*gone);
}

StoreMachine::MaybeBreach StoreMachine::multi_get(const Request& request, StoreEffects& out) const {
  std::vector<std::string_view> values;
  values.reserve(request.fields.size());
  size_t bytes = 0;
  keys_.find_all(request.fields, [&](size_t, const Entry* entry) {
    values.push_back(entry != nullptr ? std::string_view(entry->value) : "");
    bytes += 8 + values.back().size();
    return true;
  });
  if (bytes > options_.reply_bytes_max) return Breach::reply_too_large;
  for (const std::string_view value : values)
    tcpstore::put_string(out.reply, value);
  return {};
}

// Stores all values before waking any client.
StoreMachine::MaybeBreach StoreMachine::multi_set(const Request& request, ClientId id,
                                                  StoreEffects& out) {
  size_t bytes = 0;
  for (const std::string_view field : request.fields)
    bytes += field.size();
  if (!fits(bytes + request.fields.size() / 2 * kEntryBytes)) return Breach::store_full;
  keys_.find_or_add_all(request.fields, [&](size_t i, Entry& entry, bool added) {
    if (added) note_added(entry);
    assign(entry, request.fields[i + 1]);
  });
  for (size_t i = 0; i < request.fields.size(); i += 2)
    wake(request.fields[i], WakeKind::all, id, out);
  return {};
}

StoreMachine::MaybeBreach StoreMachine::list_keys(StoreEffects& out) const {
  size_t bytes = 8;
  for (const Entry* entry = keys_.oldest(); entry != nullptr; entry = entry->after())
    bytes += 8 + entry->name().size();
  if (bytes > options_.reply_bytes_max) return Breach::reply_too_large;
  tcpstore::put_u64(out.reply, keys_.size());
  for (const Entry* entry = keys_.oldest(); entry != nullptr; entry = entry->after())
    tcpstore::put_string(out.reply, entry->name());
  return {};
}

StoreMachine::MaybeBreach StoreMachine::queue_push(const Request& request, ClientId id,
                                                   StoreEffects& out) {
  const size_t bytes = request.key().size() + request.value().size() + kEntryBytes;
  if (!fits(bytes)) return Breach::store_full;
  auto found = queues_.find(request.key());
  if (found == queues_.end()) {
    found = queues_.emplace(std::string(request.key()), std::deque<std::string>()).first;
  }
  found->second.emplace_back(request.value());
  stored_bytes_ += bytes;
  wake(request.key(), WakeKind::one, id, out);
  return {};
}

void StoreMachine::queue_pop(const Request& request, StoreEffects& out) {
  const auto found = queues_.find(request.key());
  if (found == queues_.end()) return tcpstore::put_i64(out.reply, 0);
  std::deque<std::string>& items = found->second;
  tcpstore::put_u64(out.reply, items.size());
  tcpstore::put_string(out.reply, items.front());
  stored_bytes_ -= request.key().size() + items.front().size() + kEntryBytes;
  items.pop_front();
  if (items.empty()) queues_.erase(found);
}

void StoreMachine::queue_len(const Request& request, StoreEffects& out) const {
  const auto found = queues_.find(request.key());
  tcpstore::put_u64(out.reply, found == queues_.end() ? 0 : found->second.size());
}

// The counter is an ordinary value and never reset: later clients pass at once.
StoreMachine::MaybeBreach StoreMachine::barrier(const Request& request, ClientId id,
                                                StoreEffects& out) {
  int64_t arrived = 0;
  if (const MaybeBreach breach = count_up(request.key(), 1, arrived)) return breach;
  if (arrived >= request.number) {
    wake(request.key(), WakeKind::all, id, out);
    out.reply.push_back(tcpstore::kReady);
  } else {
    wake(request.key(), WakeKind::existing, id, out);
    waiters_.park_at_barrier(id, request.key());
  }
  return {};
}

std::string StoreMachine::status() const {
  return fmt::format("{} keys, {} bytes, {} waiting", keys_.size(), stored_bytes(),
                     waiters_.waiting());
}

}  // namespace muster

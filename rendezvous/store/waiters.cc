#include "rendezvous/store/waiters.h"

#include "rendezvous/base/error.h"

namespace muster {
namespace {
// Overhead of a line besides its name: node, bucket, allocations.
constexpr size_t kLineBytes = 112;
}  // namespace

Waiters::Waiters(uint64_t hash_seed) : lines_(0, KeyedHash(hash_seed)) {}
Waiters::~Waiters() = default;

Waiters::Waiter& Waiters::new_waiter(ClientId id, size_t names) {
  forget(id);
  if (waiters_.size() <= id) waiters_.resize(id + 1);
  waiters_[id] = std::make_unique<Waiter>();
  Waiter& waiter = *waiters_[id];
  waiter.id = id;
  waiter.links.reserve(names);
  ++waiting_;
  bytes_ += sizeof(Waiter) + names * sizeof(Link);
  return waiter;
}

void Waiters::park(ClientId id, const std::vector<std::string_view>& missing) {
  CHECK(!missing.empty());
  Waiter& waiter = new_waiter(id, missing.size());
  for (const std::string_view name : missing)
    link(waiter, name);
}

void Waiters::park_at_barrier(ClientId id, std::string_view name) {
  Waiter& waiter = new_waiter(id, 1);
  waiter.at_barrier = true;
  link(waiter, name);
}

// A duplicate name finds this waiter last in the line: no other waiter is parked in between.
void Waiters::link(Waiter& waiter, std::string_view name) {
  auto found = lines_.find(name);
  if (found == lines_.end()) {
    found = lines_.emplace(std::string(name), Line{}).first;
    found->second.name = &found->first;
    bytes_ += kLineBytes + name.size();
  }
  Line& line = found->second;
  if (line.last != nullptr && line.last->waiter == &waiter) return;
  Link& link = waiter.links.emplace_back();
  link.line = &line;
  link.waiter = &waiter;
  link.before = line.last;
  (line.last != nullptr ? line.last->after : line.first) = &link;
  line.last = &link;
  ++waiter.missing;
}

void Waiters::unlink(Link& link) {
  Line& line = *link.line;
  (link.before != nullptr ? link.before->after : line.first) = link.after;
  (link.after != nullptr ? link.after->before : line.last) = link.before;
  link.line = nullptr;
  --link.waiter->missing;
}

void Waiters::drop_if_empty(const Line& line) {
  if (line.first != nullptr) return;
  bytes_ -= kLineBytes + line.name->size();
  lines_.erase(lines_.find(*line.name));
}

void Waiters::remove(const Waiter& waiter) {
  bytes_ -= sizeof(Waiter) + waiter.links.capacity() * sizeof(Link);
  --waiting_;
  waiters_[waiter.id].reset();
}

void Waiters::forget(ClientId id) {
  if (id >= waiters_.size() || !waiters_[id]) return;
  for (Link& link : waiters_[id]->links) {
    if (link.line == nullptr) continue;
    const Line& line = *link.line;
    unlink(link);
    drop_if_empty(line);
  }
  remove(*waiters_[id]);
}

void Waiters::wake(std::string_view name, WakeKind kind, std::vector<ClientId>& woken) {
  const auto found = lines_.find(name);
  if (found == lines_.end()) return;
  const Line& line = found->second;
  for (Link* link = line.first; link != nullptr;) {
    Link& current = *link;
    link = link->after;
    Waiter& waiter = *current.waiter;
    if (kind == WakeKind::existing && waiter.at_barrier) continue;
    unlink(current);
    if (waiter.missing > 0) continue;
    woken.push_back(waiter.id);
    remove(waiter);
    if (kind == WakeKind::one) break;
  }
  drop_if_empty(line);
}

}  // namespace muster

#include "agent/output/line_mux.h"

#include <algorithm>

#include "rendezvous/base/error.h"

namespace muster {
namespace {

size_t whole_lines(std::string_view bytes) {
  const size_t newline = bytes.rfind('\n');
  return newline == std::string_view::npos ? 0 : newline + 1;
}

bool has_return(std::string_view bytes) {
  return bytes.find('\r') != std::string_view::npos;
}

}  // namespace

int LineMux::open() {
  streams_.emplace(next_id_, Stream{});
  return next_id_++;
}

void LineMux::feed(int stream, std::string_view bytes, Instant now, Pieces& out) {
  spent_.clear();
  if (bytes.empty()) return;
  CHECK(streams_.contains(stream));
  streams_.at(stream).fed = now;
  if (owner_ == stream) {
    feed_owner(bytes, now, out);
  } else if (owner_ < 0) {
    feed_free(stream, bytes, now, out);
  } else {
    hold(stream, bytes, now);
  }
  settle(now, out);
}

void LineMux::close(int stream, Instant now, Pieces& out) {
  spent_.clear();
  CHECK(streams_.contains(stream));
  streams_.at(stream).closed = true;
  if (owner_ != stream && streams_.at(stream).held.empty()) streams_.erase(stream);
  settle(now, out);
}

void LineMux::tick(Instant now, Pieces& out) {
  spent_.clear();
  settle(now, out);
}

Instant LineMux::next_deadline() const {
  Instant first = kNever;
  for (const int id : holding_)
    first = std::min(first, due(streams_.at(id)));
  if (owner_ < 0 || first == kNever) return first;
  return std::max(first, gives_way(streams_.at(owner_)));
}

bool LineMux::wants(int stream) const {
  return owner_ < 0 || owner_ == stream || streams_.at(stream).held.size() < kHeldMax;
}

void LineMux::emit(std::string_view bytes, Pieces& out) {
  if (bytes.empty()) return;
  out.push_back(bytes);
  last_byte_ = bytes.back();
}

// Shows the first `bytes` of the held bytes; the rest stays held.
void LineMux::emit_held(Stream& stream, size_t bytes, Pieces& out) {
  spent_.push_back(std::move(stream.held));
  const std::string_view all = spent_.back();
  stream.held = all.substr(bytes);
  stream.whole -= std::min(stream.whole, bytes);
  emit(all.substr(0, bytes), out);
}

// Adds to the stream's held bytes and updates the state of its unfinished line.
void LineMux::hold(int id, std::string_view bytes, Instant now) {
  if (bytes.empty()) return;
  Stream& stream = streams_.at(id);
  const size_t whole = whole_lines(bytes);
  if (whole > 0) stream.bar = false;
  if (whole > 0 || stream.held.size() == stream.whole) stream.partial_since = now;
  stream.bar = stream.bar || has_return(bytes.substr(whole));
  if (whole > 0) stream.whole = stream.held.size() + whole;
  stream.held.append(bytes);
  holding_.insert(id);
}

void LineMux::feed_free(int id, std::string_view bytes, Instant now, Pieces& out) {
  Stream& stream = streams_.at(id);
  const size_t whole = whole_lines(bytes);
  if (whole > 0) {
    if (!stream.held.empty()) emit_held(stream, stream.held.size(), out);
    emit(bytes.substr(0, whole), out);
    stream.bar = false;
    stream.shown = 0;
    holding_.erase(id);
  }
  hold(id, bytes.substr(whole), now);
}

// Shows the owner's bytes at once, up to the end of its line and the complete lines after it.
void LineMux::feed_owner(std::string_view bytes, Instant now, Pieces& out) {
  Stream& stream = streams_.at(owner_);
  const size_t whole = whole_lines(bytes);
  if (whole == 0) {
    stream.bar = stream.bar || has_return(bytes);
    stream.shown += bytes.size();
    emit(bytes, out);
    return;
  }
  const int id = owner_;
  owner_ = -1;
  feed_free(id, bytes, now, out);
}

void LineMux::show_partial(int id, Instant now, Pieces& out) {
  Stream& stream = streams_.at(id);
  separate(stream, out);
  stream.shown = stream.held.size();
  emit_held(stream, stream.held.size(), out);
  stream.owner_since = now;
  holding_.erase(id);
  owner_ = id;
}

// Ends an unfinished line on the console before something else is shown there.
void LineMux::separate(const Stream& next, Pieces& out) {
  if (last_byte_ == '\n') return;
  const bool in_place = last_byte_ == '\r' || (!next.held.empty() && next.held.front() == '\r');
  if (next.whole == 0 && next.bar && in_place) return;
  emit("\n", out);
}

Instant LineMux::due(const Stream& stream) const {
  if (stream.held.empty()) return kNever;
  if (stream.whole > 0 || stream.closed || stream.held.size() > kLineMax) return Instant::min();
  return (stream.bar ? stream.partial_since : stream.fed) + kPartialQuiet;
}

Instant LineMux::gives_way(const Stream& owner) const {
  if (owner.closed) return Instant::min();
  if (!owner.bar || owner.shown > kLineMax) return owner.fed + kOwnerQuiet;
  return std::min(owner.fed + kBarQuiet, owner.owner_since + kOwnerQuiet);
}

bool LineMux::somebody_waits(Instant now) const {
  return std::ranges::any_of(holding_, [&](int id) { return due(streams_.at(id)) <= now; });
}

void LineMux::settle(Instant now, Pieces& out) {
  while (!holding_.empty()) {
    if (owner_ >= 0) {
      if (now < gives_way(streams_.at(owner_)) || !somebody_waits(now)) return;
      if (streams_.at(owner_).closed) streams_.erase(owner_);
      owner_ = -1;
    }
    flush_waiting(now, out);
    if (owner_ < 0) return;
  }
}

// Shows all complete lines, then the first partial line that is due. REQUIRES: no owner.
void LineMux::flush_waiting(Instant now, Pieces& out) {
  const std::vector<int> ids(holding_.begin(), holding_.end());
  for (const int id : ids) {
    Stream& stream = streams_.at(id);
    if (stream.whole == 0) continue;
    separate(stream, out);
    emit_held(stream, stream.whole, out);
    stream.shown = 0;
    if (stream.held.empty()) holding_.erase(id);
    if (stream.held.empty() && stream.closed) streams_.erase(id);
  }
  for (const int id : ids) {
    if (!holding_.contains(id) || now < due(streams_.at(id))) continue;
    show_partial(id, now, out);
    return;
  }
}

}  // namespace muster

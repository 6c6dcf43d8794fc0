#include "worker_lib/backends/cpu/exchange.h"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "rendezvous/base/error.h"
#include "worker_lib/backends/cpu/waiting.h"
#include "worker_lib/backends/late_transfer.h"
#include "worker_lib/reduction/reduce_kernels.h"
#include "worker_lib/time_text.h"

namespace muster::worker {
namespace {

bool is_same_call(const Frame& a, const Frame& b) {
  Frame compared = b;
  compared.part = a.part;
  compared.bytes = a.bytes;
  compared.had_counts = a.had_counts;
  return a == compared;
}

}  // namespace

Frame frame_of(const Operation& operation) {
  Frame frame;
  frame.kind = operation.kind;
  frame.sequence = operation.sequence;
  frame.purpose = static_cast<uint8_t>(operation.purpose) & 0xf;
  if (operation.kind == OpKind::barrier) return frame;
  frame.dtype = operation.dtype;
  frame.is_v = operation.is_v ? 1 : 0;
  frame.had_counts = operation.had_counts ? 1 : 0;
  frame.count = operation.is_v ? 0 : operation.count;
  if (has_reduction(frame.kind)) frame.reduce = operation.reduce;
  if (has_root(frame.kind)) frame.root = operation.root;
  return frame;
}

std::string describe(const Frame& frame) {
  const auto purpose = static_cast<CallPurpose>(frame.purpose);
  if (purpose != CallPurpose::itself)
    return fmt::format("{}() {}", name_of(purpose), frame.sequence);
  const bool had_counts = frame.is_v != 0 || frame.had_counts != 0;
  std::string text =
      fmt::format("{}{} {}", name_of(frame.kind), had_counts ? "_v" : "", frame.sequence);
  if (frame.kind == OpKind::barrier) return text;
  text += " (";
  if (has_reduction(frame.kind)) text += fmt::format("{} of ", name_of(frame.reduce));
  if (frame.is_v == 0) text += fmt::format("{} ", frame.count);
  text += name_of(frame.dtype);
  if (has_root(frame.kind)) text += fmt::format(", root {}", frame.root);
  return text + ")";
}

void combine(const Reduction& reduction, std::byte* out, const std::byte* a, const std::byte* b,
             size_t count) {
  const std::array<const std::byte*, 2> in{a, b};
  reduce_buffers(reduction.dtype, reduction.op, out, in.data(), in.size(), count);
}

Exchange::Exchange(ByteLinks& links, const Members& members, const AbortSwitch& abort,
                   AwaitedPeers* awaited)
    : links_(links),
      members_(members),
      abort_(abort),
      awaited_(awaited),
      streams_(2 * static_cast<size_t>(members.size())) {}

void Exchange::begin(const Operation& operation, Deadline deadline) {
  for (Stream* stream : active_) {
    stream->pieces.clear();
    stream->next = 0;
  }
  active_.clear();
  combinations_.clear();
  copies_.drop();
  label_ = frame_of(operation);
  limit_ = operation.limit;
  deadline_ = deadline;
}

Ticket Exchange::add(int peer, bool is_send, const Piece& piece) {
  CHECK(peer != members_.me);
  const int index = 2 * peer + (is_send ? 1 : 0);
  std::unique_ptr<Stream>& stream = streams_[static_cast<size_t>(index)];
  if (!stream) {
    stream = std::make_unique<Stream>();
    stream->peer = peer;
    stream->is_send = is_send;
  }
  if (stream->pieces.empty()) active_.push_back(stream.get());
  stream->pieces.push_back(piece);
  return {index, static_cast<uint32_t>(stream->pieces.size() - 1)};
}

Ticket Exchange::send(int peer, const void* data, size_t bytes, Ticket after) {
  return add(peer, true,
             {.from = static_cast<const std::byte*>(data), .bytes = bytes, .after = after});
}

Ticket Exchange::receive(int peer, void* to, size_t bytes, Ticket after) {
  return add(peer, false, {.to = static_cast<std::byte*>(to), .bytes = bytes, .after = after});
}

Ticket Exchange::receive_combined(int peer, const Reduction& reduction,
                                  const Combination& combination, Ticket after) {
  combinations_.push_back({reduction, combination});
  return add(peer, false,
             {.bytes = combination.count * reduction.element(),
              .after = after,
              .combination = static_cast<int>(combinations_.size() - 1)});
}

bool Exchange::may_go(const Piece& piece) const {
  return piece.after.stream < 0 ||
         streams_[static_cast<size_t>(piece.after.stream)]->next > piece.after.index;
}

bool Exchange::all_done() const {
  return std::ranges::all_of(active_, [](const Stream* stream) { return stream->done(); });
}

Outcome<> Exchange::finish() {
  // On every path, no thread touches the caller's buffers after the return.
  struct Dropped {
    SideCopies& copies;
    ~Dropped() { copies.drop(); }
  } const dropped{copies_};
  copies_.begin(links_.patience > std::chrono::nanoseconds{0});
  const Outcome<> done = move_all();
  if (!done) return done;
  copies_.finish();
  if (awaited_ != nullptr) awaited_->wait_for({});
  return check_unasked();
}

Outcome<> Exchange::move_all() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point idle_since = Clock::time_point::max();  // Not idle.
  while (true) {
    links_.observe();
    const Outcome<bool> moved = pass();
    if (!moved) return tl::unexpected(moved.error());
    if (all_done()) return Done{};
    if (abort_.is_set()) return tl::unexpected(abort_.failure());
    if (*moved || copies_.copy_some()) {
      idle_since = Clock::time_point::max();
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline_) return tl::unexpected(timeout_failure());
    idle_since = std::min(idle_since, now);
    if (now - idle_since < links_.patience) {
      linger(now - idle_since);
      continue;
    }
    wait_for_links();
  }
}

// Moves what can move now; returns true if anything moved.
Outcome<bool> Exchange::pass() {
  bool moved = false;
  for (Stream* stream : active_) {
    if (stream->done()) continue;
    const Outcome<bool> one = stream->is_send ? push(*stream) : pull(*stream);
    if (!one) return one;
    moved = moved || *one;
  }
  return moved;
}

Outcome<bool> Exchange::push(Stream& stream) {
  const Piece& piece = stream.pieces[stream.next];
  if (!may_go(piece)) return false;
  if (!stream.announced) {
    stream.frame = label_;
    stream.frame.part = stream.next;
    stream.frame.bytes = piece.bytes;
    stream.announced = true;
  }
  std::array<iovec, 2> parts;
  const Outcome<size_t> written = links_.write(
      stream.peer, unmoved(parts, stream.frame, piece.from, piece.bytes, stream.moved));
  if (!written) return tl::unexpected(written.error());
  stream.moved += *written;
  if (stream.moved == sizeof(Frame) + piece.bytes) complete(stream, piece);
  return *written > 0;
}

Outcome<bool> Exchange::pull(Stream& stream) {
  const Piece& piece = stream.pieces[stream.next];
  if (!may_go(piece)) return false;
  std::byte* to = piece.to;
  if (piece.combination >= 0) {
    if (stream.scratch.size() < piece.bytes) stream.scratch.resize(piece.bytes);
    to = stream.scratch.data();
  }
  // Reads frame and payload in one call. If the frame belongs to another call, `to` holds garbage,
  // as documented for the buffers of a failed operation.
  std::array<iovec, 2> parts;
  const Outcome<size_t> got =
      links_.read(stream.peer, unmoved(parts, stream.frame, to, piece.bytes, stream.moved));
  if (!got) return tl::unexpected(got.error());
  if (*got == 0) {
    if (links_.ended(stream.peer)) return tl::unexpected(ended_early(members_[stream.peer]));
    return false;
  }
  const bool had_frame = stream.moved >= sizeof(Frame);
  stream.moved += *got;
  if (!had_frame && stream.moved >= sizeof(Frame)) {
    const Outcome<> same = check_frame(stream, piece);
    if (!same) return tl::unexpected(same.error());
  }
  if (stream.moved == sizeof(Frame) + piece.bytes) complete(stream, piece);
  return true;
}

void Exchange::complete(Stream& stream, const Piece& piece) {
  if (piece.combination >= 0) {
    const auto& [reduction, what] = combinations_[static_cast<size_t>(piece.combination)];
    const std::byte* received = stream.scratch.data();
    combine(reduction, what.out, what.mine_first ? what.mine : received,
            what.mine_first ? received : what.mine, what.count);
    if (what.is_last && reduction.divisor != 1)
      divide(reduction.dtype, what.out, what.count, reduction.divisor);
  }
  ++stream.next;
  stream.moved = 0;
  stream.announced = false;
}

Outcome<> Exchange::check_frame(const Stream& stream, const Piece& piece) const {
  const Frame& frame = stream.frame;
  const Peer& peer = members_[stream.peer];
  if (frame.magic != Frame::kMagic)
    return failed(ErrorCode::peer_failed,
                  fmt::format("{} sent data that is not a message of a collective", describe(peer)),
                  {peer.rank});
  if (!is_same_call(frame, label_)) return tl::unexpected(mismatch_of(peer, frame));
  if (frame.bytes == piece.bytes && frame.part == stream.next) return Done{};
  return tl::unexpected(differing(
      peer,
      fmt::format(
          "{} sends {} bytes where {} expects {}; the counts that the ranks pass do not match",
          describe(peer), frame.bytes, describe(members_.self()), piece.bytes)));
}

// Two ranks that differ cannot tell which of them is wrong, so this is a suspicion about both.
Failure Exchange::differing(const Peer& peer, std::string message) const {
  const auto [low, high] = std::minmax(peer.rank, members_.self().rank);
  Failure failure{ErrorCode::mismatch, std::move(message), {low, high}};
  failure.is_suspicion = true;
  return failure;
}

Failure Exchange::mismatch_of(const Peer& peer, const Frame& frame) const {
  return differing(
      peer,
      fmt::format("{} called {} where {} called {}; all members of a group must make the same "
                  "calls in the same order",
                  describe(peer), describe(frame), describe(members_.self()), describe(label_)));
}

// Two ranks that both take themselves for the root of a broadcast only send, so neither would ever
// read a frame. Therefore a rank that sends to a peer but receives nothing from it in this call
// looks for an unread frame of this or an earlier call; a later one is fine, the peer is ahead.
Outcome<> Exchange::check_unasked() const {
  if (!has_root(label_.kind)) return Done{};
  for (const Stream* stream : active_) {
    const auto& heard = streams_[2 * static_cast<size_t>(stream->peer)];
    if (!stream->is_send || (heard && !heard->pieces.empty())) continue;
    Frame frame;
    if (links_.peek(stream->peer, std::as_writable_bytes(std::span(&frame, 1))) < sizeof frame)
      continue;
    if (frame.magic == Frame::kMagic && frame.sequence <= label_.sequence &&
        !is_same_call(frame, label_))
      return tl::unexpected(mismatch_of(members_[stream->peer], frame));
  }
  return Done{};
}

void Exchange::wait_for_links() {
  reading_.clear();
  writing_.clear();
  for (const Stream* stream : active_) {
    if (!stream->done() && may_go(stream->pieces[stream->next]))
      (stream->is_send ? writing_ : reading_).push_back(stream->peer);
  }
  CHECK(!reading_.empty() || !writing_.empty());  // Otherwise the dependencies form a cycle.
  // Reports receives first: a send is only stuck behind data that the peer has not read.
  if (awaited_ != nullptr) awaited_->wait_for(reading_.empty() ? writing_ : reading_);
  links_.arm({reading_, writing_});
  links_.sleep(deadline_, true);
}

// Names the peers whose messages did not arrive; if there are none, those that left no room for
// ours (a send is only stuck behind data that the peer has not read).
Failure Exchange::timeout_failure() const {
  std::vector<int> late;
  for (const bool sends : {false, true}) {
    for (const Stream* stream : active_) {
      if (stream->is_send == sends && !stream->done() && may_go(stream->pieces[stream->next]))
        late.push_back(stream->peer);
    }
    if (!late.empty()) break;
  }
  Failure failure = absent_members(members_, late, within(limit_));
  failure.is_suspicion = true;
  return failure;
}

}  // namespace muster::worker

// The part of TransferEngine that moves bytes over the links. Every function runs under its mutex.
#include <array>
#include <new>

#include <fmt/format.h>

#include "rendezvous/base/error.h"
#include "worker_lib/backends/cpu/p2p_engine.h"

namespace muster::worker {

// Tries to send and to receive one message with every active peer; sets `moved_` if anything moved.
void TransferEngine::pass() {
  moved_ = false;
  for (size_t i = 0; i < active_.size() && !failure_;) {
    const int peer = active_[i];
    moved_ = push(peer) || moved_;
    if (!failure_) moved_ = pull(peer) || moved_;
    if (sends_to(peer) || receives_from(peer)) {
      ++i;
      continue;
    }
    is_active_[static_cast<size_t>(peer)] = false;
    active_[i] = active_.back();
    active_.pop_back();
  }
}

bool TransferEngine::receives_from(int peer) const {
  const Incoming& in = ins_[static_cast<size_t>(peer)];
  return matching_.awaits(peer) || in.request || (in.early && in.early->claimed);
}

bool TransferEngine::push(int peer) {
  Outgoing& out = outs_[static_cast<size_t>(peer)];
  if (out.queue.empty()) return false;
  const RequestPtr request = out.queue.front();
  const size_t bytes = request->bytes();
  if (out.moved == 0)
    out.head = {.tag = request->transfer.tag, .dtype = request->transfer.dtype, .bytes = bytes};
  std::array<iovec, 2> parts;
  const Outcome<size_t> written =
      links_->write(peer, unmoved(parts, out.head, request->transfer.data, bytes, out.moved));
  if (!written) {
    fail(written.error());
    return false;
  }
  out.moved += *written;
  if (out.moved == sizeof(MessageHead) + bytes) {
    out.moved = 0;
    out.queue.pop_front();
    finish(request);
  }
  return *written > 0;
}

// Leaves a message in the links as long as no receive waits for its sender.
bool TransferEngine::pull(int peer) {
  if (!receives_from(peer)) return false;
  Incoming& in = ins_[static_cast<size_t>(peer)];
  bool moved = false;
  if (in.moved < sizeof(MessageHead)) {
    if (!pull_head(peer, in)) return false;
    moved = true;
    if (in.moved < sizeof(MessageHead)) return moved;
    begin_message(peer, in);
    if (failure_) return false;
  }
  const size_t data_moved = in.moved - sizeof(MessageHead);
  if (data_moved < in.head.bytes) {
    std::byte* to = in.request ? in.request->transfer.data : in.early->data.data();
    const iovec part{to + data_moved, in.head.bytes - data_moved};
    const Outcome<size_t> got = links_->read(peer, {&part, 1});
    if (!got) {
      fail(got.error());
      return false;
    }
    if (*got == 0 && links_->ended(peer)) peer_ended(peer);
    if (failure_ || *got == 0) return moved;
    in.moved += *got;
    if (in.early != nullptr) in.early->got += *got;
    moved = true;
  }
  if (in.moved == sizeof(MessageHead) + in.head.bytes) end_message(peer, in);
  return moved;
}

// Returns true if bytes arrived.
bool TransferEngine::pull_head(int peer, Incoming& in) {
  const iovec part{reinterpret_cast<char*>(&in.head) + in.moved, sizeof(MessageHead) - in.moved};
  const Outcome<size_t> got = links_->read(peer, {&part, 1});
  if (!got) {
    fail(got.error());
    return false;
  }
  if (*got == 0 && links_->ended(peer)) peer_ended(peer);
  in.moved += *got;
  return *got > 0 && !failure_;
}

void TransferEngine::begin_message(int peer, Incoming& in) {
  const Peer& sender = members_[peer];
  if (in.head.magic != MessageHead::kMagic) {
    fail({ErrorCode::peer_failed,
          fmt::format("{} sent data that is not a message", describe(sender)),
          {sender.rank}});
    return;
  }
  in.request = matching_.take_posted(peer, in.head.tag);
  if (in.request) {
    in.request->matched = true;
    in.request->source = peer;
    check_head(*in.request, peer, in.head);
    return;
  }
  try {
    in.early = matching_.add_early(peer, in.head);
  } catch (const std::bad_alloc&) {
    fail({ErrorCode::system,
          fmt::format("no memory to keep a message of {} bytes with tag {} from {} until it is "
                      "received; receive it before others of that rank",
                      in.head.bytes, in.head.tag, describe(sender)),
          {}});
  }
}

void TransferEngine::end_message(int peer, Incoming& in) {
  const RequestPtr request = std::move(in.request);
  const EarlyPtr early = std::move(in.early);
  in = {};
  if (request) {
    finish(request);
  } else if (early->claimed) {
    deliver(early->claimed, peer, *early);
  }
}

// Handles the end of `peer`'s stream: a failure inside a message or if a receive waits for that
// peer. Receives from any source continue while other streams are open.
void TransferEngine::peer_ended(int peer) {
  ins_[static_cast<size_t>(peer)].ended = true;
  bool awaited = ins_[static_cast<size_t>(peer)].moved > 0;
  bool others = false;
  for (int other = 0; other < members_.size(); ++other)
    others = others || (other != members_.me && !ins_[static_cast<size_t>(other)].ended);
  awaited = awaited || matching_.is_posted(peer) || (matching_.is_posted(-1) && !others);
  if (awaited) fail(ended_early(members_[peer]));
}

}  // namespace muster::worker

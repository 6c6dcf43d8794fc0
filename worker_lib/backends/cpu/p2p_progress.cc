// The part of TransferEngine that moves bytes over the links. Every function runs under its mutex.
#include <array>
#include <new>

#include <fmt/format.h>

#include "rendezvous/base/error.h"
#include "worker_lib/backends/cpu/p2p_engine.h"

namespace muster::worker {

// Tries every request in progress once; sets `moved_` if anything moved.
void TransferEngine::pass() {
  moved_ = false;
  for (size_t i = 0; i < under_way_.size() && !failure_; ++i) {
    const RequestPtr request = under_way_[i];
    if (request->done) continue;
    const int peer = request->peer();
    if (request->is_send()) {
      moved_ = push(peer) || moved_;
    } else if (peer >= 0) {
      moved_ = pull(peer) || moved_;
    } else {
      for (int any = 0; any < members_.size() && !failure_; ++any)
        moved_ = pull(any) || moved_;
    }
  }
  std::erase_if(under_way_, [](const RequestPtr& one) { return one->done; });
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
  if (peer == members_.me) return false;
  Incoming& in = ins_[static_cast<size_t>(peer)];
  bool moved = false;
  if (in.moved < sizeof(MessageHead)) {
    if (in.moved == 0 && !matching_.awaits(peer)) return false;
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
  EarlyMessage* early = in.early;
  in = {};
  if (request) {
    finish(request);
  } else if (early->claimed) {
    const RequestPtr claimed = early->claimed;
    deliver(claimed, peer, *early);
    matching_.drop_early(early);
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
  for (const RequestPtr& posted : matching_.posted())
    awaited = awaited || posted->transfer.peer == peer || (posted->transfer.peer < 0 && !others);
  if (awaited) fail(ended_early(members_[peer]));
}

}  // namespace muster::worker

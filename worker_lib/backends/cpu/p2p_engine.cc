#include "worker_lib/backends/cpu/p2p_engine.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "worker_lib/backends/cpu/waiting.h"
#include "worker_lib/backends/late_transfer.h"
#include "worker_lib/copy_bytes.h"
#include "worker_lib/quiet_thread.h"

namespace muster::worker {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

TransferEngine::TransferEngine(std::unique_ptr<ByteLinks> links, const Members& members)
    : links_(std::move(links)),
      members_(members),
      outs_(static_cast<size_t>(members.size())),
      ins_(static_cast<size_t>(members.size())),
      is_active_(static_cast<size_t>(members.size())) {}

TransferEngine::~TransferEngine() {
  abort({ErrorCode::aborted, "the group was destroyed while a transfer was in progress", {}});
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  links_->wake();
  if (thread_.joinable()) thread_.join();
}

// ---- calls

Outcome<int> TransferEngine::transfer(const Transfer& transfer, Deadline deadline) {
  Lock lock(mutex_);
  if (failure_) return tl::unexpected(*failure_);
  const RequestPtr request = enter(transfer, deadline);
  while (!request->done) {
    if (!is_driven_) {
      drive(lock, true, [&] { return request->done; });
    } else {
      request->changed.wait_until(lock, deadline, [&] { return request->done || !is_driven_; });
      check_deadlines(Clock::now());
    }
  }
  // This call may have read the message of the thread that was to drive next, or been that thread.
  if (!is_driven_) hand_over();
  if (request->failure) return tl::unexpected(*request->failure);
  return request->source;
}

Outcome<std::vector<std::shared_ptr<WorkState>>> TransferEngine::begin(
    const std::vector<Transfer>& transfers, Deadline deadline) {
  std::vector<std::shared_ptr<WorkState>> states;
  const Lock lock(mutex_);
  if (failure_) return tl::unexpected(*failure_);
  for (const Transfer& transfer : transfers) {
    auto work = std::make_shared<HostWork>();
    states.push_back(work);
    if (failure_) {
      work->complete(tl::unexpected(*failure_));
      continue;
    }
    ++unattended_;
    enter(transfer, deadline, std::move(work));
  }
  if (unattended_ > 0 && !thread_.joinable()) {
    Outcome<std::thread> thread = start_quiet_thread([this] { serve(); });
    if (!thread) {
      fail(thread.error());  // Ends all requests: no buffer is written after the return.
      return tl::unexpected(*failure_);
    }
    thread_ = std::move(*thread);
  }
  if (!is_driven_) hand_over();
  return states;
}

void TransferEngine::abort(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) fail(failure);
}

// ---- driving

// Moves bytes and sleeps on the links until done() or a failure (which ends all requests).
template <typename Done>
void TransferEngine::drive(Lock& lock, bool patient, const Done& done) {
  is_driven_ = true;
  Clock::time_point idle_since = Clock::time_point::max();  // Not idle.
  while (!done() && !failure_) {
    links_->observe();
    pass();
    if (done() || failure_) break;
    if (moved_) {
      idle_since = Clock::time_point::max();
      lock.unlock();  // Lets other threads in during a long transfer.
      lock.lock();
      continue;
    }
    if (const std::optional<Failure> broken = links_->broken()) {
      fail(*broken);
      break;
    }
    const Clock::time_point now = Clock::now();
    check_deadlines(now);
    if (failure_) break;
    idle_since = std::min(idle_since, now);
    const bool tries_on = patient && now - idle_since < links_->patience;
    const Deadline until = under_way_.empty() ? Deadline::max() : under_way_.begin()->first;
    if (!tries_on) arm();
    is_asleep_ = !tries_on;
    lock.unlock();
    if (tries_on) {
      linger(now - idle_since);
    } else {
      links_->sleep(until, patient);
    }
    lock.lock();
    is_asleep_ = false;
  }
  is_driven_ = false;
  hand_over();
}

// Wakes the thread that drives next: a blocked caller if no request is left for serve(). REQUIRES:
// no thread drives.
void TransferEngine::hand_over() {
  if (unattended_ > 0) {
    changed_.notify_one();
  } else if (!under_way_.empty()) {
    under_way_.begin()->second->changed.notify_one();
  }
}

// Body of the thread for requests that no caller waits for.
void TransferEngine::serve() {
  Lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stops_ || failure_ || (unattended_ > 0 && !is_driven_); });
    if (stops_ || failure_) return;  // After a failure no request can begin.
    drive(lock, false, [&] { return stops_ || unattended_ == 0; });
  }
}

void TransferEngine::arm() {
  reading_.clear();
  writing_.clear();
  for (const int peer : active_) {
    if (receives_from(peer)) reading_.push_back(peer);
    if (sends_to(peer)) writing_.push_back(peer);
  }
  links_->arm({reading_, writing_});
}

// ---- requests

// Adds a request, which completes `work` (if any) when done. It may be done or failed on return. A
// sleeping driver is woken if it has to arm for it.
RequestPtr TransferEngine::enter(const Transfer& transfer, Deadline deadline,
                                 std::shared_ptr<HostWork> work) {
  auto request = std::make_shared<TransferRequest>();
  request->work = std::move(work);
  request->transfer = transfer;
  request->place = under_way_.emplace_hint(under_way_.end(), deadline, request);
  entered_ = request.get();
  const bool is_new = request->is_send() ? queue_send(request) : post_receive(request);
  entered_ = nullptr;
  if (!request->done && (is_new || request->place == under_way_.begin())) wake_driver();
  return request;
}

void TransferEngine::activate(int peer) {
  if (is_active_[static_cast<size_t>(peer)]) return;
  is_active_[static_cast<size_t>(peer)] = true;
  active_.push_back(peer);
}

// Like post_receive(), tries a request that a driver is not armed for, and returns true then.
bool TransferEngine::queue_send(const RequestPtr& request) {
  const int to = request->transfer.peer;
  const bool is_new = !sends_to(to);
  outs_[static_cast<size_t>(to)].queue.push_back(request);
  if (!is_new) return false;
  activate(to);
  push(to);
  return true;
}

bool TransferEngine::post_receive(const RequestPtr& request) {
  const int from = request->transfer.peer;
  const EarlyPtr early = matching_.take_early(from, request->transfer.tag);
  if (early == nullptr) {
    const bool is_new = from < 0 ? !matching_.is_posted(-1) : !receives_from(from);
    matching_.post(request);
    const int end = from < 0 ? members_.size() : from + 1;
    for (int peer = std::max(from, 0); peer < end && is_new && !failure_; ++peer) {
      if (peer == members_.me) continue;
      activate(peer);
      pull(peer);
    }
    return is_new;
  }
  request->matched = true;
  request->source = early->from;
  if (early->complete()) {
    deliver(request, early->from, *early);
  } else {
    early->claimed = request;
    activate(early->from);
  }
  return true;
}

void TransferEngine::deliver(const RequestPtr& request, int from, const EarlyMessage& early) {
  if (!check_head(*request, from, early.head)) return;
  copy_bytes(request->transfer.data, early.data.data(), early.data.size());
  request->source = from;
  finish(request);
}

// Returns false on a mismatch, after failing all requests.
bool TransferEngine::check_head(const TransferRequest& request, int from, const MessageHead& head) {
  const Transfer& wanted = request.transfer;
  if (head.bytes == request.bytes() && head.dtype == wanted.dtype) return true;
  const auto [low, high] = std::minmax(members_[from].rank, members_.self().rank);
  fail({ErrorCode::mismatch,
        fmt::format("{} sent {} {} with tag {} where {} receives {} {}; both ends must agree",
                    describe(members_[from]), head.bytes / size_of(head.dtype), name_of(head.dtype),
                    head.tag, describe(members_.self()), wanted.count, name_of(wanted.dtype)),
        low == high ? std::vector{low} : std::vector{low, high}});
  return false;
}

void TransferEngine::finish(const RequestPtr& request) {
  request->done = true;
  under_way_.erase(request->place);
  if (request->is_send()) request->source = members_.me;
  if (request->work) {
    --unattended_;
    request->work->complete(Done{}, request->source);
  }
  request->changed.notify_one();
  if (request.get() != entered_) wake_driver();
}

// Ends all requests. No buffer is touched afterwards: that happens only under the mutex.
void TransferEngine::fail(const Failure& failure) {
  failure_ = failure;
  for (const auto& [deadline, request] : under_way_) {
    request->done = true;
    request->failure = failure;
    if (request->work) request->work->complete(tl::unexpected(failure));
    request->changed.notify_one();
  }
  unattended_ = 0;
  under_way_.clear();
  matching_.forget_posted();
  for (Outgoing& out : outs_)
    out.queue.clear();
  for (Incoming& in : ins_)
    in.request.reset();
  changed_.notify_all();
  wake_driver();
}

// Another thread may have moved the bytes that the driving thread sleeps for, so that no event on
// the links wakes it. A driver that is awake checks everything before it sleeps.
void TransferEngine::wake_driver() {
  if (std::exchange(is_asleep_, false)) links_->wake();
}

void TransferEngine::check_deadlines(Deadline now) {
  if (!under_way_.empty() && now >= under_way_.begin()->first)
    fail(late_failure(*under_way_.begin()->second));
}

// Mentions an early message with another tag: the user probably meant that one.
Failure TransferEngine::late_failure(const TransferRequest& request) const {
  const Transfer& late = request.transfer;
  Failure failure = late_transfer(late, members_, request.matched);
  if (request.is_send() || request.matched) return failure;
  for (const auto& [key, early] : matching_.early()) {
    if (late.peer >= 0 && early->from != late.peer) continue;
    failure.message += fmt::format("; a message with tag {} from {} is waiting to be received",
                                   early->head.tag, describe(members_[early->from]));
    break;
  }
  return failure;
}

// ---- moving bytes over the links; every function runs under the mutex

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

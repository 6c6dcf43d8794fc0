#include "rendezvous/store/async_store_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/store/tcpstore_codec.h"

namespace muster {

using SteadyClock = std::chrono::steady_clock;

namespace {

constexpr size_t kAsyncReadBytes = size_t{64} << 10;
// For the answer to CANCEL_WAIT.
constexpr Duration kAsyncCancel = std::chrono::seconds{5};

Deadline async_deadline(Duration timeout) {
  const auto now = SteadyClock::now();
  return timeout >= Deadline::max() - now ? Deadline::max() : now + timeout;
}

}  // namespace

AsyncStoreClient::AsyncStoreClient(boost::asio::io_context& io, Options options)
    : io_(io),
      options_(options),
      timer_(io),
      buffer_(kAsyncReadBytes),
      alive_(std::make_shared<bool>(true)) {}

AsyncStoreClient::~AsyncStoreClient() {
  *alive_ = false;
}

void AsyncStoreClient::connect(const std::string& host, uint16_t port, Duration timeout,
                               Callback<Nothing> connected) {
  server_ = fmt::format("{}:{}", host, port);
  connected_ = std::move(connected);
  connecting_ = connect_any(
      io_, host, port, async_deadline(timeout), {},
      [this, timeout](NetResult<TcpSocket> socket) { on_connected(std::move(socket), timeout); });
}

void AsyncStoreClient::on_connected(NetResult<TcpSocket> socket, Duration timeout) {
  if (!socket) return break_with("connecting", socket.error().message);
  socket_.emplace(std::move(*socket));
  const auto nonce = static_cast<uint32_t>(::getpid());
  // In front of whatever was submitted already.
  queue_.push_front(
      {calls::ping(nonce).request, timeout, async_deadline(timeout),
       [this, nonce](Result<tcpstore::Reply> reply) { greeted(nonce, std::move(reply)); }});
  arm_timer(queue_.front().deadline);
  outbox_ = calls::validate().request.bytes;
  read();
  send_what_may_go();
}

void AsyncStoreClient::greeted(uint32_t nonce, Result<tcpstore::Reply> reply) {
  if (!reply) return;  // connected_ was told already.
  if (static_cast<uint32_t>(reply->number) != nonce)
    return break_with("the handshake", "what listens there is not a store; check the address");
  if (connected_) std::exchange(connected_, nullptr)(Nothing{});
}

void AsyncStoreClient::get(const StoreKeys& keys, const std::string& key, Duration timeout,
                           Callback<std::string> done) {
  const Deadline deadline = async_deadline(timeout);
  const auto there = [this, keys, key, deadline, done = std::move(done)](Result<Nothing> waited) {
    if (!waited) return done(tl::unexpected(std::move(waited.error())));
    const Duration left = std::max<Duration>(deadline - SteadyClock::now(), options_.timeout);
    submit(calls::get(keys, key), left, done);
  };
  submit<Nothing>(calls::wait(keys, {key}), timeout, there);
}

void AsyncStoreClient::close() {
  break_with("the client", "it was closed");
}

void AsyncStoreClient::enqueue(StoreRequest request, Duration timeout, Done done) {
  if (request.error) return post_result(std::move(done), tl::unexpected(*request.error));
  if (broken_) return post_result(std::move(done), tl::unexpected(*broken_));
  queue_.push_back({std::move(request), timeout, async_deadline(timeout), std::move(done)});
  arm_timer(queue_.back().deadline);
  if (socket_) send_what_may_go();
}

void AsyncStoreClient::post_result(Done done, Result<tcpstore::Reply> result) {
  boost::asio::post(io_,
                    [alive = alive_, done = std::move(done), result = std::move(result)]() mutable {
                      if (*alive) done(std::move(result));
                    });
}

void AsyncStoreClient::send_what_may_go() {
  while (sent_ < queue_.size() && (sent_ == 0 || !queue_[sent_ - 1].request.waits)) {
    Pending& pending = queue_[sent_++];
    outbox_ += pending.request.bytes;
    pending.request.bytes = std::string();
  }
  write();
  take({});  // Calls without an answer are done by being sent.
}

void AsyncStoreClient::write() {
  if (!writing_.empty() || outbox_.empty() || broken_) return;
  writing_.swap(outbox_);
  boost::asio::async_write(*socket_, boost::asio::buffer(writing_),
                           [this, alive = alive_](boost::system::error_code error, size_t) {
                             if (!*alive || broken_) return;
                             writing_.clear();
                             if (error) return break_with("sending", error.message());
                             write();
                           });
}

void AsyncStoreClient::read() {
  socket_->async_read_some(
      boost::asio::buffer(buffer_),
      [this, alive = alive_](boost::system::error_code error, size_t size) {
        if (!*alive || broken_) return;
        if (error) {
          return break_with("reading", error == boost::asio::error::eof
                                           ? "the server closed the connection; the job's round "
                                             "has probably ended"
                                           : error.message());
        }
        take({buffer_.data(), size});
        if (!*alive || broken_) return;
        send_what_may_go();
        read();
      });
}

// Gives `input` to the calls that were sent, in order.
void AsyncStoreClient::take(std::string_view input) {
  using Outcome = tcpstore::ReplyDecoder::Outcome;
  while (sent_ > 0) {
    const StoreRequest& request = queue_.front().request;
    if (!decoder_) decoder_.emplace(request.shape, request.strings);
    const Outcome outcome = decoder_->next(input);
    if (outcome == Outcome::more) return;
    if (outcome == Outcome::malformed)
      return break_with(request.what, "the answer is no store's; check the address");
    finish_front(decoder_->take());
  }
  if (!input.empty()) break_with("reading", "an answer that nobody asked for; check the address");
}

// A wait that is being taken back ends with the answer to CANCEL_WAIT, before which its own may
// come: then it has succeeded.
void AsyncStoreClient::finish_front(tcpstore::Reply reply) {
  decoder_.reset();
  Pending& front = queue_.front();
  if (front.cancelled && reply.number == tcpstore::kReady && !front.woken) {
    front.woken = true;
    return;
  }
  Pending finished = std::move(front);
  queue_.pop_front();
  --sent_;
  if (finished.cancelled && !finished.woken) {
    return post_result(std::move(finished.done), fail(ExitCode::rendezvous, late_text(finished)));
  }
  post_result(std::move(finished.done), std::move(reply));
}

std::string AsyncStoreClient::late_text(const Pending& pending) const {
  return fmt::format("{} at the store {} timed out after {:g} s{}", pending.request.what, server_,
                     std::chrono::duration<double>(pending.timeout).count(),
                     pending.request.waits
                         ? "; look for the process that should have set it"
                         : "; the server does not answer, look at the node it runs on");
}

// The timer may go off for a call that is done by then; it never misses one.
void AsyncStoreClient::arm_timer(Deadline deadline) {
  if (deadline >= timer_at_) return;
  timer_at_ = deadline;
  timer_.expires_at(deadline);
  timer_.async_wait([this, alive = alive_](boost::system::error_code error) {
    if (error || !*alive || broken_) return;
    timer_at_ = Deadline::max();
    on_timer();
  });
}

void AsyncStoreClient::on_timer() {
  const auto now = SteadyClock::now();
  for (size_t i = 0; i < queue_.size() && !broken_;) {
    if (queue_[i].deadline > now || !time_out(i)) ++i;
  }
  if (broken_) return;
  for (const Pending& pending : queue_)
    arm_timer(pending.deadline);
  if (socket_) send_what_may_go();
}

// True: the call at `index` is gone from the queue.
bool AsyncStoreClient::time_out(size_t index) {
  Pending& pending = queue_[index];
  if (index >= sent_) {
    Pending finished = std::move(pending);
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(index));
    post_result(std::move(finished.done), fail(ExitCode::rendezvous, late_text(finished)));
    return true;
  }
  if (pending.request.waits && !pending.cancelled) {
    pending.cancelled = true;
    pending.deadline = async_deadline(kAsyncCancel);
    outbox_ += calls::cancel_wait_bytes();
    return false;
  }
  break_with(pending.request.what, "no answer in time; look at the node the store runs on");
  return false;
}

void AsyncStoreClient::break_with(const std::string& what, const std::string& why) {
  if (broken_) return;
  broken_ =
      Error{ExitCode::rendezvous, fmt::format("{} at the store {} failed: {}", what, server_, why)};
  connecting_ = Connecting();
  socket_.reset();
  timer_.cancel();
  decoder_.reset();
  sent_ = 0;
  if (connected_) {
    boost::asio::post(
        io_, [alive = alive_, error = *broken_, done = std::exchange(connected_, nullptr)] {
          if (*alive) done(tl::unexpected(error));
        });
  }
  std::deque<Pending> failed;
  failed.swap(queue_);
  for (Pending& pending : failed)
    post_result(std::move(pending.done), tl::unexpected(*broken_));
}

}  // namespace muster

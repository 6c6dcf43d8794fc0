#include "rendezvous/membership/byte_stream.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

namespace muster {
namespace {

using Descriptor = boost::asio::posix::stream_descriptor;

// How long a finished stream tries to send the rest before it is dropped.
constexpr auto kFinishPatience = std::chrono::seconds(1);
constexpr size_t kReadBytes = size_t{64} << 10;

// Shared by all streams of a thread: received bytes are handed on at once.
std::array<char, kReadBytes>& read_scratch() {
  thread_local std::array<char, kReadBytes> scratch;
  return scratch;
}

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

struct ByteStream::State : std::enable_shared_from_this<State> {
  State(boost::asio::io_context& loop, int fd, size_t unsent_max)
      : io(loop), descriptor(loop, fd), unsent_bytes_max(unsent_max) {}

  void wait_readable() {
    descriptor.async_wait(Descriptor::wait_read,
                          [self = shared_from_this()](boost::system::error_code error) {
                            if (!error && self->open && !self->finishing) self->read_some();
                          });
  }

  void read_some() {
    auto& scratch = read_scratch();
    const ssize_t n = recv(descriptor.native_handle(), scratch.data(), scratch.size(), 0);
    if (n > 0) {
      // The handler may close this stream, but must outlive the call.
      const std::shared_ptr<Handlers> held = handlers;
      held->bytes({scratch.data(), static_cast<size_t>(n)});
      if (open && !finishing) wait_readable();
    } else if (n < 0 && would_block(errno)) {
      wait_readable();
    } else {
      lose(n == 0 ? "the other side closed the connection" : std::strerror(errno));
    }
  }

  // Returns false once the connection is lost.
  bool send_some() {
    while (!unsent.empty()) {
      const ssize_t n =
          send(descriptor.native_handle(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && would_block(errno)) return true;
      if (n < 0) {
        lose_later(std::strerror(errno));
        return false;
      }
      unsent.erase(0, static_cast<size_t>(n));
    }
    return true;
  }

  void wait_writable() {
    if (waiting_writable) return;
    waiting_writable = true;
    descriptor.async_wait(Descriptor::wait_write,
                          [self = shared_from_this()](boost::system::error_code error) {
                            self->waiting_writable = false;
                            if (!error && self->open && self->send_some()) self->after_send();
                          });
  }

  void after_send() {
    if (!unsent.empty()) {
      wait_writable();
    } else if (finishing) {
      shut();
    }
  }

  void shut() {
    if (!open) return;
    open = false;
    boost::system::error_code ignored;
    descriptor.close(ignored);
    if (patience) patience->cancel();
    handlers.reset();
  }

  void lose(const std::string& why) {
    if (!open) return;
    const std::shared_ptr<Handlers> held = handlers;
    shut();
    if (held) held->closed(why);
  }

  // Posted, since no handler may be called from inside write().
  void lose_later(const std::string& why) {
    losing = true;
    boost::asio::post(io, [self = shared_from_this(), why] { self->lose(why); });
  }

  boost::asio::io_context& io;
  Descriptor descriptor;
  size_t unsent_bytes_max;
  std::shared_ptr<Handlers> handlers;
  std::string unsent;
  bool open = true;
  bool finishing = false;
  bool losing = false;  // Bytes were dropped: nothing may follow them.
  bool waiting_writable = false;
  std::unique_ptr<boost::asio::steady_timer> patience;
};

ByteStream::ByteStream(boost::asio::io_context& io, int fd, size_t unsent_bytes_max)
    : state_(std::make_shared<State>(io, fd, unsent_bytes_max)) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

ByteStream::~ByteStream() {
  if (!state_->finishing) close();
}

void ByteStream::start(Handlers handlers) {
  state_->handlers = std::make_shared<Handlers>(std::move(handlers));
  state_->wait_readable();
}

void ByteStream::write(std::string_view bytes) {
  State& state = *state_;
  if (!state.open || state.finishing || state.losing) return;
  if (state.unsent.size() + bytes.size() > state.unsent_bytes_max) {
    return state.lose_later(fmt::format(
        "it does not read what is sent to it ({} bytes are waiting)", state.unsent.size()));
  }
  const bool was_waiting = !state.unsent.empty();
  state.unsent += bytes;
  if (!was_waiting && state.send_some()) state.after_send();
}

size_t ByteStream::unsent() const {
  return state_->unsent.size();
}

void ByteStream::finish() {
  State& state = *state_;
  if (!state.open || state.finishing) return;
  state.finishing = true;
  state.handlers.reset();
  if (state.unsent.empty()) return state.shut();
  state.patience = std::make_unique<boost::asio::steady_timer>(state.io, kFinishPatience);
  state.patience->async_wait([self = state_](boost::system::error_code error) {
    if (!error) self->shut();
  });
}

void ByteStream::close() {
  state_->shut();
}

}  // namespace muster

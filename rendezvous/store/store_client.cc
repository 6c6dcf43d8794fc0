#include "rendezvous/store/store_client.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/steady_now.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/store/store_sockets.h"
#include "rendezvous/store/tcpstore_codec.h"

namespace muster {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

namespace {

constexpr Duration kStoreFirstRetry = milliseconds{20};
constexpr Duration kStoreLastRetry = std::chrono::seconds{1};
// Limit for one handshake: a port that swallows everything must leave time for another try.
constexpr Duration kStoreHandshake = std::chrono::seconds{10};
// Limit for the answer to CANCEL_WAIT.
constexpr Duration kStoreCancel = std::chrono::seconds{5};
// Requests sent before the first answer is read. All their answers must fit into the socket
// buffers: the server may stop reading until they are sent.
constexpr size_t kStoreTogether = 500;

Deadline store_deadline(Duration timeout) {
  return deadline_after(SteadyClock::now(), timeout);
}

std::string store_seconds(Duration duration) {
  return fmt::format("{:g} s", to_seconds(duration));
}

}  // namespace

// One connection and its state.
class StoreClient::Channel {
 public:
  Channel(int fd, std::string server) : fd_(fd), server_(std::move(server)) {
    store_socket_opened(fd_);
  }
  Channel(Channel&&) = delete;
  ~Channel() {
    store_socket_closing(fd_);
    ::close(fd_);
  }

  bool broken() const { return broken_.has_value(); }
  bool was_late() const { return broken() && break_ == Break::late; }

  Result<tcpstore::Reply> perform(const StoreRequest& request, Duration timeout) {
    if (request.error) return tl::unexpected(*request.error);
    if (broken_) return tl::unexpected(*broken_);
    const Deadline deadline = store_deadline(timeout);
    if (!send(request.bytes, deadline)) return give_up(request, timeout);
    tcpstore::ReplyDecoder decoder(request.shape, request.strings);
    if (receive(decoder, deadline) && is_all_read()) return decoder.take();
    if (break_ == Break::late && request.waits) return cancel(request, decoder, timeout);
    return give_up(request, timeout);
  }

  // Sends all requests, then reads the answers. REQUIRES: not empty; none waits or has an error.
  Result<std::vector<tcpstore::Reply>> perform_together(const std::vector<StoreRequest>& requests,
                                                        Duration timeout) {
    if (broken_) return tl::unexpected(*broken_);
    const Deadline deadline = store_deadline(timeout);
    std::string bytes;
    for (const StoreRequest& request : requests)
      bytes += request.bytes;
    if (!send(bytes, deadline)) return give_up(requests.front(), timeout);
    std::vector<tcpstore::Reply> replies;
    for (const StoreRequest& request : requests) {
      tcpstore::ReplyDecoder decoder(request.shape, request.strings);
      if (!receive(decoder, deadline)) return give_up(request, timeout);
      replies.push_back(decoder.take());
    }
    if (!is_all_read()) return give_up(requests.back(), timeout);
    return replies;
  }

 private:
  enum class Break { late, ended, error, malformed };

  bool break_with(Break failure) {
    break_ = failure;
    error_number_ = errno;
    return false;
  }

  // Returns false, with break_ set, if the socket is not ready for `events` in time.
  bool ready(short events, Deadline deadline) {
    for (;;) {
      pollfd entry{fd_, events, 0};
      const int n = ::poll(&entry, 1, poll_timeout(deadline));
      if (n > 0) return true;
      if (n < 0 && errno != EINTR) return break_with(Break::error);
      if (SteadyClock::now() >= deadline) return break_with(Break::late);
    }
  }

  bool send(std::string_view bytes, Deadline deadline) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
      if (n >= 0) continue;
      if (errno != EAGAIN && errno != EINTR) return break_with(Break::error);
      if (!ready(POLLOUT, deadline)) return false;
    }
    return true;
  }

  bool receive(tcpstore::ReplyDecoder& decoder, Deadline deadline, size_t room = sizeof buffer_) {
    using Decoded = tcpstore::ReplyDecoder::Decoded;
    Decoded outcome = decoder.next(unread_);
    while (outcome == Decoded::more) {
      const ssize_t n = ::recv(fd_, buffer_, room, 0);
      if (n == 0) return break_with(Break::ended);
      if (n > 0) {
        unread_ = std::string_view(buffer_, static_cast<size_t>(n));
        outcome = decoder.next(unread_);
        continue;
      }
      if (errno != EAGAIN && errno != EINTR) return break_with(Break::error);
      if (!ready(POLLIN, deadline)) return false;
    }
    return outcome == Decoded::reply || break_with(Break::malformed);
  }

  // Bytes that follow the requested answers are malformed.
  bool is_all_read() { return unread_.empty() || break_with(Break::malformed); }

  // If the server answers the wait just before it reads CANCEL_WAIT, the answers to both arrive.
  Result<tcpstore::Reply> cancel(const StoreRequest& request, tcpstore::ReplyDecoder& wait,
                                 Duration timeout) {
    const Deadline deadline = store_deadline(kStoreCancel);
    if (!send(calls::cancel_wait_bytes(), deadline) || !receive(wait, deadline, 1))
      return give_up(request, kStoreCancel);
    tcpstore::Reply reply = wait.take();
    if (reply.number != tcpstore::kReady) return fail(ExitCode::rendezvous, late(request, timeout));
    tcpstore::ReplyDecoder cancelled(tcpstore::Shape::flag, 0);
    if (!receive(cancelled, deadline, 1)) return give_up(request, kStoreCancel);
    return reply;
  }

  std::string late(const StoreRequest& request, Duration timeout) const {
    return fmt::format(
        "{} at the store {} timed out after {}; {}", request.what, server_, store_seconds(timeout),
        request.waits ? "look for the process that should have set it"
                      : "the server does not answer; check the node that it runs on");
  }

  tl::unexpected<Error> give_up(const StoreRequest& request, Duration timeout) {
    broken_ = Error{ExitCode::rendezvous, reason(request, timeout)};
    ::shutdown(fd_, SHUT_RDWR);
    return tl::unexpected(*broken_);
  }

  std::string reason(const StoreRequest& request, Duration timeout) const {
    const auto failed = [&](std::string_view why) {
      return fmt::format("{} at the store {} failed: {}", request.what, server_, why);
    };
    switch (break_) {
      case Break::late:
        return fmt::format(
            "{} at the store {} got no answer within {}; check the node that it runs on",
            request.what, server_, store_seconds(timeout));
      case Break::ended:
        return failed("the server closed the connection; the job's round has probably ended");
      case Break::malformed:
        return failed(
            "the answer is not from a store; check that the address is that of the store");
      case Break::error:
        break;
    }
    return failed(
        fmt::format("{}; the job's round has probably ended", std::strerror(error_number_)));
  }

  int fd_;
  std::string server_;
  std::optional<Error> broken_;
  Break break_ = Break::error;
  int error_number_ = 0;
  char buffer_[16384];
  std::string_view unread_;  // The bytes of buffer_ after the last answer taken.
};

StoreClient::StoreClient(std::shared_ptr<Channel> channel, StoreKeys keys, Duration timeout)
    : channel_(std::move(channel)), keys_(std::move(keys)), timeout_(timeout) {}

Result<StoreClient> StoreClient::connect(const Options& options) {
  const Deadline deadline = store_deadline(options.connect_timeout);
  const std::string server = fmt::format("{}:{}", options.host, options.port);
  const auto nonce = static_cast<uint32_t>(::getpid());
  const Deadline patience = store_deadline(options.patience);
  bool is_patient = options.still_trying != nullptr && patience < deadline;
  Error last;
  for (Duration pause = kStoreFirstRetry;; pause = std::min(2 * pause, kStoreLastRetry)) {
    // A host that does not answer at all takes until this deadline.
    const NetResult<int> fd =
        connect_blocking(options.host, options.port, is_patient ? patience : deadline);
    if (fd) {
      StoreClient client(std::make_shared<Channel>(*fd, server), StoreKeys(), options.timeout);
      const Duration left = deadline - SteadyClock::now();
      client.perform(calls::validate());
      const Result<uint32_t> echo =
          client.perform(calls::ping(nonce), std::clamp(left, Duration::zero(), kStoreHandshake));
      if (echo && *echo == nonce) return client;
      Error why =
          echo ? Error{ExitCode::rendezvous,
                       fmt::format("what listens on {} is not a store; check the address", server)}
               : echo.error();
      // A time-out in a short last try explains less than an earlier failure.
      if (!client.channel_->was_late() || left >= kStoreLastRetry || last.message.empty())
        last = std::move(why);
    } else {
      last = fd.error().error();
      if (fd.error().failure == NetFailure::exhausted)
        return fail(ExitCode::environment, last.message);
    }
    if (is_patient && SteadyClock::now() + kStoreFirstRetry >= patience) {
      is_patient = false;
      options.still_trying(last.message);
    }
    // Shortens the pause so that the last try still starts before the deadline.
    const Duration left = (is_patient ? patience : deadline) - SteadyClock::now();
    if (left <= kStoreFirstRetry) break;
    const Duration rest = std::min<Duration>(pause, left - kStoreFirstRetry);
    ::poll(nullptr, 0, static_cast<int>(std::chrono::ceil<milliseconds>(rest).count()));
  }
  return fail(last.code, fmt::format("cannot reach the store {} within {}: {}", server,
                                     store_seconds(options.connect_timeout), last.message));
}

StoreClient StoreClient::over(int fd, std::string server, Duration timeout) {
  StoreClient client(std::make_shared<Channel>(fd, std::move(server)), StoreKeys(), timeout);
  client.perform(calls::validate());
  return client;
}

StoreClient StoreClient::with_prefix(std::string_view prefix) const {
  return {channel_, keys_.nested(prefix), timeout_};
}

bool StoreClient::connected() const {
  return !channel_->broken();
}

template <typename T>
Result<T> StoreClient::perform(const StoreCall<T>& call, Duration timeout) {
  Result<tcpstore::Reply> reply = channel_->perform(call.request, timeout);
  if (!reply) return tl::unexpected(std::move(reply.error()));
  return call.meaning(std::move(*reply));
}

Result<Nothing> StoreClient::set(std::string_view key, std::string_view value) {
  return perform(calls::set(keys_, key, value));
}

Result<std::string> StoreClient::get(std::string_view key) {
  if (auto there = wait({std::string(key)}); !there) return tl::unexpected(there.error());
  return perform(calls::get(keys_, key));
}

Result<int64_t> StoreClient::add(std::string_view key, int64_t delta) {
  return perform(calls::add(keys_, key, delta));
}

Result<bool> StoreClient::check(const std::vector<std::string>& names) {
  return perform(calls::check(keys_, names));
}

Result<Nothing> StoreClient::wait(const std::vector<std::string>& names) {
  return wait(names, timeout_);
}

Result<Nothing> StoreClient::wait(const std::vector<std::string>& names, Duration timeout) {
  return perform(calls::wait(keys_, names), timeout);
}

Result<std::string> StoreClient::compare_set(std::string_view key, std::string_view expected,
                                             std::string_view desired) {
  return perform(calls::compare_set(keys_, key, expected, desired));
}

Result<int64_t> StoreClient::delete_keys(const std::vector<std::string>& names) {
  int64_t deleted = 0;
  for (size_t at = 0; at < names.size();) {
    std::vector<StoreRequest> requests;
    for (; at < names.size() && requests.size() < kStoreTogether; ++at) {
      requests.push_back(calls::delete_key(keys_, names[at]).request);
      if (requests.back().error) return tl::unexpected(*requests.back().error);
    }
    const Result<std::vector<tcpstore::Reply>> replies =
        channel_->perform_together(requests, timeout_);
    if (!replies) return tl::unexpected(replies.error());
    deleted += std::ranges::count_if(*replies,
                                     [](const tcpstore::Reply& reply) { return reply.number > 0; });
  }
  return deleted;
}

Result<Nothing> StoreClient::append(std::string_view key, std::string_view value) {
  return perform(calls::append(keys_, key, value));
}

Result<std::vector<std::string>> StoreClient::multi_get(const std::vector<std::string>& names) {
  if (auto there = wait(names); !there) return tl::unexpected(there.error());
  return perform(calls::multi_get(keys_, names));
}

Result<std::vector<std::string>> StoreClient::list_keys() {
  Result<std::vector<std::string>> names = perform(calls::list_keys());
  if (!names) return names;
  std::vector<std::string> mine;
  for (const std::string& name : *names) {
    if (std::optional<std::string> stripped = keys_.stripped(name)) mine.push_back(*stripped);
  }
  return mine;
}

}  // namespace muster

// A client of the store for a program with an event loop: calls are sent as they are submitted,
// many in one write, and answered in their order through callbacks on the loop. A call that waits
// (WAIT, BARRIER) holds back what was submitted after it, because the protocol's answers carry no
// name; a program that wants to wait and work at once makes two clients.
//
//   AsyncStoreClient store(io, {.timeout = std::chrono::seconds{30}});
//   store.connect("node0", 29500, std::chrono::minutes{5}, [&](Result<Nothing> connected) { ... });
//   store.submit(calls::add(keys, "arrived", 1), [](Result<int64_t> n) { ... });
//
// Each callback is called exactly once, never from inside submit(); when the connection fails or
// close() is called, with an error; not at all once the client is destroyed. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/store/store_calls.h"

namespace muster {

class AsyncStoreClient {
 public:
  struct Options {
    // For each call that names no other.
    Duration timeout = std::chrono::minutes{5};
  };
  template <typename T>
  using Callback = std::function<void(Result<T>)>;

  AsyncStoreClient(boost::asio::io_context& io, Options options);
  AsyncStoreClient(const AsyncStoreClient&) = delete;
  AsyncStoreClient& operator=(const AsyncStoreClient&) = delete;
  ~AsyncStoreClient();

  // One attempt (over all addresses of the name), with the handshake. Calls that were submitted
  // before are sent after it. REQUIRES: called once.
  void connect(const std::string& host, uint16_t port, Duration timeout,
               Callback<Nothing> connected);

  template <typename T>
  void submit(StoreCall<T> call, Duration timeout, Callback<T> done) {
    const auto meaning = call.meaning;
    enqueue(std::move(call.request), timeout,
            [meaning, done = std::move(done)](Result<tcpstore::Reply> reply) {
              if (!reply) return done(tl::unexpected(std::move(reply.error())));
              done(meaning(std::move(*reply)));
            });
  }
  template <typename T>
  void submit(StoreCall<T> call, Callback<T> done) {
    submit(std::move(call), options_.timeout, std::move(done));
  }

  // WAIT, then GET: the value of a key once it is there.
  void get(const StoreKeys& keys, const std::string& key, Duration timeout,
           Callback<std::string> done);

  // Fails what is pending and all that will be submitted.
  void close();

  bool connected() const { return socket_.has_value() && !broken_; }
  size_t pending() const { return queue_.size(); }

 private:
  using Done = std::function<void(Result<tcpstore::Reply>)>;
  struct Pending {
    StoreRequest request;
    Duration timeout;
    Deadline deadline;
    Done done;
    bool cancelled = false;  // CANCEL_WAIT is under way.
    bool woken = false;      // And this came before its answer.
  };

  void enqueue(StoreRequest request, Duration timeout, Done done);
  void on_connected(NetResult<TcpSocket> socket, Duration timeout);
  void greeted(uint32_t nonce, Result<tcpstore::Reply> reply);
  void send_what_may_go();
  void write();
  void read();
  void take(std::string_view input);
  void finish_front(tcpstore::Reply reply);
  void arm_timer(Deadline deadline);
  void on_timer();
  bool time_out(size_t index);
  void post_result(Done done, Result<tcpstore::Reply> result);
  void break_with(const std::string& what, const std::string& why);
  std::string late_text(const Pending& pending) const;

  boost::asio::io_context& io_;
  Options options_;
  std::string server_;
  Connecting connecting_;
  Callback<Nothing> connected_;  // Until it is called.
  std::optional<TcpSocket> socket_;
  boost::asio::steady_timer timer_;
  Deadline timer_at_ = Deadline::max();

  // Invariants. (1) The first sent_ of queue_ were sent. (2) Nothing behind a sent call that
  // waits was sent. (3) decoder_ belongs to queue_.front(), and is there only while it is half
  // answered.
  std::deque<Pending> queue_;
  size_t sent_ = 0;
  std::optional<tcpstore::ReplyDecoder> decoder_;
  std::string outbox_;
  std::string writing_;  // Not empty while a write is under way.
  std::vector<char> buffer_;
  std::optional<Error> broken_;
  std::shared_ptr<bool> alive_;
};

}  // namespace muster

// A blocking client of the store: one operation at a time, each with a deadline, so an unresponsive
// server never blocks the thread forever.
//
//   Result<StoreClient> store = StoreClient::connect({.host = "node0", .port = 29500});
//   StoreClient mine = store->with_prefix("my_library");
//   mine.set("address", "10.0.0.1:4242");
//   Result<std::string> other = mine.get("their_address");   // waits until the key is set
//
// Works with our server and with PyTorch's. Handles made by with_prefix() share one connection and
// belong to one thread. If an operation gets no answer in time, the connection is abandoned, since
// later answers could not be matched to operations; a wait is cancelled and can be repeated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/store/store_calls.h"

namespace muster {

class StoreClient {
 public:
  struct Options {
    std::string host;
    uint16_t port = 0;
    // Limit for connect(), which retries while the server is missing or its name is unknown.
    Duration connect_timeout = std::chrono::minutes{5};
    // Limit for each operation, and for waits without one of their own.
    Duration timeout = std::chrono::minutes{5};
    // Called once with the last failure if not connected after `patience`; connect() keeps trying.
    std::function<void(const std::string& why)> still_trying = {};
    Duration patience = std::chrono::seconds{10};
  };

  // Connects, and checks by VALIDATE and PING that the peer is a store. Fails at once (environment)
  // if no descriptor is left.
  static Result<StoreClient> connect(const Options& options);

  // Takes ownership of a connected non-blocking stream socket. `server` names it in messages.
  static StoreClient over(int fd, std::string server, Duration timeout);

  // Returns a handle on the same connection whose keys all begin with `prefix` + "/". Nests.
  StoreClient with_prefix(std::string_view prefix) const;
  // Returns a handle on the same connection with another Options::timeout.
  StoreClient with_timeout(Duration timeout) const { return {channel_, keys_, timeout}; }

  Result<Nothing> set(std::string_view key, std::string_view value);
  // Waits until the key exists.
  Result<std::string> get(std::string_view key);
  Result<int64_t> add(std::string_view key, int64_t delta);
  Result<bool> check(const std::vector<std::string>& names);
  Result<Nothing> wait(const std::vector<std::string>& names);
  Result<Nothing> wait(const std::vector<std::string>& names, Duration timeout);
  // Returns the value of the key afterwards: `desired` if it was replaced. An absent key equals "".
  Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired);
  // Returns false if the key did not exist.
  Result<bool> delete_key(std::string_view key) { return perform(calls::delete_key(keys_, key)); }
  // Returns how many existed. Pipelines the requests.
  Result<int64_t> delete_keys(const std::vector<std::string>& names);
  // Counts the whole store, regardless of the prefix.
  Result<int64_t> num_keys() { return perform(calls::num_keys()); }
  Result<Nothing> append(std::string_view key, std::string_view value);
  // Waits until all keys exist.
  Result<std::vector<std::string>> multi_get(const std::vector<std::string>& names);
  Result<uint32_t> ping(uint32_t nonce) { return perform(calls::ping(nonce)); }
  // Returns the keys below this handle's prefix, without the prefix.
  Result<std::vector<std::string>> list_keys();

  // False once an operation has broken the connection; all later ones fail too.
  bool connected() const;

 private:
  class Channel;
  StoreClient(std::shared_ptr<Channel> channel, StoreKeys keys, Duration timeout);

  template <typename T>
  Result<T> perform(const StoreCall<T>& call, Duration timeout);
  template <typename T>
  Result<T> perform(const StoreCall<T>& call) {
    return perform(call, timeout_);
  }

  std::shared_ptr<Channel> channel_;
  StoreKeys keys_;
  Duration timeout_;
};

}  // namespace muster

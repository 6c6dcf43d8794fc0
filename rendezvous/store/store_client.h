// A client of the store for a thread that may block: one operation at a time, each with a deadline,
// so an unresponsive server never blocks the thread forever.
//
//   Result<StoreClient> store = StoreClient::connect({.host = "node0", .port = 29500});
//   StoreClient mine = store->with_prefix("my_library");
//   mine.set("address", "10.0.0.1:4242");
//   Result<std::string> other = mine.get("their_address");   // waits until the key is set
//
// Works with our server and with PyTorch's. Handles made by with_prefix() share one connection, and
// all belong to one thread. If an operation gets no answer in time the connection is abandoned
// (later answers could not be matched to operations), except for waits, which are cancelled and can
// be repeated.
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
    // To connect; until then a missing server or an unknown name is retried.
    Duration connect_timeout = std::chrono::minutes{5};
    // For each operation, and for waits that name no time-out.
    Duration timeout = std::chrono::minutes{5};
    // Called once if not connected after `patience`, with the last failure; connect() keeps trying.
    std::function<void(const std::string& why)> still_trying = {};
    Duration patience = std::chrono::seconds{10};
  };

  // Connects and checks by VALIDATE and PING that the peer is a store. Fails at once, with
  // environment, if this process has no descriptor left.
  static Result<StoreClient> connect(const Options& options);

  // Uses an existing connection, a non-blocking stream socket of any kind, and takes ownership of
  // it. `server` is for messages.
  static StoreClient over(int fd, std::string server, Duration timeout);

  // A handle on the same connection whose keys all begin with `prefix` + "/". Nests.
  StoreClient with_prefix(std::string_view prefix) const;
  // The same with another Options::timeout.
  StoreClient with_timeout(Duration timeout) const;

  Result<Nothing> set(std::string_view key, std::string_view value);
  // Waits until the key exists.
  Result<std::string> get(std::string_view key);
  Result<int64_t> add(std::string_view key, int64_t delta);
  Result<bool> check(const std::vector<std::string>& names);
  Result<Nothing> wait(const std::vector<std::string>& names);
  Result<Nothing> wait(const std::vector<std::string>& names, Duration timeout);
  // Returns the resulting value of the key: `desired` if it was replaced. An absent key equals "".
  Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired);
  // False: the key did not exist.
  Result<bool> delete_key(std::string_view key);
  // Returns how many existed. Sends many requests before it reads their answers.
  Result<int64_t> delete_keys(const std::vector<std::string>& names);
  // Counts the whole store, regardless of the prefix.
  Result<int64_t> num_keys();
  Result<Nothing> append(std::string_view key, std::string_view value);
  // Waits until all of them exist.
  Result<std::vector<std::string>> multi_get(const std::vector<std::string>& names);
  Result<uint32_t> ping(uint32_t nonce);
  // The keys below this handle's prefix, without the prefix.
  Result<std::vector<std::string>> list_keys();

  // False: an operation broke the connection, so all later ones fail too.
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

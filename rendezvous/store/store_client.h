// A client of the store for a thread that may block: one operation after the other, each with a
// deadline, so a mute server costs time and never everything.
//
//   Result<StoreClient> store = StoreClient::connect({.host = "node0", .port = 29500});
//   StoreClient mine = store->with_prefix("my_library");
//   mine.set("address", "10.0.0.1:4242");
//   Result<std::string> other = mine.get("their_address");   // waits until somebody sets it
//
// Works with our server and with PyTorch's. Handles that with_prefix() made share one connection;
// all of them belong to one thread. Where the answer to an operation did not come in time the
// connection is given up (nobody could tell which answer is whose), except for waits, which are
// taken back and can be repeated.
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
    // To be connected; a server or a name that is not there yet is tried again until then.
    Duration connect_timeout = std::chrono::minutes{5};
    // For each operation, waits included unless they name their own.
    Duration timeout = std::chrono::minutes{5};
    // Called once where it is not connected by then and goes on trying, with what failed last.
    std::function<void(const std::string& why)> still_trying = {};
    Duration patience = std::chrono::seconds{10};
  };

  // Connects and checks by VALIDATE and PING that a store is on the other end. Where this process
  // has no descriptor left it fails at once, with environment.
  static Result<StoreClient> connect(const Options& options);

  // Over a connection that is there already, a non-blocking stream socket of any kind, which it
  // takes over. `server` is for messages.
  static StoreClient over(int fd, std::string server, Duration timeout);

  // A handle on the same connection whose keys all begin with `prefix` + "/". Nests.
  StoreClient with_prefix(std::string_view prefix) const;

  Result<Nothing> set(std::string_view key, std::string_view value);
  // Waits until the key is there.
  Result<std::string> get(std::string_view key);
  Result<int64_t> add(std::string_view key, int64_t delta);
  Result<bool> check(const std::vector<std::string>& names);
  Result<Nothing> wait(const std::vector<std::string>& names);
  Result<Nothing> wait(const std::vector<std::string>& names, Duration timeout);
  // Returns the value that the key has then: `desired`, if it was replaced. An absent key equals
  // "".
  Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                  std::string_view desired);
  // False: there was none.
  Result<bool> delete_key(std::string_view key);
  // How many there were. Asks for many at a time rather than one after the other's answer.
  Result<int64_t> delete_keys(const std::vector<std::string>& names);
  // Of the whole store, whatever the prefix.
  Result<int64_t> num_keys();
  Result<Nothing> append(std::string_view key, std::string_view value);
  // Waits until all of them are there.
  Result<std::vector<std::string>> multi_get(const std::vector<std::string>& names);
  Result<uint32_t> ping(uint32_t nonce);
  // Those below this handle's prefix, without it.
  Result<std::vector<std::string>> list_keys();

  // False: an operation failed for good, and so will all that follow.
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

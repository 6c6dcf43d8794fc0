// The operations of the store as values: the bytes to send, the shape of the answer, its meaning.
// StoreClient performs them. Operations that only PyTorch's programs use (queues, BARRIER,
// MULTI_SET) exist in the server only. Pure.
//
//   StoreKeys keys("job/round");           // "x" is "/job/round/x" in the store
//   StoreCall<int64_t> call = calls::add(keys, "arrived", 1);
//
// A key is stored with "/" before it and a prefix with "/" after it, as in PyTorch's TCPStore and
// PrefixStore, so its programs and ours see the same keys. A key or value that the server would
// reject by closing the connection makes a call with an error, which is returned, not sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/store/tcpstore_codec.h"

namespace muster {

// Maps a handle's keys to their names in the store.
class StoreKeys {
 public:
  StoreKeys() = default;
  explicit StoreKeys(std::string_view prefix) : StoreKeys(StoreKeys().nested(prefix)) {}

  // Keys below these: nested("a").nested("b") stores "x" as "/a/b/x".
  StoreKeys nested(std::string_view prefix) const;
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  // Returns nullopt if the name is not below this prefix.
  std::optional<std::string> stripped(const std::string& name) const;

 private:
  std::string prefix_ = "/";
};

struct StoreRequest {
  std::string bytes;
  tcpstore::Shape shape = tcpstore::Shape::none;
  size_t strings = 0;          // Number of strings in the answer, if Shape::strings.
  bool waits = false;          // True for WAIT, whose answer depends on other clients.
  std::string what;            // The request in messages: "WAIT x".
  std::optional<Error> error;  // If set, the request must not be sent.
};

template <typename T>
struct StoreCall {
  StoreRequest request;
  T (*meaning)(tcpstore::Reply&& reply);
};

namespace calls {

using Keys = std::vector<std::string>;

StoreCall<Nothing> validate();
StoreCall<uint32_t> ping(uint32_t nonce);
StoreCall<Nothing> set(const StoreKeys& keys, std::string_view key, std::string_view value);
// Returns the value of the key afterwards: `desired` if it was replaced. An absent key equals "".
StoreCall<std::string> compare_set(const StoreKeys& keys, std::string_view key,
                                   std::string_view expected, std::string_view desired);
StoreCall<std::string> get(const StoreKeys& keys, std::string_view key);  // "" if absent.
StoreCall<int64_t> add(const StoreKeys& keys, std::string_view key, int64_t delta);
StoreCall<bool> check(const StoreKeys& keys, const Keys& names);
StoreCall<Nothing> wait(const StoreKeys& keys, const Keys& names);
StoreCall<int64_t> num_keys();
StoreCall<bool> delete_key(const StoreKeys& keys, std::string_view key);
StoreCall<Nothing> append(const StoreKeys& keys, std::string_view key, std::string_view value);
StoreCall<std::vector<std::string>> multi_get(const StoreKeys& keys, const Keys& names);
StoreCall<std::vector<std::string>> list_keys();  // Full names.

// CANCEL_WAIT; not a call, because its answer comes in addition to that of the WAIT.
std::string_view cancel_wait_bytes();

}  // namespace calls

}  // namespace muster

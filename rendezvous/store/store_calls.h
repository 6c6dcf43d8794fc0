// The operations of the store as values: what to send, the shape of the answer, and its meaning.
// StoreClient performs them. Operations that only PyTorch's programs use (queues, BARRIER,
// MULTI_SET) are implemented by the server only. Pure.
//
//   StoreKeys keys("job/round");           // "x" is "/job/round/x" in the store
//   StoreCall<int64_t> call = calls::add(keys, "arrived", 1);
//
// A key is stored with "/" before it, and a prefix with "/" after it, as PyTorch's TCPStore and
// PrefixStore do, so that its programs and ours see the same keys. A key or value for which the
// server would close the connection makes a call with an error, which the client returns without
// sending.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/store/tcpstore_reply.h"

namespace muster {

// How a handle's keys are spelled in the store.
class StoreKeys {
 public:
  StoreKeys() = default;
  explicit StoreKeys(std::string_view prefix) : StoreKeys(StoreKeys().nested(prefix)) {}

  // Keys below these: nested("a").nested("b") stores "x" as "/a/b/x".
  StoreKeys nested(std::string_view prefix) const;
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  // nullopt for a name that is not below this prefix.
  std::optional<std::string> stripped(const std::string& name) const;

 private:
  std::string prefix_ = "/";
};

struct StoreRequest {
  std::string bytes;
  tcpstore::Shape shape = tcpstore::Shape::none;
  size_t strings = 0;          // For Shape::strings.
  bool waits = false;          // The answer depends on other clients: WAIT.
  std::string what;            // For messages: "WAIT for job/x"
  std::optional<Error> error;  // Must not be sent.
};

template <typename T>
struct StoreCall {
  StoreRequest request;
  T (*meaning)(tcpstore::Reply&& reply);
};

struct Nothing {
  friend bool operator==(Nothing, Nothing) = default;
};

namespace calls {

using Keys = std::vector<std::string>;

StoreCall<Nothing> validate();
StoreCall<uint32_t> ping(uint32_t nonce);
StoreCall<Nothing> set(const StoreKeys& keys, std::string_view key, std::string_view value);
// Returns the resulting value of the key; `desired` if it was replaced. An absent key equals "".
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
StoreCall<std::vector<std::string>> list_keys();  // As spelled in the store.

// CANCEL_WAIT, which is no call of its own: its answer follows that of the WAIT.
std::string_view cancel_wait_bytes();

}  // namespace calls

}  // namespace muster

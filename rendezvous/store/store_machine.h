// The key-value store of one epoch: keys, queues, waiters, and clients that have not sent VALIDATE
// yet. Pure: takes connections, requests and the time, and returns the bytes to send to each
// client. The owner creates one for each epoch, so no state passes from one to the next. One
// thread. It has the semantics of PyTorch's server without its defects: a waiter has a set of
// missing keys and is woken only by keys that exist; a served waiter leaves no trace; MULTI_SET is
// atomic; no wake-up follows the answer to CANCEL_WAIT. Hash maps are never iterated: LIST_KEYS
// follows the order of creation.
//
// Hot path: a request costs about 0.1 us here, hence one call that appends to an output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/store/awaited_keys.h"
#include "rendezvous/store/key_table.h"
#include "rendezvous/store/keyed_hash.h"
#include "rendezvous/store/tcpstore_codec.h"
#include "rendezvous/store/waiters.h"

namespace muster {

// The effects of requests: the machine appends, the owner sends and empties. `reply` goes to the
// requesting connection; each client in `woken` gets one byte tcpstore::kReady.
struct StoreEffects {
  std::string reply;
  std::vector<ClientId> woken;
};

class StoreMachine {
 public:
  struct Options {
    // Limit from a connection's arrival to its VALIDATE.
    Duration handshake_timeout = std::chrono::seconds{5};
    size_t reply_bytes_max = size_t{256} << 20;
    size_t stored_bytes_max = size_t{1} << 30;
    // Keeps clients from choosing keys that collide; the owner draws it at random.
    uint64_t hash_seed = 0;
  };

  explicit StoreMachine(const Options& options);
  StoreMachine(StoreMachine&&) = delete;
  ~StoreMachine();

  // Registers a connection. `id` indexes a table, so it must be small. REQUIRES: id is not open.
  void opened(Instant now, ClientId id);

  // Performs one request. On a Breach nothing is applied, and the caller closes the connection and
  // calls closed(). REQUIRES: id is open; the request came from a RequestDecoder.
  std::optional<tcpstore::Breach> request(ClientId id, const tcpstore::Request& request,
                                          StoreEffects& out);

  // Sets a key for the owner itself. Returns false if the store is full.
  bool put(std::string_view key, std::string_view value, StoreEffects& out);

  // Forgets the client's wait. REQUIRES: id is open.
  void closed(ClientId id);

  // Returns when to call expire(); may be early.
  Instant next_deadline() const;
  // Appends the clients that missed the deadline for VALIDATE, each once: the caller closes them.
  void expire(Instant now, std::vector<ClientId>& late);
  // Returns the oldest open client that has not sent VALIDATE.
  std::optional<ClientId> oldest_half_open();

  // Returns what clients wait for, in the order of their connections, without their addresses.
  // Cost: the waiters, and some 100 look-ups for each key.
  std::vector<AwaitedKeys> awaited() const;
  bool has(std::string_view key) const { return keys_.find(key) != nullptr || is_queue(key); }

  size_t keys() const { return keys_.size(); }
  // Returns roughly the memory of names, contents and waiters.
  size_t stored_bytes() const { return stored_bytes_ + waiters_.bytes(); }
  size_t waiting() const { return waiters_.waiting(); }

  std::string status() const;

 private:
  using Entry = KeyTable::Entry;
  using Queues =
      std::unordered_map<std::string, std::deque<std::string>, KeyedHash, std::equal_to<>>;
  using MaybeBreach = std::optional<tcpstore::Breach>;

  struct Session {
    uint32_t serial = 0;  // Tells it from earlier uses of its id, which may be in handshakes_.
    bool open = false;
    bool validated = false;
    uint32_t nonce = 0;  // The last PING's.
  };
  struct Handshake {
    Instant deadline;
    ClientId id;
    uint32_t serial;
  };

  bool is_half_open(const Handshake& handshake) const;
  std::vector<AwaitedKey::Sibling> siblings_of(std::string_view key,
                                               const std::map<uint32_t, KeyClient>& clients) const;
  MaybeBreach perform(ClientId id, const tcpstore::Request& request, StoreEffects& out);
  MaybeBreach set(const tcpstore::Request& request, ClientId id, StoreEffects& out);
  MaybeBreach compare_set(const tcpstore::Request& request, ClientId id, StoreEffects& out);
  MaybeBreach get(const tcpstore::Request& request, StoreEffects& out) const;
  MaybeBreach add(const tcpstore::Request& request, ClientId id, StoreEffects& out);
  MaybeBreach append(const tcpstore::Request& request, ClientId id, StoreEffects& out);
  MaybeBreach multi_set(const tcpstore::Request& request, ClientId id, StoreEffects& out);
  MaybeBreach multi_get(const tcpstore::Request& request, StoreEffects& out) const;
  MaybeBreach list_keys(StoreEffects& out) const;
  MaybeBreach queue_push(const tcpstore::Request& request, ClientId id, StoreEffects& out);
  MaybeBreach barrier(const tcpstore::Request& request, ClientId id, StoreEffects& out);
  void check(const tcpstore::Request& request, StoreEffects& out) const;
  MaybeBreach wait(const tcpstore::Request& request, ClientId id, StoreEffects& out);
  void delete_key(const tcpstore::Request& request, StoreEffects& out);
  void queue_pop(const tcpstore::Request& request, StoreEffects& out);
  void queue_len(const tcpstore::Request& request, StoreEffects& out) const;

  // Returns the entry of `key`, created empty if the key is missing.
  Entry& entry(std::string_view key);
  void note_added(Entry& entry);
  void take(Entry& entry, const tcpstore::Request& request);
  void assign(Entry& entry, std::string_view value);
  MaybeBreach count_up(std::string_view key, int64_t by, int64_t& sum);
  bool is_queue(std::string_view key) const;
  bool fits(size_t more_bytes) const;
  void wake(std::string_view key, WakeKind kind, ClientId asker, StoreEffects& out);

  // Invariants. (1) A queue in queues_ is not empty. (2) A waiter in waiters_ misses at least one
  // key, or waits at a barrier. (3) stored_bytes_ counts the names and contents of keys_ and
  // queues_ plus kEntryBytes for each key and each queue item.
  Options options_;
  KeyTable keys_;
  Queues queues_;
  size_t stored_bytes_ = 0;
  Waiters waiters_;
  std::vector<Session> sessions_;     // Indexed by ClientId.
  std::deque<Handshake> handshakes_;  // Ordered by deadline: the time-out is the same for all.
  uint32_t serial_ = 0;
  uint32_t asker_ = 0;  // Serial of the session whose request is performed; 0: the owner.
};

}  // namespace muster

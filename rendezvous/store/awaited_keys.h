// What the clients of a store wait for: plain values, for a word on what holds up a job.
//
// A key often has a number in its name, the rank that sets it: "init/0", "init/1". Its siblings,
// the keys that differ from it in that number alone, show whether that is so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

#include "rendezvous/net/address.h"

namespace muster {

struct KeyClient {
  uint32_t connection = 0;  // The store's ClientId.
  pid_t pid = 0;            // As its PING said: PyTorch's clients send theirs. 0: unknown.
  IpAddress address{};      // The client's end of the connection, as the store sees it.
  int node_rank = -1;       // -1: unknown.
};

struct AwaitedKey {
  // A key that exists.
  struct Sibling {
    size_t place = 0;  // Where the number begins in the name, in bytes.
    int awaited = 0;   // The number in the awaited key,
    int number = 0;    // and in this one.
    KeyClient creator;
  };

  std::string name;
  std::vector<Sibling> siblings{};  // By place; some of them, if there are many.
};

// Clients that wait for the same keys.
struct AwaitedKeys {
  static constexpr size_t kKeysMax = 8;        // Per wait,
  static constexpr size_t kSiblingsMax = 4;    // per number in a name,
  static constexpr size_t kWaitsMax = 32;      // per store,
  static constexpr size_t kClientsMax = 4096;  // and of all waits.

  std::vector<AwaitedKey> keys;  // The first missing ones of the first of these clients; not empty.
  size_t more = 0;               // How many others it misses.
  bool is_barrier = false;       // The key counts the clients that have come to a barrier.
  std::vector<KeyClient> waiting;  // Empty: none does any more,
  bool exists = false;             // since the first key has been set; false: they gave up.
};

// Calls act(client) for all clients of the waits, those that wait and those that created siblings.
void for_each_client(std::vector<AwaitedKeys>& waits, auto&& act) {
  for (AwaitedKeys& wait : waits) {
    for (KeyClient& client : wait.waiting)
      act(client);
    for (AwaitedKey& key : wait.keys) {
      for (AwaitedKey::Sibling& sibling : key.siblings)
        act(sibling.creator);
    }
  }
}

}  // namespace muster

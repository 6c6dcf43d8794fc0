// The store of a job that no agent serves: rank 0 hosts it, as in torch.distributed; a world of one
// hosts one for itself, without a port; and spawn() hosts one for its ranks. It runs on its own
// thread, so that it answers whatever the program does.
//
// Other ranks may still be using it when rank 0 leaves, and may come back before rank 0 does (the
// next init_process_group()). So it is not ended but retired: it goes on until no client is
// connected, resumes service when the same addresses are asked for again, and delays an orderly
// exit of the process by at most a second.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/net/address.h"
#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// Every such store has its nonce() under this key from the start, so that a client can tell that it
// has reached the right store.
inline constexpr std::string_view kHostNonceKey = "muster/host_nonce";

class HostStore {
 public:
  // Keys and values that are set before any client can connect; empty again once it is retired.
  using Contents = std::vector<std::pair<std::string, std::string>>;

  // Listens on all of `addresses`, which share one port (0: a free one); none: serves this process
  // only. Fails with environment if a port is taken; with system.
  static Outcome<std::shared_ptr<HostStore>> serve(const std::vector<SocketAddress>& addresses,
                                                   const Contents& contents = {});

  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;
  // Ends it at once.
  ~HostStore();

  // 0 without addresses.
  uint16_t port() const;
  // Whether a client had to wait because this process had no descriptor left. REQUIRES: not
  // retired.
  bool was_exhausted() const;
  // Random; identifies this store.
  uint64_t nonce() const;

  // A connection within this process, without any network. Any thread.
  Outcome<StoreClient> connect(Duration timeout);

  // Keeps it running as long as others need it. REQUIRES: the caller holds the only reference.
  static void retire(std::shared_ptr<HostStore> store);

 private:
  struct Server;
  explicit HostStore(std::unique_ptr<Server> server);
  static void wait_for_retired();
  std::unique_ptr<Server> server_;
};

}  // namespace muster::worker

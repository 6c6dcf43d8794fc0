// The store of a job that no agent serves: rank 0 hosts it, as in torch.distributed; a world of one
// hosts one for itself, without a port; spawn() hosts one for its ranks. It runs on its own thread,
// so that it answers whatever the program does.
//
// Other ranks may still use it when rank 0 leaves, and may come back before rank 0 does (the next
// init_process_group()). So it is retired: it runs until no client is connected, resumes service
// when the same addresses are requested again, and delays an orderly exit by at most a second.
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

// Holds the store's nonce() from the start, by which clients recognise the right store.
inline constexpr std::string_view kHostNonceKey = "muster/host_nonce";

class HostStore {
 public:
  // Keys and values that are set before any client can connect; removed when it is retired.
  using Contents = std::vector<std::pair<std::string, std::string>>;

  // Listens on all of `addresses`, which share one port (0: a free one); without any, serves this
  // process only. Fails with environment if a port is taken; with system.
  static Outcome<std::shared_ptr<HostStore>> serve(const std::vector<SocketAddress>& addresses,
                                                   const Contents& contents = {});

  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;
  // Stops the store at once.
  ~HostStore();

  // Port; 0 without addresses.
  uint16_t port() const;
  // True if a client had to wait for want of descriptors in this process. REQUIRES: not retired.
  bool was_exhausted() const;
  // Random; identifies this store.
  uint64_t nonce() const;

  // Connects within this process, without any network. Any thread.
  Outcome<StoreClient> connect(Duration timeout);

  // Keeps it running while others need it. REQUIRES: the caller holds the only reference.
  static void retire(std::shared_ptr<HostStore> store);

 private:
  struct Server;
  explicit HostStore(std::unique_ptr<Server> server);
  static void wait_for_retired();
  std::unique_ptr<Server> server_;
};

}  // namespace muster::worker

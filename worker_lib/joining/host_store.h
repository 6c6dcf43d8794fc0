// The store of a job that no agent serves: rank 0 hosts it, as torch.distributed does; a world of
// one hosts one for itself, without a port; and spawn() hosts one for its ranks. Runs on a thread
// of its own, so that it answers whatever the program does.
//
// Other ranks may still be talking to it when rank 0 leaves, and may come back before rank 0 does
// (the next init_process_group()). So it is not ended but retired: it goes on until nobody is
// connected any more, takes up service again when the same addresses are asked for, and keeps a
// process that exits in order for at most a second.
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

// Where every such store has its nonce() from the beginning: who finds it at the right port is
// there.
inline constexpr std::string_view kHostNonceKey = "muster/host_nonce";

class HostStore {
 public:
  // Keys and values that are there before anybody can come; empty again once the store is retired.
  using Contents = std::vector<std::pair<std::string, std::string>>;

  // Listens on all of `addresses`, which have one port (0: a free one); none: serves this process
  // only. Fails with environment where a port is taken; with system.
  static Outcome<std::shared_ptr<HostStore>> serve(const std::vector<SocketAddress>& addresses,
                                                   const Contents& contents = {});

  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;
  // Ends it at once.
  ~HostStore();

  // 0 without addresses.
  uint16_t port() const;
  // Whether somebody had to wait because this process had no descriptor left. REQUIRES: not
  // retired.
  bool was_exhausted() const;
  // Random: tells this store from any other.
  uint64_t nonce() const;

  // A connection within this process, without any network. Any thread.
  Outcome<StoreClient> connect(Duration timeout);

  // Lets it go on by itself as long as others need it. REQUIRES: nobody else holds it.
  static void retire(std::shared_ptr<HostStore> store);

 private:
  struct Server;
  explicit HostStore(std::unique_ptr<Server> server);
  static void wait_for_retired();
  std::unique_ptr<Server> server_;
};

}  // namespace muster::worker

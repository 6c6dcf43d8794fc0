// Connections to servers of the program's own stores, kept for the next group that this process
// joins there. PyTorch's server looks up the name of each client that connects, while all others
// wait: without a name server that takes 5 s. Any thread.
#pragma once

#include <optional>

#include "rendezvous/store/store_client.h"
#include "worker_lib/joining/identity.h"

namespace muster::worker {

// Takes out a working connection; nullopt: none.
std::optional<StoreClient> take_connection(const MeetAtAddress& server);
// REQUIRES: no other handle of the connection is in use.
void keep_connection(const MeetAtAddress& server, const StoreClient& connection);

}  // namespace muster::worker

// Who is told of every socket of a store as long as it is open: listening ones, accepted ones, and
// clients'. For a process that may fork without exec: a child's copy of a listening socket keeps
// the port, and one of a connection hides its end from the peer, also after the parent's death.
// One observer for the process, set before the first store; none in most processes. Any thread.
#pragma once

namespace muster {

// Both must be quick, and are called on whichever thread opens or closes.
struct StoreSocketObserver {
  void (*opened)(int fd) = nullptr;
  void (*closing)(int fd) = nullptr;
};

// It must outlive all stores and clients. Sockets that are open already are not told.
void observe_store_sockets(const StoreSocketObserver& observer);

// For whoever owns such a socket: after it was made, and before close().
void store_socket_opened(int fd);
void store_socket_closing(int fd);

}  // namespace muster

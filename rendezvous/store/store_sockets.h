// Reports the opening and closing of every store socket (listening, accepted, client) to an
// observer, for a process that may fork without exec: a child's copy of a listening socket keeps
// the port taken, and a copy of a connection hides its end from the peer, even after the parent's
// death. At most one observer per process, set before the first store. Any thread.
#pragma once

namespace muster {

// Both are called on the thread that opens or closes, and must be quick.
struct StoreSocketObserver {
  void (*opened)(int fd) = nullptr;
  void (*closing)(int fd) = nullptr;
};

// The observer must outlive all stores and clients. Sockets that are already open are not reported.
void observe_store_sockets(const StoreSocketObserver& observer);

// Called by the owner of a store socket after it is created and before close().
void store_socket_opened(int fd);
void store_socket_closing(int fd);

}  // namespace muster

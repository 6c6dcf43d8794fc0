// Reports the opening and closing of every store socket to an observer: listening, accepted and
// client sockets. For a process that may fork without exec: a child's copy of a listening socket
// holds the port, and one of a connection hides its end from the peer, even after the parent's
// death. One observer per process, set before the first store; most have none. Any thread.
#pragma once

namespace muster {

// Both must be quick. They are called on the thread that opens or closes.
struct StoreSocketObserver {
  void (*opened)(int fd) = nullptr;
  void (*closing)(int fd) = nullptr;
};

// It must outlive all stores and clients. Sockets that are already open are not reported.
void observe_store_sockets(const StoreSocketObserver& observer);

// Called by the owner of such a socket: after it is created, and before close().
void store_socket_opened(int fd);
void store_socket_closing(int fd);

}  // namespace muster

#include "rendezvous/store/store_sockets.h"

#include <atomic>

namespace muster {
namespace {

std::atomic<const StoreSocketObserver*> store_socket_observer = nullptr;

}  // namespace

void observe_store_sockets(const StoreSocketObserver& observer) {
  store_socket_observer.store(&observer);
}

void store_socket_opened(int fd) {
  if (const StoreSocketObserver* const observer = store_socket_observer.load())
    observer->opened(fd);
}

void store_socket_closing(int fd) {
  if (const StoreSocketObserver* const observer = store_socket_observer.load())
    observer->closing(fd);
}

}  // namespace muster

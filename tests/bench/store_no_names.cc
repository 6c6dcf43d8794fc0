// Preloaded into PyTorch's store server, which looks up the name of every peer that it accepts on
// its only thread, so that a slow name server blocks it for seconds. Here every peer is immediately
// called "peer", so that a benchmark of the store does not measure the name server.
#include <cstdio>

#include <netdb.h>

extern "C" int getnameinfo(const sockaddr* /*address*/, socklen_t /*size*/, char* host,
                           socklen_t host_size, char* service, socklen_t service_size,
                           int /*flags*/) {
  if (host != nullptr) snprintf(host, host_size, "peer");
  if (service != nullptr) snprintf(service, service_size, "0");
  return 0;
}

#include "worker_lib/joining/own_address.h"

#include <optional>

#include <fmt/format.h>

#include "rendezvous/net/claim.h"
#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/resolve.h"

namespace muster::worker {
namespace {

std::vector<SocketAddress> resolve_now(const std::string& host, uint16_t port) {
  std::vector<SocketAddress> found;
  if (const std::optional<IpAddress> numeric = numeric_address(host)) {
    found.push_back({*numeric, port});
  } else if (const auto named = look_up_by_getaddrinfo(host)) {
    for (const IpAddress& ip : *named)
      found.push_back({ip, port});
  }
  return found;
}

bool asks_for_own_loopback(const std::string& host) {
  const std::optional<IpAddress> numeric = numeric_address(host);
  return numeric ? numeric->is_loopback() : host == "localhost" || host.ends_with(".localhost");
}

// Returns the addresses of the named interface; empty: of all that could reach others.
std::vector<IpAddress> outward_addresses(const std::string& name) {
  std::vector<IpAddress> found;
  for (const Interface& each : read_interfaces()) {
    if (name.empty() ? !is_candidate(each) : each.name != name) continue;
    for (const IpAddress& address : each.addresses) {
      if (!address.is_link_local()) found.push_back(address);
    }
  }
  return found;
}

Outcome<IpAddress> interface_address(const std::string& interface, const IpAddress& like) {
  const std::string first = interface.substr(0, interface.find(','));
  const Result<IpAddress> address = address_of_interface(first, like);
  if (address) return *address;
  return failed(ErrorCode::environment,
                fmt::format("GLOO_SOCKET_IFNAME={}: {}", interface, address.error().message));
}

}  // namespace

Outcome<std::string> own_address(const std::string& store_host, uint16_t port,
                                 const std::string& interface) {
  std::optional<IpAddress> source;
  for (const SocketAddress& store : resolve_now(store_host, port)) {
    if (const Result<IpAddress> towards = source_towards(store); towards && !source)
      source = *towards;
  }
  if (!interface.empty()) {
    const Outcome<IpAddress> named =
        interface_address(interface, source.value_or(IpAddress::any_v4()));
    if (!named) return tl::unexpected(named.error());
    return named->to_string();
  }
  if (source && (!source->is_loopback() || asks_for_own_loopback(store_host)))
    return source->to_string();
  const std::vector<IpAddress> outward = outward_addresses({});
  return (outward.empty() ? IpAddress::loopback_v4() : outward.front()).to_string();
}

std::vector<SocketAddress> listening_addresses(const std::string& host, uint16_t port) {
  const std::vector<SocketAddress> resolved = resolve_now(host, port);
  if (resolved.empty()) return {{IpAddress::any_v6(), port}};
  return plan_listening(host, resolved, read_own_addresses()).addresses;
}

std::vector<std::string> reachable_addresses(const std::string& interface) {
  std::vector<std::string> addresses;
  for (const IpAddress& address : outward_addresses(interface.substr(0, interface.find(','))))
    addresses.push_back(address.to_string());
  return addresses;
}

}  // namespace muster::worker

#include "rendezvous/backends/keeper_finder.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/machine.h"
#include "rendezvous/membership/random_ids.h"
#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

std::optional<IpAddress> chosen_address(const KeeperFinder::Options& options) {
  if (options.local_addr) return IpAddress::parse(*options.local_addr);
  if (options.interface.empty()) return std::nullopt;
  const Result<IpAddress> address = address_of_interface(options.interface, IpAddress::any_v4());
  return address ? std::optional(*address) : std::nullopt;
}

// Returns the addresses at which other nodes may reach us; loopback only if there is no other.
std::vector<IpAddress> reachable_addresses(const KeeperFinder::Options& options) {
  if (const auto chosen = chosen_address(options)) return {*chosen};
  std::vector<IpAddress> addresses = read_peer_addresses();
  if (addresses.empty()) addresses.push_back(IpAddress::loopback_v4());
  return addresses;
}

Hosting::Options keeping(const KeeperFinder::Options& options) {
  Hosting::Options machine;
  machine.keeper_ends_leases = options.keeper_ends_leases;
  machine.place = options.place;
  machine.machine = machine_identity();
  machine.lease = options.lease;
  machine.beat_every = options.beat_every;
  return machine;
}

}  // namespace

KeeperFinder::KeeperFinder(boost::asio::io_context& io, std::shared_ptr<Keeper> keeper,
                           Options options, Handlers handlers)
    : HostFinder(io, options, keeping(options), std::move(handlers)),
      options_(std::move(options)),
      machine_(machine_identity()),
      keeper_(std::move(keeper)),
      helper_(io) {}

template <typename Answer, typename Work>
void KeeperFinder::ask(Work work) {
  using Given = decltype(work(*keeper_));
  const auto given = std::make_shared<std::optional<Given>>();
  helper_.run([keeper = keeper_, work = std::move(work), given] { *given = work(*keeper); },
              [this, given] { post(Answer{std::move(**given)}); });
}

// ---- another node hosts

void KeeperFinder::look() {
  ask<hosting::Looked>([](Keeper& keeper) { return keeper.look(); });
}

void KeeperFinder::await(const hosting::Await& wish) {
  helper_.run([keeper = keeper_, wish] { keeper->wait(wish.seen, wish.patience); },
              [this] { post(hosting::Awaited{}); });
}

void KeeperFinder::call(const HostRecord& host) {
  std::vector<SocketAddress> addresses;
  for (const SocketAddress& address : host.addresses) {
    if (!address.ip.is_loopback() || host.machine == machine_) addresses.push_back(address);
  }
  const std::string name = fmt::format("the host {} named in {}", host.host_name, options_.place);
  if (addresses.empty()) {
    return post(hosting::Called{hosting::Called::How::silent,
                                {ExitCode::rendezvous, name + " has no address for this node"}});
  }
  connecting_ = connect_any(io_, name, addresses, dial_deadline(), connect_options_,
                            [this](NetResult<TcpSocket> socket) {
                              // An address of the record may also be one of ours (docker0):
                              // its refusal then proves nothing.
                              if (!socket && !socket.error().refused_by_all &&
                                  socket.error().failure == NetFailure::refused)
                                socket.error().failure = NetFailure::timed_out;
                              on_called(std::move(socket));
                            });
}

// ---- this node may host

// A host whose record was lost keeps its listener and its record, which other nodes know.
void KeeperFinder::take(const Keeper::Seen& seen) {
  if (!is_hosting()) {
    const std::optional<IpAddress> chosen = chosen_address(options_);
    auto opened = Listener::open(
        io_,
        {SocketAddress{chosen.value_or(IpAddress::any_v6()), static_cast<uint16_t>(options_.port)}},
        options_.listen);
    if (!opened) {
      return on_not_taken(hosting::Taken::How::failed,
                          {ExitCode::environment, opened.error().message});
    }
    listener_ = std::move(*opened);
    own_ = new_record(*listener_);
  }
  const auto won = std::make_shared<Result<bool>>();
  helper_.run([keeper = keeper_, seen, own = own_, won] { *won = keeper->take(seen, own); },
              [this, won] {
                if (*won && **won) return on_won(std::move(listener_), own_.instance);
                listener_.reset();
                if (*won) return on_not_taken(hosting::Taken::How::lost, {});
                on_not_taken(hosting::Taken::How::failed, won->error());
              });
}

HostRecord KeeperFinder::new_record(const Listener& listener) const {
  HostRecord record;
  record.instance = random_u64();
  record.agent = options_.agent;
  record.machine = machine_;
  record.host_name = options_.host_name;
  for (const IpAddress& address : reachable_addresses(options_))
    record.addresses.push_back({address, listener.port()});
  return record;
}

// ---- this node hosts

void KeeperFinder::beat() {
  ask<hosting::Beaten>([own = own_](Keeper& keeper) { return keeper.beat(own); });
}

void KeeperFinder::write(const hosting::Write& change) {
  ask<hosting::Written>([own = own_, change](Keeper& keeper) {
    return keeper.write(own, change.before, change.now, change.remember);
  });
}

void KeeperFinder::leave() {
  helper_.run([keeper = keeper_, own = own_] { keeper->leave(own); },
              [this] { post(hosting::Left{}); });
}

}  // namespace muster

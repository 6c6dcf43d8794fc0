#include "rendezvous/backends/solo_rendezvous.h"

#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/random.h"
#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/resolve.h"

namespace muster {
namespace {

// Returns all addresses of this machine: the workers run nowhere else.
std::vector<Network> own_networks() {
  std::vector<Network> networks{Network(IpAddress::loopback_v4(), 8),
                                Network(IpAddress::loopback_v6())};
  for (const IpAddress& address : read_own_addresses()) {
    if (!address.is_loopback()) networks.emplace_back(address);
  }
  return networks;
}

}  // namespace

// A name may mean any of our addresses, so its store listens on all and admits only this machine.
SoloRendezvous::StoreAddress SoloRendezvous::place_of(const RendezvousOptions& options) {
  StoreAddress place;
  std::optional<IpAddress> address = numeric_address(options.host);
  if (options.host.empty() || options.host == "localhost") address = IpAddress::loopback_v4();
  if (address && !address->is_any()) {
    place.addresses = {SocketAddress{*address, 0}};
    place.master_addr = options.host.empty() ? address->to_string() : options.host;
  } else {
    place.addresses = {SocketAddress{IpAddress::any_v6(), 0}};
    place.master_addr = address ? IpAddress::loopback_v4().to_string() : options.host;
  }
  if ((address && address->is_loopback()) || options.clients.allow_any) return place;
  place.allowed = own_networks();
  const std::vector<Network>& more = options.clients.allow;
  place.allowed->insert(place.allowed->end(), more.begin(), more.end());
  return place;
}

JobStore::Options SoloRendezvous::store_options(const RendezvousOptions& options,
                                                const StoreAddress& place,
                                                const Handlers& handlers) {
  JobStore::Options store;
  store.addresses = place.addresses;
  store.port = options.worker_port.value_or(options.port);
  store.places = std::make_shared<Places>(options.connections_max);
  store.say = handlers.say;
  store.on_full = handlers.store_full;
  if (handlers.keys_awaited) {
    store.on_awaited = [told = handlers.keys_awaited](uint64_t epoch,
                                                      std::vector<AwaitedKeys> waits) {
      for_each_client(waits, [](KeyClient& client) { client.node_rank = 0; });
      told(epoch, std::move(waits));
    };
  }
  store.bytes_max = options.store_bytes_max;
  store.clients = options.clients;
  store.clients.local = std::make_shared<LocalUsers>();
  return store;
}

SoloRendezvous::SoloRendezvous(boost::asio::io_context& io, const RendezvousOptions& options,
                               StoreAddress place, Handlers handlers)
    : options_(options),
      place_(std::move(place)),
      handlers_(std::move(handlers)),
      store_(io, store_options(options_, place_, handlers_)),
      epoch_(options.join.last_epoch),
      restarts_(options.join.restarts) {}

Result<std::unique_ptr<Rendezvous>> SoloRendezvous::make(boost::asio::io_context& io,
                                                         const RendezvousOptions& options,
                                                         Handlers handlers) {
  std::unique_ptr<SoloRendezvous> rendezvous(
      new SoloRendezvous(io, options, place_of(options), std::move(handlers)));
  const Result<void> reserved = rendezvous->store_.reserve();
  if (!reserved) return tl::unexpected(reserved.error());
  return rendezvous;
}

void SoloRendezvous::on(const member::ReadyForRound&) {
  if (leaving_) return;
  end_round();
  const Result<int> port = store_.open(++epoch_, place_.allowed);
  if (!port) return handlers_.failed(port.error());
  round_runs_ = true;
  membership::Round round;
  round.epoch = epoch_;
  round.world_size = round.role_world_size = options_.join.slots;
  round.master_addr = place_.master_addr;
  round.master_port = *port;
  round.restarts = restarts_;
  round.worker_secret = random_bytes(sizeof(Mac));
  handlers_.round(round);
}

void SoloRendezvous::end_round() {
  if (round_runs_ && failed_) ++restarts_;
  round_runs_ = failed_ = false;
  store_.close();
}

void SoloRendezvous::on(const member::WorkersDone& news) {
  if (!round_runs_ || news.epoch != epoch_) return;
  end_round();
  membership::End end;
  end.text = "all workers succeeded";
  end.restarts = restarts_;
  handlers_.ended(end);
}

void SoloRendezvous::on(const member::WorkerFailed& news) {
  if (news.epoch == epoch_) failed_ = true;
}

void SoloRendezvous::on(const member::Leaving& news) {
  if (!leaving_) handlers_.leave_announced();
  leaving_ = true;
  if (news.reaped) end_round();
}

std::string SoloRendezvous::status() {
  if (!round_runs_) return "one node alone; no round runs";
  return fmt::format("epoch {} runs on this node alone; {}", epoch_, store_.status());
}

void SoloRendezvous::nodes(std::function<void(std::vector<membership::NodeLine>)> done) {
  const membership::Join& join = options_.join;
  done({{round_runs_ ? 0 : -1, join.host_name, 0, join.slots,
         leaving_ ? "leaving" : (round_runs_ ? "running" : "between two rounds")}});
}

void SoloRendezvous::close(std::function<void()> closed) {
  leaving_ = true;
  end_round();
  closed();
}

}  // namespace muster

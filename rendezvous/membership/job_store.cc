#include "rendezvous/membership/job_store.h"

#include <fmt/format.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

constexpr size_t kAllowedShown = 16;
constexpr auto kLookAtWaitsEvery = std::chrono::seconds(1);

std::string list_networks(const std::vector<Network>& networks) {
  std::vector<std::string> texts;
  for (const Network& network : networks) {
    if (texts.size() < kAllowedShown) texts.push_back(network.to_string());
  }
  return membership::list_text(std::move(texts), networks.size());
}

}  // namespace

JobStore::JobStore(boost::asio::io_context& io, Options options)
    : io_(io),
      options_(std::move(options)),
      clients_(std::move(options_.clients), [this](const std::string& line) { say(line); }),
      server_(io,
              [this] {
                StoreServer::Options server;
                server.on_refused = [this](const IpAddress& address) { on_refused(address); };
                server.examine = [this](int fd, uint64_t client) { examine(fd, client); };
                server.on_full = [this](int fd) { on_full(fd); };
                if (options_.on_awaited) server.on_waiting = [this] { look_at_waits_soon(); };
                server.machine.stored_bytes_max = options_.bytes_max;
                return server;
              }()),
      waits_timer_(io) {}

Result<void> JobStore::reserve() {
  if (options_.shared_port || options_.port == 0 || !listeners_.empty()) return {};
  return listen();
}

Result<int> JobStore::open(uint64_t epoch, Allowed allowed) {
  // The listener of a port chosen by the user stays, and refuses clients between rounds.
  if (!options_.shared_port && (options_.port == 0 || listeners_.empty())) {
    listeners_.clear();
    if (Result<void> done = listen(); !done) return tl::unexpected(std::move(done.error()));
  }
  allowed_text_ = allowed ? list_networks(*allowed) : std::string();
  clients_.begin();
  server_.set_allowed(std::move(allowed));
  server_.open(epoch);
  has_notice_ = is_full_ = false;
  was_ever_open_ = true;
  told_.clear();
  return options_.shared_port ? *options_.shared_port : static_cast<int>(listeners_[0]->port());
}

void JobStore::look_at_waits_soon() {
  if (std::exchange(looks_at_waits_, true)) return;
  call_after(waits_timer_, kLookAtWaitsEvery, [this] { look_at_waits(); });
}

void JobStore::look_at_waits() {
  looks_at_waits_ = false;
  std::vector<AwaitedKeys> waits = server_.awaited(told_);
  if (waits.empty()) return;
  told_.clear();
  for (const AwaitedKeys& wait : waits) {
    if (!wait.waiting.empty()) told_.push_back(wait.keys.front().name);
  }
  options_.on_awaited(*server_.epoch(), std::move(waits));
  look_at_waits_soon();
}

void JobStore::close() {
  waits_timer_.cancel();
  looks_at_waits_ = false;
  server_.close();
  if (options_.port == 0) listeners_.clear();
}

void JobStore::leave_notice(const FailureNotice& notice) {
  if (!is_open() || std::exchange(has_notice_, true)) return;
  std::string value = notice.text.substr(0, notice.text.find('\n'));
  value += notice.is_failure ? "\nfailed" : "\nstopped";
  if (notice.rank) value += fmt::format(" {}", *notice.rank);
  server_.put(kFailureNoticeKey, value);
}

void JobStore::examine(int fd, uint64_t client) {
  const ClientCheck::Verdict verdict = clients_.look(fd);
  if (verdict == ClientCheck::Verdict::is_elsewhere && options_.ask)
    return options_.ask(client, remote_address_of(fd), local_address_of(fd));
  server_.decide(client, verdict != ClientCheck::Verdict::refused);
}

void JobStore::on_refused(const IpAddress& address) {
  say(
      fmt::format("refused a connection from {} to the job's store: its members are at {}; "
                  "allow other addresses (NAT) with --store-allow",
                  address.to_string(), allowed_text_));
}

void JobStore::on_full(int fd) {
  if (std::exchange(is_full_, true) || !options_.on_full) return;
  options_.on_full(fmt::format(
      "the job's store is full: a worker at {} wants more than the {} MiB of keys and values that "
      "it may hold (--store-limit), so its connection was closed",
      remote_address_of(fd).ip.to_string(), options_.bytes_max >> 20));
}

Result<void> JobStore::listen() {
  std::vector<SocketAddress> addresses = options_.addresses;
  for (SocketAddress& address : addresses)
    address.port = static_cast<uint16_t>(options_.port);
  auto opened = StoreListener::open(io_, server_, addresses, options_.places);
  if (!opened) return tl::unexpected(std::move(opened.error()));
  listeners_ = std::move(*opened);
  return {};
}

}  // namespace muster

#include "rendezvous/membership/job_store.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/store/store_listener.h"

namespace muster {
namespace {

constexpr size_t kAllowedShown = 16;
// A port that is free on the first address may be taken on the second.
constexpr int kFreePortTries = 8;

std::string list_networks(const std::vector<Network>& networks) {
  std::vector<std::string> texts;
  for (const Network& network : networks) {
    if (texts.size() == kAllowedShown) {
      texts.push_back(fmt::format("{} more", networks.size() - kAllowedShown));
      break;
    }
    texts.push_back(network.to_string());
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

JobStore::JobStore(boost::asio::io_context& io, Options options)
    : io_(io), options_(std::move(options)), server_(io, [this] {
        StoreServer::Options server;
        server.on_refused = [this](const IpAddress& address) { on_refused(address); };
        return server;
      }()) {}

JobStore::~JobStore() = default;

Result<void> JobStore::reserve() {
  if (options_.shared_port || options_.port == 0 || !listeners_.empty()) return {};
  const Result<int> port = listen();
  if (!port) return tl::unexpected(port.error());
  return {};
}

Result<int> JobStore::open(uint64_t epoch, Allowed allowed) {
  // A fresh port unless the user chose one, whose listener stays and refuses between rounds.
  if (!options_.shared_port && (options_.port == 0 || listeners_.empty())) {
    listeners_.clear();
    const Result<int> port = listen();
    if (!port) return port;
  }
  allowed_text_ = allowed ? list_networks(*allowed) : std::string();
  server_.set_allowed(std::move(allowed));
  server_.open(epoch);
  has_notice_ = false;
  was_ever_open_ = true;
  return options_.shared_port ? *options_.shared_port : static_cast<int>(listeners_[0]->port());
}

void JobStore::close() {
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

void JobStore::on_refused(const IpAddress& address) {
  if (!options_.say) return;
  options_.say(
      fmt::format("refused a connection from {} to the job's store: its members are at {}; "
                  "allow other addresses (NAT) with --store-allow",
                  address.to_string(), allowed_text_));
}

Result<int> JobStore::listen() {
  Result<int> port = listen_on_port(static_cast<uint16_t>(options_.port));
  for (int i = 1; !port && options_.port == 0 && i < kFreePortTries; ++i)
    port = listen_on_port(0);
  return port;
}

Result<int> JobStore::listen_on_port(uint16_t port) {
  std::vector<std::unique_ptr<StoreListener>> opened;
  for (SocketAddress address : options_.addresses) {
    address.port = port;
    Result<std::unique_ptr<StoreListener>> listener = StoreListener::open(io_, server_, address);
    if (!listener) return tl::unexpected(listener.error());
    port = (*listener)->port();
    opened.push_back(std::move(*listener));
  }
  if (opened.empty())
    return fail(ExitCode::internal, "the job's store has no address to listen on");
  listeners_ = std::move(opened);
  return static_cast<int>(port);
}

}  // namespace muster

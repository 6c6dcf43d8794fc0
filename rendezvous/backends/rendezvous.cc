#include "rendezvous/backends/rendezvous.h"

#include <algorithm>
#include <chrono>

#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/backends/endpoint_finder.h"
#include "rendezvous/backends/etcd_keeper.h"
#include "rendezvous/backends/file_keeper.h"
#include "rendezvous/backends/host_finder.h"
#include "rendezvous/backends/keeper_finder.h"
#include "rendezvous/backends/solo_rendezvous.h"
#include "rendezvous/backends/threaded_rendezvous.h"
#include "rendezvous/membership/coordinator.h"
#include "rendezvous/membership/member_client.h"
#include "rendezvous/membership/random_ids.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/local_users.h"

namespace muster {
namespace {

constexpr auto kGoodbyeLook = std::chrono::milliseconds(5);
constexpr int kGoodbyeLooks = 400;
// Short, since a host that is cut off does not answer while its lease ends.
constexpr auto kEtcdHostAnswers = std::chrono::milliseconds(1500);

Result<std::string> advertised_address(const RendezvousOptions& options) {
  if (options.local_addr) return *options.local_addr;
  if (options.interface.empty()) return std::string();
  const Result<IpAddress> address = address_of_interface(options.interface, IpAddress::any_v4());
  if (!address) return tl::unexpected(address.error());
  return address->to_string();
}

bool others_may_host(const RendezvousOptions& options) {
  return options.way == RendezvousOptions::Way::file || options.way == RendezvousOptions::Way::etcd;
}

bool has_network() {
  return std::ranges::any_of(read_interfaces(), is_candidate);
}

Coordinator::Options hosting_options(const RendezvousOptions& options) {
  Coordinator::Options hosting;
  hosting.job_id = options.job_id;
  hosting.own_agent = random_agent_id();
  hosting.secret = random_bytes(sizeof(Mac));
  hosting.token = options.token;
  hosting.only_own_job = options.way == RendezvousOptions::Way::known_host ||
                         options.way == RendezvousOptions::Way::etcd;
  hosting.membership.may_be_followed = others_may_host(options);
  hosting.worker_port = options.worker_port;
  hosting.membership.judge = options.judge;
  hosting.membership.lost_network = [had_one = has_network()] { return had_one && !has_network(); };
  hosting.multi_node = options.join.nodes_max + options.join.spares > 1;
  hosting.store_bytes_max = options.store_bytes_max;
  hosting.clients = options.clients;
  return hosting;
}

std::string endpoint_text(const RendezvousOptions& options) {
  if (options.way == RendezvousOptions::Way::file) return options.host;
  if (options.etcd) {
    std::vector<std::string> members;
    for (const EtcdMember& member : options.etcd->members)
      members.push_back(member.to_string());
    return fmt::format("etcd ({})", fmt::join(members, ","));
  }
  if (options.way == RendezvousOptions::Way::known_host && options.ports.size() > 1)
    return fmt::format("{}, port {}", options.host, fmt::join(options.ports, " or "));
  const bool is_v6 = options.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", options.host, options.port)
               : fmt::format("{}:{}", options.host, options.port);
}

// Why other nodes may not find this host: the endpoint resolves to `meant` here. Empty: unknown.
std::string host_hint(const RendezvousOptions& options, const std::optional<IpAddress>& meant) {
  if (!meant || !meant->is_loopback() || options.join.nodes_max + options.join.spares == 1)
    return "";
  const std::string text = meant->to_string();
  const std::vector<IpAddress> own = read_peer_addresses();
  return fmt::format(
      "; {}, so nodes on other machines cannot reach this one by it: give all nodes an address "
      "that they share{}",
      options.host == text ? fmt::format("on every machine {} is that machine itself", text)
                           : fmt::format("{} is {} here", options.host, text),
      own.empty() ? ""
                  : fmt::format(", such as {} if this one is to host", own.front().to_string()));
}

// The nodes' own lease in whole seconds, at least 2: etcd grants no shorter one by default.
std::chrono::seconds etcd_lease(const RendezvousOptions& options) {
  return std::clamp(std::chrono::ceil<std::chrono::seconds>(options.join.lease),
                    std::chrono::seconds(2), std::chrono::seconds(60));
}

std::unique_ptr<HostFinder> make_finder(boost::asio::io_context& io,
                                        const RendezvousOptions& options,
                                        const membership::AgentId& agent,
                                        HostFinder::Handlers handlers) {
  const auto for_all = [&options, &agent](auto finder) {
    finder.agent = agent;
    finder.port = options.port;
    finder.is_host = options.is_host;
    finder.dead_peer_after = std::max(finder.dead_peer_after, options.join.lease);
    finder.listen.places = std::make_shared<Places>(options.connections_max);
    return finder;
  };
  if (options.way == RendezvousOptions::Way::endpoint) {
    auto finder = for_all(EndpointFinder::Options());
    finder.host = options.host;
    return std::make_unique<EndpointFinder>(io, std::move(finder), std::move(handlers));
  }
  if (options.way == RendezvousOptions::Way::known_host) {
    auto finder = for_all(KnownHostFinder::Options());
    finder.host = options.host;
    finder.ports = options.ports;
    return std::make_unique<KnownHostFinder>(io, std::move(finder), std::move(handlers));
  }
  auto finder = for_all(KeeperFinder::Options());
  finder.place = endpoint_text(options);
  finder.host_name = options.join.host_name;
  finder.local_addr = options.local_addr;
  finder.interface = options.interface;
  if (options.way == RendezvousOptions::Way::etcd) {
    finder.lease = etcd_lease(options);
    finder.beat_every = finder.lease / 3;
    finder.keeper_ends_leases = true;
    finder.dial_limit = kEtcdHostAnswers;
    auto keeper = std::make_shared<EtcdKeeper>(
        *options.etcd, options.job_id,
        static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(finder.lease).count()),
        options.join.nodes_max);
    return std::make_unique<KeeperFinder>(io, std::move(keeper), std::move(finder),
                                          std::move(handlers));
  }
  finder.lease = std::max(finder.lease, options.join.lease);
  return std::make_unique<KeeperFinder>(io, std::make_shared<FileKeeper>(options.host),
                                        std::move(finder), std::move(handlers));
}

// A Rendezvous over the agents' protocol: this node's MemberClient and, if this node becomes the
// host, the Coordinator of all agents. The host's own agent connects to its own port like any
// other, so there is one code path. Lives on the rendezvous' thread.
class JoinedRendezvous : public Rendezvous {
 public:
  JoinedRendezvous(boost::asio::io_context& io, const RendezvousOptions& options, Handlers handlers,
                   const std::string& advertised)
      : io_(io),
        options_(options),
        handlers_(std::move(handlers)),
        hosting_(hosting_options(options)),
        finder_(make_finder(io, options_, hosting_.own_agent, finder_handlers())),
        client_(io, *finder_, client_options(advertised), client_handlers()),
        goodbye_timer_(io) {
    hosting_.say = handlers_.say;
    hosting_.on_store_full = handlers_.store_full;
    hosting_.on_keys_awaited = handlers_.keys_awaited;
  }

  void tell(News news) override {
    const bool ready = std::holds_alternative<member::ReadyForRound>(news);
    std::visit([this](auto& one) { client_.post(std::move(one)); }, news);
    if (ready && !std::exchange(begun_, true)) client_.post(member::Begin{});
  }

  void send(membership::Datagram datagram) override { client_.send(std::move(datagram)); }

  std::string status() override {
    if (coordinator_ == nullptr) return client_.status();
    return fmt::format("{}; this node is the host: {}", client_.status(), coordinator_->status());
  }

  void nodes(std::function<void(std::vector<membership::NodeLine>)> done) override {
    client_.nodes(std::move(done));
  }

  // The host may reach itself by loopback; the other nodes do not.
  std::string address_towards_peers() override {
    const std::optional<IpAddress> master = IpAddress::parse(master_addr_);
    const bool is_ours = coordinator_ != nullptr && master && is_own_address(*master);
    return is_ours ? master_addr_ : client_.own_address();
  }

  void close(std::function<void()> closed) override {
    closed_ = std::move(closed);
    if (!client_.is_over()) client_.post(member::Leaving{0, true});
    wait_for_goodbye(kGoodbyeLooks);
  }

 private:
  MemberClient::Options client_options(const std::string& advertised) const {
    MemberClient::Options client;
    client.member.join = options_.join;
    client.member.join.agent = hosting_.own_agent;
    client.member.endpoint = endpoint_text(options_);
    if (options_.way == RendezvousOptions::Way::etcd) {
      client.member.remedy =
          "check that most members of etcd run and can be reached from here, and that the node it "
          "names as the host can";
    } else if (options_.way == RendezvousOptions::Way::file) {
      client.member.remedy =
          "check that the node that the file names as the host runs and can be reached from here";
    }
    if (options_.join.lease > Duration::zero()) client.member.lease = options_.join.lease;
    client.member.others_may_host = others_may_host(options_);
    client.member.reach_timeout = options_.reach_timeout;
    client.member.seed = random_u64();
    client.job_id = options_.job_id;
    client.token = options_.token;
    // Not with etcd: its record names one host, so there is no next port to try.
    client.only_this_job = options_.way == RendezvousOptions::Way::known_host;
    client.advertised = advertised;
    client.clients = options_.clients;
    client.clients.local = std::make_shared<LocalUsers>();
    return client;
  }

  Handlers client_handlers() {
    Handlers on = handlers_;
    on.round = [this](const membership::Round& formed) {
      membership::Round round = formed;
      master_addr_ = formed.master_addr;
      if (options_.fixed_master_addr) round.master_addr = options_.host;
      handlers_.round(round);
    };
    return on;
  }

  HostFinder::Handlers finder_handlers() {
    return {[this](HostFinder::Post post) { host(std::move(post)); }, [this] { step_down(); },
            [this](membership::Epoch epoch) {
              if (coordinator_ != nullptr) coordinator_->grant(epoch);
            },
            [this] {
              if (coordinator_ != nullptr) coordinator_->grant_ending();
            },
            [this](const std::string& line) { handlers_.say(line); }};
  }

  // Called by the finder while it dials. Other agents may connect from now on.
  void host(HostFinder::Post post) {
    CHECK(coordinator_ == nullptr);
    Coordinator::Options hosting = hosting_;
    const uint64_t instance = post.instance != 0 ? post.instance : random_u64();
    hosting.membership.host_instance = instance;
    hosting.membership.past = std::move(post.past);
    hosting.hint = host_hint(options_, post.endpoint_here);
    if (options_.fixed_master_addr && post.endpoint_here && !is_own_address(*post.endpoint_here)) {
      handlers_.say(fmt::format(
          "{} is no address of this machine: its own workers and other nodes can use it as "
          "MASTER_ADDR only if the network leads it here; if it does not, give all nodes an "
          "address of this machine",
          options_.host));
    } else if (options_.fixed_master_addr && !post.endpoint_here) {
      handlers_.say(fmt::format(
          "the name '{}' has no address here, but the workers get it as MASTER_ADDR; check its "
          "spelling, or wait until it is registered",
          options_.host));
    }
    if (others_may_host(options_)) {
      hosting.round_wanted = [this, instance](const membership::Formed& round) {
        finder_->want_round(round, instance);
      };
      hosting.ending_wanted = [this](const membership::End& end) { finder_->want_ending(end); };
    }
    coordinator_ = std::make_unique<Coordinator>(io_, std::move(post.listener), std::move(hosting));
  }

  // Another node hosts: disconnects the agents here, ours too, so that they look for it.
  void step_down() {
    coordinator_.reset();
    if (std::exchange(leaves_host_, false)) closed_();
  }

  // The machine bounds how long a goodbye takes; the count guards against a bug in that.
  void wait_for_goodbye(int looks_left) {
    if (client_.is_over() || looks_left == 0) return leave_host();
    call_after(goodbye_timer_, kGoodbyeLook,
               [this, looks_left] { wait_for_goodbye(looks_left - 1); });
  }

  void leave_host() {
    if (coordinator_ == nullptr) return closed_();
    leaves_host_ = true;
    coordinator_->wait_until_idle([this] {
      leaves_host_ = false;
      finder_->retire(closed_);
    });
  }

  boost::asio::io_context& io_;
  RendezvousOptions options_;
  Handlers handlers_;
  Coordinator::Options hosting_;  // Used if this node hosts.
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<HostFinder> finder_;
  MemberClient client_;
  boost::asio::steady_timer goodbye_timer_;
  bool leaves_host_ = false;
  std::function<void()> closed_;
  std::string master_addr_;  // Where the newest round's members reach the host.
  bool begun_ = false;
};

Result<std::unique_ptr<Rendezvous>> make_joined(boost::asio::io_context& io,
                                                const RendezvousOptions& options,
                                                Rendezvous::Handlers handlers) {
  if (options.way == RendezvousOptions::Way::endpoint && options.port == 0 &&
      !options.is_host.value_or(false)) {
    return fail(ExitCode::usage,
                "an endpoint that several nodes share needs a port, for instance " + options.host +
                    ":29400");
  }
  const Result<std::string> advertised = advertised_address(options);
  if (!advertised) return tl::unexpected(advertised.error());
  return std::make_unique<JoinedRendezvous>(io, options, std::move(handlers), *advertised);
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> make_rendezvous(boost::asio::io_context& loop,
                                                    RendezvousOptions options,
                                                    Rendezvous::Handlers handlers) {
  const Result<bool> brought_up = bring_loopback_up();
  if (!brought_up && options.way == RendezvousOptions::Way::solo)
    return tl::unexpected(brought_up.error());
  if (!brought_up) handlers.say(brought_up.error().message);
  if (brought_up.value_or(false))
    handlers.say("the loopback interface was down here; muster has brought it up");
  return ThreadedRendezvous::start(
      loop, std::move(handlers), [&options](boost::asio::io_context& io, Rendezvous::Handlers on) {
        return options.way == RendezvousOptions::Way::solo
                   ? SoloRendezvous::make(io, options, std::move(on))
                   : make_joined(io, options, std::move(on));
      });
}

}  // namespace muster

#include "rendezvous/net/resolve.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <netdb.h>

#include "rendezvous/base/process_limit.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

std::atomic<int> lookups_running{0};

NetError resolver_error(std::string message) {
  return {NetFailure::resolver, std::move(message)};
}

NetError lookup_error(const std::string& host, int code, int system_error) {
  const bool unknown = code == EAI_NONAME || code == EAI_NODATA || code == EAI_ADDRFAMILY;
  if (unknown)
    return {NetFailure::name_unknown,
            fmt::format("the name '{}' has no address; check its spelling, or wait until it is "
                        "registered",
                        host)};
  const char* const reason = code == EAI_SYSTEM ? std::strerror(system_error) : gai_strerror(code);
  return resolver_error(fmt::format(
      "the name '{}' could not be looked up: {}; check /etc/resolv.conf and the name server", host,
      reason));
}

NetResult<std::vector<IpAddress>> ask_getaddrinfo(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0) return tl::unexpected(lookup_error(host, code, errno));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<IpAddress> addresses;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    if (const auto address = SocketAddress::from_sockaddr(one->ai_addr))
      addresses.push_back(address->ip);
  }
  if (addresses.empty()) return tl::unexpected(lookup_error(host, EAI_NODATA, 0));
  return addresses;
}

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

// Returns the error, or "" once the thread runs.
std::string start_detached(std::function<void()> work) {
  try {
    quiet_thread(std::move(work)).detach();
  } catch (const std::system_error& error) {
    return call_failed("starting a thread", error.code().value());
  }
  return "";
}

std::vector<SocketAddress> with_port(const std::vector<IpAddress>& ips, uint16_t port) {
  std::vector<SocketAddress> addresses;
  for (const IpAddress& ip : ips)
    addresses.push_back({ip, port});
  return addresses;
}

}  // namespace

NetResult<std::vector<IpAddress>> look_up_by_getaddrinfo(const std::string& host) {
  // No AI_ADDRCONFIG: it hides ::1 on machines that have no other IPv6 address. If a family does
  // not work, its connection fails at once and happy eyeballs tries the other.
  return ask_getaddrinfo(host, 0);
}

std::optional<IpAddress> numeric_address(const std::string& host) {
  if (const std::optional<IpAddress> address = IpAddress::parse(host)) return address;
  // parse() handles all but a scope given by name.
  const std::string bare = without_brackets(host);
  if (bare.find('%') == std::string::npos) return std::nullopt;
  const auto scoped = ask_getaddrinfo(bare, AI_NUMERICHOST);
  return scoped ? std::optional(scoped->front()) : std::nullopt;
}

// The state shared by a thread and the loop. `io` is null once the answer is not needed; the mutex
// keeps the loop from being destroyed while the thread posts to it.
struct LookUpSlot {
  std::mutex mutex;
  boost::asio::io_context* io = nullptr;  // guarded by mutex
};

// Used by the loop only. The timer's pending wait keeps the loop running during the look-up.
struct Resolver::Pending {
  Pending(boost::asio::io_context& io, std::string name, uint16_t number, Callback done)
      : timer(io), host(std::move(name)), port(number), callback(std::move(done)) {
    slot->io = &io;
  }

  void finish(const NetResult<std::vector<IpAddress>>& answer) {
    if (!callback) return;
    const Callback call = std::exchange(callback, nullptr);
    abandon();
    call(answer.map([this](const auto& ips) { return with_port(ips, port); }));
  }

  void abandon() {
    callback = nullptr;
    timer.cancel();
    const std::lock_guard lock(slot->mutex);
    slot->io = nullptr;
  }

  std::shared_ptr<LookUpSlot> slot = std::make_shared<LookUpSlot>();
  boost::asio::steady_timer timer;
  std::string host;
  uint16_t port;
  Callback callback;
};

Resolver::Resolver(boost::asio::io_context& io, LookUp look_up)
    : io_(io), look_up_(std::move(look_up)) {}

Resolver::~Resolver() {
  for (const std::shared_ptr<Pending>& pending : pending_)
    pending->abandon();
}

void Resolver::resolve(const std::string& host, uint16_t port, Deadline deadline,
                       Callback callback) {
  std::erase_if(pending_, [](const auto& one) { return one->callback == nullptr; });
  const auto pending = std::make_shared<Pending>(io_, host, port, std::move(callback));
  pending_.push_back(pending);
  if (const std::optional<IpAddress> address = numeric_address(host)) {
    boost::asio::post(io_, [pending, ip = *address] { pending->finish(std::vector{ip}); });
    return;
  }
  call_at(pending->timer, deadline, [pending] {
    pending->finish(tl::unexpected(resolver_error(
        fmt::format("the name '{}' could not be looked up in time; check /etc/resolv.conf and "
                    "the name server",
                    pending->host))));
  });
  start_thread(pending);
}

void Resolver::start_thread(const std::shared_ptr<Pending>& pending) {
  const auto refuse = [&](std::string message) {
    lookups_running.fetch_sub(1);
    boost::asio::post(io_, [pending, error = resolver_error(std::move(message))] {
      pending->finish(tl::unexpected(error));
    });
  };
  if (lookups_running.fetch_add(1) >= kLookupsMax) {
    refuse(
        fmt::format("the name '{}' was not looked up: {} earlier look-ups are still without an "
                    "answer; check the name server",
                    pending->host, kLookupsMax));
    return;
  }
  auto work = [slot = pending->slot, host = pending->host, look_up = look_up_,
               asker = std::weak_ptr(pending)] {
    const NetResult<std::vector<IpAddress>> answer = look_up(host);
    lookups_running.fetch_sub(1);
    const std::lock_guard lock(slot->mutex);
    if (slot->io == nullptr) return;
    boost::asio::post(*slot->io, [asker, answer] {
      if (const std::shared_ptr<Pending> waiting = asker.lock()) waiting->finish(answer);
    });
  };
  if (const std::string problem = start_detached(std::move(work)); !problem.empty())
    refuse(
        fmt::format("no thread for looking up '{}': {}; raise the limit of processes (ulimit -u)",
                    pending->host, problem));
}

}  // namespace muster

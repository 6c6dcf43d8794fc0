#include "rendezvous/net/socket_owner.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/listening_socket.h"

namespace muster {
namespace {

// States of the kernel's tcp_states.h.
constexpr uint8_t kEstablished = 1;
constexpr uint8_t kTimeWait = 6;
constexpr uint8_t kListens = 10;
constexpr int kSearchesMax = 20;  // Per second.
// The kernel answers before send() returns; the limit keeps anything else from stalling the store.
constexpr timeval kAnswerLimit{.tv_sec = 0, .tv_usec = 200'000};
constexpr uid_t kOverflowUid = 65534;

struct DiagRequest {
  nlmsghdr head{};
  inet_diag_req_v2 body{};
};

void put_ends(const SocketAddress& source, const SocketAddress& destination, inet_diag_sockid& id) {
  const auto put = [&](const SocketAddress& end, __be32* address, __be16& port) {
    sockaddr_storage raw{};
    end.to_sockaddr(raw);
    port = htons(end.port);
    if (end.ip.is_v6()) {
      const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&raw);
      std::memcpy(address, &v6->sin6_addr, sizeof v6->sin6_addr);
      if (v6->sin6_scope_id != 0) id.idiag_if = v6->sin6_scope_id;
    } else {
      std::memcpy(address, &reinterpret_cast<const sockaddr_in*>(&raw)->sin_addr, sizeof(in_addr));
    }
  };
  put(source, id.idiag_src, id.idiag_sport);
  put(destination, id.idiag_dst, id.idiag_dport);
}

SocketAddress own_end(const inet_diag_msg& found) {
  sockaddr_storage raw{};
  raw.ss_family = found.idiag_family;
  if (found.idiag_family == AF_INET6) {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&raw);
    v6->sin6_port = found.id.idiag_sport;
    std::memcpy(&v6->sin6_addr, found.id.idiag_src, sizeof v6->sin6_addr);
  } else {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&raw);
    v4->sin_port = found.id.idiag_sport;
    std::memcpy(&v4->sin_addr, found.id.idiag_src, sizeof v4->sin_addr);
  }
  return SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&raw)).value_or(SocketAddress{});
}

// True if `uid` identifies a user in this user namespace. The kernel shows kOverflowUid also for
// users without a number here, unless all have one.
bool has_number(uid_t uid) {
  if (uid != kOverflowUid) return true;
  std::ifstream map("/proc/self/uid_map");
  uint64_t inside = 0, outside = 0, count = 0;
  return map >> inside >> outside >> count && inside == 0 && outside == 0 && count >= UINT32_MAX;
}

struct OwnConnection {
  UniqueFd listener, client, server;
};

Result<OwnConnection> connect_to_itself() {
  const auto refused = [](int error) {
    return fail(ExitCode::environment,
                fmt::format("a connection to 127.0.0.1: {}", std::strerror(error)));
  };
  auto listening = listen_on({{IpAddress::loopback_v4(), 0}});
  if (!listening) return fail(ExitCode::environment, listening.error().message);
  OwnConnection own;
  own.listener = std::move(listening->front().fd);
  own.client = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage raw{};
  const socklen_t size = listening->front().address.to_sockaddr(raw);
  if (!own.client || ::connect(own.client.get(), reinterpret_cast<sockaddr*>(&raw), size) != 0)
    return refused(errno);
  own.server = UniqueFd(::accept4(own.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!own.server) return refused(errno);
  return own;
}

}  // namespace

bool is_established(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         info.tcpi_state == kEstablished;
}

Result<SocketOwners> SocketOwners::open() {
  UniqueFd netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink)
    return fail(ExitCode::environment, fmt::format("sock_diag: {}", std::strerror(errno)));
  ::setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerLimit, sizeof kAnswerLimit);
  const Result<OwnConnection> own = connect_to_itself();
  if (!own) return tl::unexpected(own.error());
  SocketOwners owners(std::move(netlink));
  const int client = own->client.get();
  if (owners.owner_of(local_address_of(client), remote_address_of(client)) == ::geteuid())
    return owners;
  return fail(ExitCode::environment, "sock_diag: it does not know this process's own connection");
}

std::optional<uid_t> SocketOwners::owner_of(const SocketAddress& client,
                                            const SocketAddress& server) {
  Ends ends;
  const bool is_v6 = client.ip.is_v6();
  if (!ask(client, server, is_v6 ? AF_INET6 : AF_INET, /*any_server=*/false, ends))
    return std::nullopt;
  if (!ends.is_there) {
    // With address translation, the client's end has another address for the server. It is one of
    // the ends at the client's address, so all of these must belong to one user, in any state. IPv6
    // sockets may speak IPv4, hence both families.
    if (!may_search()) return std::nullopt;
    if (!ask(client, server, AF_INET6, /*any_server=*/true, ends)) return std::nullopt;
    if (!is_v6 && !ask(client, server, AF_INET, /*any_server=*/true, ends)) return std::nullopt;
  }
  return owner_among(ends);
}

std::optional<uid_t> SocketOwners::direct_owner_of(const SocketAddress& client,
                                                   const SocketAddress& server) {
  Ends ends;
  const bool is_known = ask(client, server, client.ip.is_v6() ? AF_INET6 : AF_INET,
                            /*any_server=*/false, ends);
  return is_known ? owner_among(ends) : std::nullopt;
}

std::optional<uid_t> SocketOwners::owner_among(const Ends& ends) {
  const bool is_clear = ends.owners.size() == 1 && !ends.has_closed;
  if (!is_clear || !has_number(*ends.owners.begin())) return std::nullopt;
  return *ends.owners.begin();
}

// A search visits all connections of the machine, and any client can cause one.
bool SocketOwners::may_search() {
  const auto now = std::chrono::steady_clock::now();
  if (now >= searches_since_ + std::chrono::seconds(1)) {
    searches_since_ = now;
    searches_ = 0;
  }
  return ++searches_ <= kSearchesMax;
}

bool SocketOwners::ask(const SocketAddress& client, const SocketAddress& server, uint8_t family,
                       bool any_server, Ends& ends) {
  DiagRequest request;
  request.head.nlmsg_len = sizeof request;
  request.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.head.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | (any_server ? NLM_F_DUMP : 0));
  request.head.nlmsg_seq = ++sequence_;
  request.body.sdiag_family = family;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~(1U << kTimeWait | 1U << kListens);
  std::ranges::fill(request.body.id.idiag_cookie, INET_DIAG_NOCOOKIE);
  put_ends(client, server, request.body.id);
  if (any_server) request.body.id.idiag_dport = 0;  // A dump filters by ports only.
  if (::send(netlink_.get(), &request, sizeof request, 0) != sizeof request) return false;

  alignas(nlmsghdr) std::array<char, 32768> answer;
  for (;;) {
    const ssize_t got = ::recv(netlink_.get(), answer.data(), answer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    auto left = static_cast<unsigned>(got);
    const auto* head = reinterpret_cast<const nlmsghdr*>(answer.data());
    for (; NLMSG_OK(head, left); head = NLMSG_NEXT(head, left)) {
      if (head->nlmsg_seq != sequence_) continue;  // A late answer to an earlier request.
      if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY) return true;  // The end, or ENOENT.
      if (head->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) return false;
      const auto* const found = static_cast<const inet_diag_msg*>(NLMSG_DATA(head));
      const SocketAddress end = own_end(*found);
      const bool is_it = end.port == client.port && end.ip.bytes() == client.ip.bytes();
      if (is_it || !any_server) ends.is_there = true;
      // A socket that its process has closed belongs to uid 0 and has no inode.
      const bool is_open = found->idiag_inode != 0;
      const bool is_whole = is_open && (any_server || found->idiag_state == kEstablished);
      if (is_it && is_whole) ends.owners.insert(found->idiag_uid);
      if (is_it && !is_whole) ends.has_closed = true;
      if (!any_server) return true;
    }
  }
}

}  // namespace muster

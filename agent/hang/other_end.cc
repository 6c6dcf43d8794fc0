#include "agent/hang/other_end.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "agent/process/process_tree.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/process_sockets.h"

namespace muster::hang {
namespace {

constexpr size_t kTableBytesMax = size_t{1} << 20;
constexpr size_t kLinksMax = 4096;  // Per search: some 8 ms.

std::optional<uint64_t> inode_in(std::string_view target, std::string_view kind) {
  if (!target.starts_with(kind) || !target.ends_with(']')) return std::nullopt;
  target.remove_prefix(kind.size());
  return whole_number<uint64_t>(target.substr(0, target.size() - 1));
}

int flags_of(pid_t pid, const std::string& descriptor) {
  const std::string info = read_process_file(pid, ("fdinfo/" + descriptor).c_str());
  return whole_number<int>(trim(status_field(info, "\nflags:")), 8).value_or(O_RDWR);
}

// What a process may do with a pipe.
struct Access {
  bool reads = false;
  bool writes = false;
};

// The links of a process's open files, `left` at most.
void for_each_link(pid_t pid, size_t& left,
                   const std::function<bool(const std::string&, const std::string&)>& each) {
  for_each_open_file(std::to_string(pid), [&](const std::string& number, const std::string& link) {
    return left > 0 && left-- > 0 && each(number, link);
  });
}

std::map<std::string, Access> pipes_of(pid_t pid, size_t& left) {
  std::map<std::string, Access> pipes;
  for_each_link(pid, left, [&](const std::string& descriptor, const std::string& link) {
    if (!link.starts_with("pipe:[")) return true;
    const int flags = flags_of(pid, descriptor);
    Access& access = pipes[link];
    access.reads |= (flags & O_ACCMODE) != O_WRONLY;
    access.writes |= (flags & O_ACCMODE) != O_RDONLY;
    return true;
  });
  return pipes;
}

// A child of fork() may hold both ends as its parent does; only one that holds the other end alone
// is at it. Empty `target`: any pipe that the process can wait at.
OtherEnd end_of_pipe(pid_t process, std::string_view target, bool writes,
                     std::span<const pid_t> tree) {
  const auto is_at_one_end = [](const Access& access, bool writing) {
    return access.writes == writing && access.reads != writing;
  };
  size_t left = kLinksMax;
  const std::map<std::string, Access> own = pipes_of(process, left);
  for (const pid_t pid : std::views::reverse(tree)) {  // Children after their parents.
    if (pid == process) continue;
    for (const auto& [link, access] : pipes_of(pid, left)) {
      const auto waiting = own.find(link);
      const bool is_it = target.empty() || link == target;
      if (is_it && waiting != own.end() && is_at_one_end(waiting->second, writes) &&
          is_at_one_end(access, !writes))
        return {.process = pid};
    }
  }
  return {};
}

bool holds(pid_t pid, const std::string& link, size_t& left) {
  bool found = false;
  for_each_link(pid, left, [&](const std::string&, const std::string& one) {
    found = one == link;
    return !found;
  });
  return found;
}

// Children of fork() may hold the end as their parent does: the youngest one is the likeliest to be
// at it.
OtherEnd end_held_by(const std::string& link, pid_t process, std::span<const pid_t> tree,
                     const std::string& outside) {
  size_t left = kLinksMax;
  for (const pid_t pid : std::views::reverse(tree)) {
    if (pid != process && holds(pid, link, left)) return {.process = pid};
  }
  const bool is_unknown = holds(process, link, left) || left == 0;
  return is_unknown ? OtherEnd{} : OtherEnd{.outside = outside};
}

struct PeerRequest {
  nlmsghdr head{};
  unix_diag_req body{};
};

// The inode of the peer of a Unix socket; 0: it has none. nullopt: it is no Unix socket of this
// network namespace.
std::optional<uint64_t> unix_peer(uint64_t inode) {
  PeerRequest request;
  request.head.nlmsg_len = sizeof request;
  request.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.head.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = AF_UNIX;
  request.body.udiag_states = UINT32_MAX;
  request.body.udiag_ino = static_cast<uint32_t>(inode);
  request.body.udiag_show = UDIAG_SHOW_PEER;
  std::ranges::fill(request.body.udiag_cookie, UINT32_MAX);
  const UniqueFd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  // The kernel answers before send() returns; the limit keeps anything else from stalling.
  constexpr timeval kLimit{.tv_sec = 0, .tv_usec = 100'000};
  if (!netlink || setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &kLimit, sizeof kLimit) != 0 ||
      send(netlink.get(), &request, sizeof request, 0) != sizeof request)
    return std::nullopt;
  alignas(nlmsghdr) std::array<char, 4096> answer;
  const ssize_t got = recv(netlink.get(), answer.data(), answer.size(), 0);
  const auto* const head = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (got <= 0 || !NLMSG_OK(head, static_cast<unsigned>(got)) ||
      head->nlmsg_type != SOCK_DIAG_BY_FAMILY)
    return std::nullopt;
  const auto* const found = static_cast<const unix_diag_msg*>(NLMSG_DATA(head));
  auto left = head->nlmsg_len - NLMSG_LENGTH(sizeof *found);
  for (const auto* part = reinterpret_cast<const nlattr*>(found + 1);
       left >= sizeof *part && part->nla_len >= sizeof *part && part->nla_len <= left;) {
    if (part->nla_type == UNIX_DIAG_PEER) return *reinterpret_cast<const uint32_t*>(part + 1);
    const size_t size = std::min<size_t>(NLA_ALIGN(part->nla_len), left);
    left -= static_cast<unsigned>(size);
    part = reinterpret_cast<const nlattr*>(reinterpret_cast<const char*>(part) + size);
  }
  return 0;
}

OtherEnd end_of_tcp(std::string_view link, pid_t process, std::span<const pid_t> tree) {
  std::vector<TcpEntry> all;
  for (const char* const name : {"net/tcp", "net/tcp6"}) {
    const std::string table = read_process_file(process, name, kTableBytesMax);
    std::ranges::move(parse_tcp_table(table), std::back_inserter(all));
  }
  const auto own = std::ranges::find(all, link, &TcpEntry::link);
  if (own == all.end() || own->listens) return {};
  const auto peer = std::ranges::find_if(all, [&](const TcpEntry& other) {
    return other.local == own->remote && other.remote == own->local;
  });
  const std::string outside = own->remote.to_string();
  return peer == all.end() ? OtherEnd{.outside = outside}
                           : end_held_by(peer->link, process, tree, outside);
}

}  // namespace

OtherEnd other_end(pid_t process, std::string_view target, bool writes,
                   std::span<const pid_t> tree) {
  if (target.empty() || target.starts_with("pipe:["))
    return end_of_pipe(process, target, writes, tree);
  const std::optional<uint64_t> inode = inode_in(target, "socket:[");
  if (!inode) return {};
  const std::optional<uint64_t> peer = unix_peer(*inode);
  if (!peer) return end_of_tcp(target, process, tree);
  return *peer == 0
             ? OtherEnd{}
             : end_held_by(fmt::format("socket:[{}]", *peer), process, tree, "another process");
}

bool is_sole_holder(pid_t process, const std::string& target, std::span<const pid_t> tree) {
  const std::optional<uint64_t> socket = inode_in(target, "socket:[");
  const uint64_t peer = socket ? unix_peer(*socket).value_or(0) : 0;
  if (peer == 0 && !target.starts_with("pipe:[")) return false;
  const std::string link = peer == 0 ? target : fmt::format("socket:[{}]", peer);
  size_t left = 8 * kLinksMax;  // A whole job's.
  // nullopt: its files are hidden, or too many.
  const auto holds_other_end = [&](pid_t pid) -> std::optional<bool> {
    bool found = false;
    const bool is_shown = for_each_open_file(
        std::to_string(pid), [&](const std::string& descriptor, const std::string& one) {
          found = one == link && (peer != 0 || (flags_of(pid, descriptor) & O_ACCMODE) != O_RDONLY);
          return !found && --left > 0;
        });
    return is_shown && left > 0 ? std::optional(found) : std::nullopt;
  };
  return holds_other_end(process) == true && std::ranges::all_of(tree, [&](pid_t pid) {
           return pid == process || holds_other_end(pid) == false;
         });
}

}  // namespace muster::hang

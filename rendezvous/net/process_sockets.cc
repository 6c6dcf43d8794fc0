#include "rendezvous/net/process_sockets.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include <netinet/in.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

// Reads "0100007F:1F90": words of four bytes in this machine's byte order, and a port.
std::optional<SocketAddress> parse_end(std::string_view end) {
  const size_t digits = end.find(':');
  if (digits != 8 && digits != 32) return std::nullopt;
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; 8 * i < digits; ++i) {
    const auto word = whole_number<uint32_t>(end.substr(8 * i, 8), 16);
    if (!word) return std::nullopt;
    words[i] = *word;
  }
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {words[0]}, .sin_zero = {}};
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  std::memcpy(&v6.sin6_addr, words.data(), sizeof words);
  auto address = SocketAddress::from_sockaddr(digits == 8 ? reinterpret_cast<sockaddr*>(&v4)
                                                          : reinterpret_cast<sockaddr*>(&v6));
  const auto port = whole_number<uint16_t>(end.substr(digits + 1), 16);
  if (!address || !port) return std::nullopt;
  address->port = *port;
  return address;
}

}  // namespace

std::vector<TcpEntry> parse_tcp_table(std::string_view table) {
  std::vector<TcpEntry> sockets;
  for (const std::string_view line : split(table, '\n')) {
    // sl local remote state tx:rx tr:when retransmits uid timeout inode ...
    std::vector<std::string_view> words = split(line, ' ');
    std::erase(words, "");
    if (words.size() < 10) continue;
    const auto local = parse_end(words[1]);
    const auto remote = parse_end(words[2]);
    constexpr std::string_view kListen = "0A";
    if (local && remote)
      sockets.push_back(
          {*local, *remote, words[3] == kListen, "socket:[" + std::string(words[9]) + "]"});
  }
  return sockets;
}

bool for_each_open_file(const std::string& process,
                        const std::function<bool(const std::string&, const std::string&)>& each) {
  std::error_code hidden;
  std::filesystem::directory_iterator at("/proc/" + process + "/fd", hidden);
  for (std::error_code error = hidden; !error && at != std::filesystem::directory_iterator();
       at.increment(error)) {
    std::error_code gone;
    if (!each(at->path().filename(), std::filesystem::read_symlink(at->path(), gone))) break;
  }
  return !hidden;
}

}  // namespace muster

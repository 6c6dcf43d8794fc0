#include "rendezvous/net/first_bytes.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

// PyTorch's VALIDATE: operation 0 and the magic number 0x3C85F7CE in little-endian order.
constexpr std::string_view kStoreHello("\0\xce\xf7\x85\x3c", 5);
// PyTorch sent the magic before every operation for some months of 2023.
constexpr std::string_view kStoreMagic = kStoreHello.substr(1);

bool is_prefix_of(std::string_view bytes, std::string_view whole) {
  return whole.starts_with(bytes.substr(0, whole.size()));
}

bool is_http(std::string_view bytes) {
  constexpr std::array<std::string_view, 9> kMethods = {
      "GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "CONNECT ", "PATCH ", "PRI * "};
  return std::any_of(kMethods.begin(), kMethods.end(),
                     [&](std::string_view method) { return bytes.starts_with(method); });
}

// Every TCPStore operation begins with an operation code and a 64-bit key length.
bool is_store_operation(std::string_view bytes) {
  if (bytes.size() < 9 || static_cast<unsigned char>(bytes[0]) > 18) return false;
  const std::string_view high = bytes.substr(3, 6);
  return high.find_first_not_of('\0') == std::string_view::npos;
}

std::string printable_first_line(std::string_view bytes) {
  return printable(bytes.substr(0, bytes.find_first_of("\r\n")), 60);
}

std::string hex_of_first_bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 8))
    text += fmt::format("{}{:02x}", text.empty() ? "" : " ", static_cast<unsigned char>(c));
  return text;
}

}  // namespace

Caller who_calls(std::string_view bytes, std::string_view agent_magic) {
  if (bytes.empty()) return Caller::unknown_yet;
  if (bytes[0] == '\0') {
    if (!is_prefix_of(bytes, kStoreHello)) return Caller::stranger;
    return bytes.size() < kStoreHello.size() ? Caller::unknown_yet : Caller::store_client;
  }
  if (bytes.starts_with(agent_magic)) return Caller::agent;
  if (agent_magic.starts_with(bytes)) return Caller::unknown_yet;
  if (!is_prefix_of(bytes, kProbeMagic)) return Caller::stranger;
  return bytes.size() < kProbeBytes ? Caller::unknown_yet : Caller::probe;
}

std::string describe_stranger(std::string_view bytes) {
  if (is_http(bytes))
    return fmt::format("a web browser or other HTTP client ({})", printable_first_line(bytes));
  if (bytes.starts_with("\x16\x03")) return "a TLS client";
  if (bytes.starts_with("SSH-"))
    return fmt::format("an ssh client ({})", printable_first_line(bytes));
  if (bytes.starts_with(kStoreMagic) || is_store_operation(bytes))
    return "a store client of a PyTorch before 2.2, which speaks another protocol";
  if (bytes.empty()) return "a client that sent nothing";
  return fmt::format("a client of an unknown protocol (first bytes {})", hex_of_first_bytes(bytes));
}

}  // namespace muster

// The record that a host writes into the file at which a job meets: which host it is and where it
// can be reached. A few lines of text, so that people can read it. The beat is at a fixed offset,
// because its owner overwrites it in place: a file that has replaced it is never touched. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/address.h"

namespace muster {

struct HostRecord {
  uint64_t beat = 0;      // Grows while the host is alive.
  uint64_t instance = 0;  // Random; never 0.
  std::string machine;  // Boot and network namespace: on the same one, a refusal is proof of death.
  std::string claim;    // Name of the file with which it won; empty: the record's own.
  std::string host_name;  // For people.
  std::vector<SocketAddress> addresses;

  friend bool operator==(const HostRecord&, const HostRecord&) = default;
};

inline constexpr std::string_view kRecordHead = "muster-rendezvous 1\nbeat ";
inline constexpr size_t kRecordBytesMax = 65536;

std::string encode(const HostRecord& record);
// nullopt for anything else, including a partial record.
std::optional<HostRecord> decode_record(std::string_view text);
// 16 hex digits: the format of the beat after kRecordHead, and of the names of claims.
std::string sixteen_digits(uint64_t number);

}  // namespace muster

// What a host writes into the file at which a job meets: who it is and where it can be reached. A
// few lines of text, so that a person can read it. The beat stands at a fixed place, since its
// owner overwrites it in place: a file that was replaced meanwhile is never touched. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/address.h"

namespace muster {

struct HostRecord {
  uint64_t beat = 0;      // Grows while its host lives.
  uint64_t instance = 0;  // Random; never 0.
  std::string machine;    // Boot and network namespace: on the same one a refused call is proof.
  std::string claim;      // Name of the file by which it won; empty: the record's own.
  std::string host_name;  // For people.
  std::vector<SocketAddress> addresses;

  friend bool operator==(const HostRecord&, const HostRecord&) = default;
};

inline constexpr std::string_view kRecordHead = "muster-rendezvous 1\nbeat ";
inline constexpr size_t kRecordBytesMax = 65536;

std::string encode(const HostRecord& record);
// Nothing for anything else, half a record included.
std::optional<HostRecord> decode_record(std::string_view text);
// 16 digits: the beat as it stands behind kRecordHead, and names of claims.
std::string sixteen_digits(uint64_t number);

}  // namespace muster

// What a keeper (a shared file, etcd) holds of a job: its host's record (which host, where to reach
// it) and the job's (its newest round), from which the next host goes on. A few lines of text that
// people can read. In a file the beat is at a fixed offset, since its owner overwrites it in place.
// The owner does so through its open descriptor, so it never touches a file that has replaced its
// own. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/membership/membership.h"
#include "rendezvous/net/address.h"

namespace muster {

struct HostRecord {
  uint64_t beat = 0;          // Grows while the host is alive.
  uint64_t instance = 0;      // Random; never 0.
  membership::AgentId agent;  // The host's.
  std::string machine;  // Boot and network namespace: on the same one, a refusal is proof of death.
  std::string claim;    // File name PATH.after-X under which it was linked; empty: PATH itself.
  uint64_t entry = 0;   // X of this record in PATH.after-X; 0: use `instance`.
  std::string host_name;  // Shown to people.
  std::vector<SocketAddress> addresses;

  friend bool operator==(const HostRecord&, const HostRecord&) = default;
};

// The newest round of a job (epoch 0: none has formed yet), or how the job ended.
struct JobRecord : membership::Formed {
  uint64_t instance = 0;     // That of the host that formed it.
  membership::AgentId host;  // That host's agent.
  // For nodes that come when the host is gone; only why, the codes, host_name and text are kept.
  std::optional<membership::End> ending;

  bool has(const membership::AgentId& agent) const {
    return std::ranges::find(members, agent) != members.end();
  }
  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

inline constexpr std::string_view kRecordHead = "muster-rendezvous 1\nbeat ";
// A node takes 40 bytes.
inline constexpr size_t kJobRecordBytesMax = size_t{1} << 20;
inline constexpr size_t kRecordBytesMax = 65536 + kJobRecordBytesMax;  // A file holds both.

std::string encode(const HostRecord& record);
std::string encode(const JobRecord& record);
// Return nullopt for anything but a whole record.
std::optional<HostRecord> decode_record(std::string_view text);
std::optional<JobRecord> decode_job_record(std::string_view text);
// Returns 16 hex digits: the format of the beat after kRecordHead, and of the names of claims.
std::string sixteen_digits(uint64_t number);

}  // namespace muster

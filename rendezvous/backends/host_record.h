// What a keeper (a shared file, etcd) holds of a job: the record of its host, which host it is and
// where it can be reached, and that of its newest round, so that whoever hosts next goes on from
// there. A few lines of text, so that people can read them. In a file the beat is at a fixed
// offset, because its owner overwrites it in place: a file that has replaced it is never touched.
// Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/net/address.h"

namespace muster {

struct HostRecord {
  uint64_t beat = 0;          // Grows while the host is alive.
  uint64_t instance = 0;      // Random; never 0.
  membership::AgentId agent;  // Of the host's process.
  std::string machine;  // Boot and network namespace: on the same one, a refusal is proof of death.
  std::string claim;    // Name of the file with which it won; empty: the record's own.
  uint64_t entry = 0;   // Of a file: what names the next one; 0: the instance.
  std::string host_name;  // For people.
  std::vector<SocketAddress> addresses;

  friend bool operator==(const HostRecord&, const HostRecord&) = default;
};

// The newest round of a job, or how the job ended.
struct JobRecord {
  // How the job ended, as far as those need it who come too late for its host.
  struct Ending {
    membership::EndWhy why = membership::EndWhy::success;
    int exit_code = 0;
    int signal = 0;
    std::string host_name;  // Of the culprit.
    std::string text;       // One line.
    friend bool operator==(const Ending&, const Ending&) = default;
  };

  membership::Epoch epoch = 0;  // 0: no round has formed yet.
  uint64_t instance = 0;        // Of the host that formed it.
  membership::AgentId host;     // Of that host's process.
  int restarts = 0;
  int changes = 0;
  std::vector<membership::AgentId> members;  // By node rank.
  std::optional<Ending> ending;

  bool has(const membership::AgentId& agent) const {
    return std::ranges::find(members, agent) != members.end();
  }
  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

inline constexpr std::string_view kRecordHead = "muster-rendezvous 1\nbeat ";
// 40 bytes for each node.
inline constexpr size_t kJobRecordBytesMax = size_t{1} << 20;
inline constexpr size_t kRecordBytesMax = 65536 + kJobRecordBytesMax;  // In a file both are one.

std::string encode(const HostRecord& record);
std::string encode(const JobRecord& record);
// nullopt for anything else, including a partial record.
std::optional<HostRecord> decode_record(std::string_view text);
std::optional<JobRecord> decode_job_record(std::string_view text);
// 16 hex digits: the format of the beat after kRecordHead, and of the names of claims.
std::string sixteen_digits(uint64_t number);

}  // namespace muster

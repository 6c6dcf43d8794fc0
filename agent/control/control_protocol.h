// The protocol between musterctl and a running job: one JSON object per line over a Unix socket,
// one request per connection, answered by one line, or by many if logs are followed.
//
//   {"command":"status"}
//   {"command":"signal","signal":"USR1","ranks":[0,[8,15]]}
//   {"command":"logs","ranks":[3],"lines":20,"follow":true}
//   {"command":"records","ranks":[3],"lines":20}
//   {"command":"stacks","ranks":[3],"main_threads":true}
//   {"command":"dump"}
//   {"command":"variables"}      between agents
//
//   {"version":1,"ok":true,"status":{...}} or "logs":[{"rank":3,"text":"...","position":512}]
//       or "records":[{"rank":3,...}], with the fields of agent/hang/records.h
//       or "stacks":[{"rank":3,...}], with the fields of agent/hang/stacks.h
//       or "path":"/logs/job_x/dump_1.json"
//       and with each of them "unanswered":["one line",...], for what is missing
//       or "variables":[{"name":"LANG","value":"C","digest":4711}]
//   {"version":1,"ok":false,"error":"one line","code":121}
//
// A rank list holds ranks and inclusive [FIRST,LAST] ranges; without a list, all ranks are
// selected. Unknown fields are ignored, so that both ends can be extended. Replacement characters
// stand for text that is not UTF-8. Agents ask each other for records, stacks and variables in the
// same lines (agent/job/peers.h). Pure: neither end trusts the other, every size is bounded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <sys/types.h>

#include "agent/hang/records.h"
#include "agent/hang/stacks.h"
#include "rendezvous/base/error.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

// A running job's entry in the control folder (<pid>.json; control_folder.h).
struct JobEntry {
  pid_t pid = 0;
  std::string id;
  std::string program;
  double started = 0;  // Seconds since 1970.
  std::string socket_path;

  friend bool operator==(const JobEntry&, const JobEntry&) = default;
};

}  // namespace muster

namespace muster::control {

inline constexpr std::size_t kRequestBytesMax = 64 * 1024;
inline constexpr std::size_t kReplyBytesMax = 16 * 1024 * 1024;
inline constexpr std::size_t kRangesMax = 4096;
inline constexpr std::size_t kLogTextBytesMax = 64 * 1024;
inline constexpr int kLogLinesMax = 100000;
inline constexpr int kRecordLinesMax = 4096;

// Inclusive ranges of global ranks. Empty: all ranks.
using RankRanges = std::vector<std::pair<int, int>>;
bool selects(const RankRanges& ranges, int rank);

struct StatusRequest : Nothing {};
struct SignalRequest {
  int signal = 0;  // Sent as its name.
  RankRanges ranks;

  friend bool operator==(const SignalRequest&, const SignalRequest&) = default;
};
struct LogsRequest {
  RankRanges ranks;
  int lines = 10;  // How many of the last lines of each rank.
  bool follow = false;

  friend bool operator==(const LogsRequest&, const LogsRequest&) = default;
};
struct RecordsRequest {
  RankRanges ranks;
  int lines = 0;  // How many of the last calls of each rank.

  friend bool operator==(const RecordsRequest&, const RecordsRequest&) = default;
};
struct StacksRequest {
  RankRanges ranks;
  bool quiet = false;         // Disturb no rank; see agent/stacks/stack_child.h.
  bool main_threads = false;  // Leave out all others.

  friend bool operator==(const StacksRequest&, const StacksRequest&) = default;
};
struct DumpRequest : Nothing {};
struct VariablesRequest : Nothing {};
using Request = std::variant<StatusRequest, SignalRequest, LogsRequest, RecordsRequest,
                             StacksRequest, DumpRequest, VariablesRequest>;

using NodeStatus = membership::NodeLine;  // Known to the answering agent from the job's host.

struct JobStatus {
  std::string job_id;
  pid_t pid = 0;  // The launcher's on this node.
  std::string program;
  std::string phase;  // One line for people, from the machine that decides.
  int64_t epoch = 0;
  int world_size = 0;
  std::vector<NodeStatus> nodes;
  int restarts_used = 0;
  int max_restarts = 0;
  int membership_changes = 0;
  std::optional<int> max_membership_changes;  // Not set: no limit.
  double uptime_s = 0;
  std::string log_dir;  // Empty: no files.

  friend bool operator==(const JobStatus&, const JobStatus&) = default;
};

struct LogText {
  int rank = 0;
  std::string text;
  uint64_t position = 0;  // Bytes of this rank's output up to the end of `text`.

  friend bool operator==(const LogText&, const LogText&) = default;
};

// The answers for the selected ranks of all nodes.
template <typename Rank>
struct OfRanks {
  std::vector<Rank> ranks;
  std::vector<std::string> unanswered;  // A line for each missing rank: why.

  friend bool operator==(const OfRanks&, const OfRanks&) = default;
};
using Records = OfRanks<RankRecords>;
using Stacks = OfRanks<RankStacks>;

// The file that was written (agent/job/hang_bundle.h).
struct Dump {
  std::string path;
  std::vector<std::string> unanswered;  // What is missing in it.

  friend bool operator==(const Dump&, const Dump&) = default;
};

// One variable of a node's workers, as other nodes may see it.
struct Variable {
  std::string name;
  std::optional<std::string> value;  // Not set: it may be a secret. A long one is cut.
  int digest = 0;                    // 16 bits of the whole value.

  friend bool operator==(const Variable&, const Variable&) = default;
};
using Variables = std::vector<Variable>;

struct Done : Nothing {};
using Reply =
    std::variant<Done, JobStatus, std::vector<LogText>, Records, Stacks, Dump, Variables, Error>;

// One line with its newline.
std::string encode(const Request& request);
// Log texts are cut to their last kLogTextBytesMax bytes; a line over kReplyBytesMax is an Error.
std::string encode(const Reply& reply);
// The object of one rank, without a newline.
std::string encode(const RankRecords& records);
std::string encode(const RankStacks& stacks);
// One line, without the socket's path, which follows from the file's.
std::string encode(const JobEntry& entry);
// {"version":1,"ok":true,"jobs":[...]}
std::string encode(std::span<const JobEntry> entries);
// Sets the fields that the line has.
void read_job_entry(std::string_view line, JobEntry& entry);

// `line` has no newline. Fails with ExitCode::usage and a message for the other end.
Result<Request> decode_request(std::string_view line);
// Fails with ExitCode::internal if the line does not follow this protocol.
Result<Reply> decode_reply(std::string_view line);

// "USR1", "SIGUSR1", "usr1" or "10".
std::optional<int> signal_by_name(std::string_view name);

}  // namespace muster::control

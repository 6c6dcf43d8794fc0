#include "agent/hang/nccl_ras.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "agent/report/wire_json.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

using wire::Json;

constexpr int kRasDepthMax = 16;  // NCCL's has 7; the library recurses when it prints.
constexpr size_t kProcessesTold = 4;
constexpr size_t kHostCharactersMax = 64;
constexpr int kInProgress = 7;

// Of ncclResult_t (nccl.h).
std::string nccl_result_text(int result) {
  constexpr const char* kNames[] = {
      "ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
      "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress"};
  const bool is_known = result >= 0 && result <= kInProgress;
  return is_known ? kNames[result] : fmt::format("ncclResult_t {}", result);
}

bool is_error(int result) {
  return result != 0 && result != kInProgress;
}

// One entry of `ranks` or `missing_ranks`.
struct RasRank {
  int rank = 0;  // In its communicator.
  std::string host;
  int pid = 0;
  int async_error = 0;
  int init_state = 0;
  bool is_unresponsive = false;
  bool is_considered_dead = false;

  std::string complaint() const {
    if (is_considered_dead) return "considered dead";
    if (is_unresponsive) return "not responding";
    if (is_error(async_error))
      return fmt::format("asynchronous error {}", nccl_result_text(async_error));
    if (is_error(init_state))
      return fmt::format("error {} in its initialization", nccl_result_text(init_state));
    return {};
  }
};

RasRank read_rank(const Json& json, bool is_missing, std::string& wrong) {
  constexpr int64_t kAny = wire::kCountMax;
  RasRank rank;
  wire::JsonReader reader(json, wrong);
  reader.number("rank", rank.rank, -1, kAny);
  reader.text("host", rank.host);
  reader.number("pid", rank.pid, -1, kAny);
  wire::JsonReader status(reader.at("status"), wrong);
  if (is_missing) {
    status.flag("unresponsive", rank.is_unresponsive);
    status.flag("considered_dead", rank.is_considered_dead);
  } else {
    status.number("init_state", rank.init_state, -kAny, kAny);
    status.number("async_error", rank.async_error, -kAny, kAny);
  }
  return rank;
}

// A process is in several communicators: it is told once, as a rank of the largest.
class Complaints {
 public:
  explicit Complaints(const std::vector<pid_t>& own_pids) : own_pids_(own_pids) {}

  // What it is not made of is named in `wrong`.
  void read(const Json& json, std::string& wrong) {
    wire::JsonReader(json, wrong).each("communicators", wire::kCountMax, [&](const Json& one) {
      wire::JsonReader communicator(one, wrong);
      int size = 0;
      communicator.number("size", size, 0, wire::kCountMax);
      for (const bool is_missing : {false, true}) {
        communicator.each(is_missing ? "missing_ranks" : "ranks", wire::kCountMax,
                          [&](const Json& rank) { add(read_rank(rank, is_missing, wrong), size); });
      }
    });
  }

  bool names_own() const { return own_pids_.empty() || names_own_; }

  std::string line() const {
    std::string line;
    for (const auto& [complaint, processes] : by_complaint_) {
      line += line.empty() ? "" : "; ";
      line += complaint + ": ";
      size_t told = 0;
      for (const auto& [process, place] : processes) {
        if (told == kProcessesTold) break;
        line += fmt::format("{}process {} on {} (rank {} of {})", told++ == 0 ? "" : ", ",
                            process.second, clean_line(process.first, kHostCharactersMax),
                            place.second, place.first);
      }
      if (told < processes.size()) line += fmt::format(" and {} more", processes.size() - told);
    }
    return line;
  }

 private:
  using HostAndPid = std::pair<std::string, int>;
  using SizeAndRank = std::pair<int, int>;

  void add(const RasRank& rank, int size) {
    names_own_ |= std::ranges::find(own_pids_, rank.pid) != own_pids_.end();
    const std::string complaint = rank.complaint();
    if (complaint.empty()) return;
    SizeAndRank& place = by_complaint_[complaint][{rank.host, rank.pid}];
    place = std::max(place, {size, rank.rank});
  }

  const std::vector<pid_t>& own_pids_;
  bool names_own_ = false;
  std::map<std::string, std::map<HostAndPid, SizeAndRank>> by_complaint_;
};

void leave_out_healthy(Json& json) {
  for (Json& communicator : json["communicators"]) {
    std::string wrong;
    Json ranks = Json::array();
    for (const Json& rank : communicator["ranks"]) {
      if (!read_rank(rank, /*is_missing=*/false, wrong).complaint().empty()) ranks.push_back(rank);
    }
    communicator["ranks"] = std::move(ranks);
  }
}

std::string member_of(std::string_view address, Json answer, std::string_view why_none) {
  Json member;
  member["address"] = address.empty() ? Json() : Json(wire::fitting_text(address, 256));
  member["answer"] = std::move(answer);
  member["why_none"] = why_none.empty() ? Json() : Json(clean_line(why_none));
  return wire::dump(member);
}

}  // namespace

RasWitness ras_silent(std::string_view address, std::string_view why_none) {
  return {"", member_of(address, {}, why_none)};
}

RasWitness ras_witness(std::string_view address, std::string_view answer, std::string_view fault,
                       const std::vector<pid_t>& own_pids) {
  const auto is_shallow = [](int depth, Json::parse_event_t, Json&) {
    return depth < kRasDepthMax;
  };
  Json json = Json::parse(answer.begin(), answer.end(), is_shallow, /*allow_exceptions=*/false);
  std::string wrong;
  Complaints complaints(own_pids);
  if (json.is_object()) complaints.read(json, wrong);
  const bool is_read = json.is_object() && wrong.empty();
  const bool is_strange = is_read && !complaints.names_own();
  if (is_strange) fault = "it names no process of this node: it may be another job's";
  RasWitness witness;
  if (is_read && !is_strange) witness.line = clean_line(complaints.line());
  if (is_read) witness.member = member_of(address, json, fault);
  if (witness.member.size() > kRasMemberBytesMax) {
    leave_out_healthy(json);
    witness.member = member_of(address, std::move(json), fault);
  }
  // A byte of a text may take 6 in JSON.
  if (!is_read || witness.member.size() > kRasMemberBytesMax)
    witness.member = member_of(address, wire::fitting_text(answer, kRasMemberBytesMax / 8), fault);
  return witness;
}

std::string encode_ras(const RasWitness& witness) {
  return witness.line + "\n" + witness.member + "\n";
}

RasWitness decode_ras(std::string_view address, std::string_view printed) {
  const std::vector<std::string_view> lines = split(printed, '\n');
  const bool is_whole = lines.size() == 3 && lines[1].size() <= kRasMemberBytesMax &&
                        Json::accept(lines[1].begin(), lines[1].end());
  if (!is_whole) return ras_silent(address, "the process that asks it has failed");
  return {clean_line(lines[0]), std::string(lines[1])};
}

}  // namespace muster::hang

#include "agent/control/musterctl_top.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/control/musterctl_text.h"
#include "agent/hang/records_text.h"
#include "agent/report/text.h"
#include "agent/report/wire_json.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr size_t kCallsNamed = 3;  // Per row.
constexpr size_t kRowsBeside = 4;  // The fixed lines, and the prompt's.
constexpr double kSecondsShownMax = 1e9;

const RankRecords* rank_in(const control::Records& records, int rank) {
  const auto found = std::ranges::find(records.ranks, rank, &RankRecords::rank);
  return found == records.ranks.end() ? nullptr : &*found;
}

// True if the same process recorded then and now.
bool is_same(const RankRecords& before, const RankRecords& now) {
  return before.pid == now.pid && before.owner == now.owner && before.recorded <= now.recorded &&
         !now.source.empty();
}

// How many calls the most advanced member of each group had made by `before`, by the group's id.
std::map<std::string, int64_t> leads(const control::Records& before, const control::Records& now) {
  std::map<std::string, int64_t> most;
  for (const RankRecords& rank : before.ranks) {
    const RankRecords* const same = rank_in(now, rank.rank);
    if (same == nullptr || !is_same(rank, *same)) continue;
    for (const GroupLine& group : rank.groups) {
      int64_t& called = most[group.id];
      called = std::max(called, group.called);
    }
  }
  return most;
}

// What a rank that makes no calls is in, and for how many seconds.
std::pair<std::string, double> standing(const RankRecords& rank) {
  const auto forming = std::ranges::find(rank.groups, GroupState::forming, &GroupLine::state);
  const bool is_pending = rank.current && rank.current->state == CallState::pending;
  if (!is_pending && forming != rank.groups.end()) {
    return {
        fmt::format("waits for the members of group '{}', {} in all", forming->name, forming->size),
        forming->state_ago_s};
  }
  if (!rank.current) return {"has called nothing yet", rank.attached_ago_s};
  const CallLine& call = *rank.current;
  const std::string shown = call_name(call) + (call.site.empty() ? "" : " at " + call.site);
  if (is_pending) return {(call.synchronous ? "in " : "in flight: ") + shown, call.called_ago_s};
  if (call.state == CallState::unknown) return {"in, or after, " + shown, call.called_ago_s};
  const std::string how =
      call.state == CallState::complete ? "" : fmt::format(" ({})", name_of(call.state));
  return {"after " + shown + how, call.called_ago_s - call.took_s.value_or(0)};
}

TopRank top_rank(const RankRecords& now) {
  TopRank top;
  top.rank = now.rank;
  top.pid = now.pid;
  if (now.source.empty()) {
    top.doing = now.summary;
    return top;
  }
  const auto [doing, seconds] = standing(now);
  top.doing = doing;
  top.for_s = std::clamp(seconds, 0.0, kSecondsShownMax);
  if (!now.sections.empty())
    top.doing += fmt::format("; in section '{}'", now.sections.back().name);
  if (!now.failure.empty()) top.doing += "; failed: " + now.failure;
  return top;
}

// Adds what the same process has done since `before`.
void put_progress(const RankRecords& before, const RankRecords& now,
                  const std::map<std::string, int64_t>& leads, double seconds, TopRank& top) {
  top.calls_per_s = static_cast<double>(now.recorded - before.recorded) / std::max(seconds, 1e-3);
  for (const GroupLine& group : now.groups) {
    const auto lead = leads.find(group.id);
    if (group.state != GroupState::ready || lead == leads.end() ||
        lead->second - group.called <= top.behind)
      continue;
    top.behind = lead->second - group.called;
    top.behind_in = group.name;
  }
  if (now.recorded == before.recorded || !now.current || !now.failure.empty()) return;
  top.for_s.reset();
  CallLine any_such = *now.current;
  any_such.ordinal = 0;
  top.current = call_name(any_such);
  top.doing = now.sections.empty() ? "" : fmt::format("in section '{}'", now.sections.back().name);
}

using Row = std::vector<TopRank>;

// The odd ones first: those behind, then those that make no calls, then the fewest.
std::vector<Row> folded(const std::vector<TopRank>& ranks) {
  std::map<std::tuple<int64_t, std::string, bool, std::string>, Row> by_state;
  for (const TopRank& rank : ranks)
    by_state[{rank.behind, rank.behind_in, rank.for_s.has_value(), rank.doing}].push_back(rank);
  std::vector<Row> rows;
  for (auto& [key, row] : by_state)
    rows.push_back(std::move(row));
  const auto order = [](const Row& row) {
    return std::tuple(-row.front().behind, !row.front().for_s, row.size(), row.front().rank);
  };
  std::ranges::sort(rows, {}, order);
  return rows;
}

std::string ranks_shown(const Row& row) {
  std::vector<int> ranks;
  for (const TopRank& rank : row)
    ranks.push_back(rank.rank);
  return rank_ranges(ranks, 4);
}

std::string rate_text(double rate) {
  return rate > 0 && rate < 10 ? fmt::format("{:.1f}", rate) : fmt::format("{:.0f}", rate);
}

std::string rates_shown(const Row& row) {
  double least = kSecondsShownMax;
  double most = 0;
  for (const TopRank& rank : row) {
    if (!rank.calls_per_s) return "-";
    least = std::min(least, *rank.calls_per_s);
    most = std::max(most, *rank.calls_per_s);
  }
  const std::string from = rate_text(least);
  const std::string to = rate_text(most);
  return from == to ? from : fmt::format("{}-{}", from, to);
}

std::string behind_shown(const TopRank& rank) {
  return rank.behind == 0 ? "-" : fmt::format("{} ('{}')", rank.behind, rank.behind_in);
}

std::string longest_shown(const Row& row) {
  if (!row.front().for_s) return "-";
  double longest = 0;
  for (const TopRank& rank : row)
    longest = std::max(longest, rank.for_s.value_or(0));
  return duration_text(from_seconds(longest));
}

// The calls that most ranks of the row make.
std::string calls_folded(const Row& row) {
  std::map<std::string, size_t> counts;
  for (const TopRank& rank : row)
    ++counts[rank.current];
  std::vector<std::pair<std::string, size_t>> calls(counts.begin(), counts.end());
  std::ranges::sort(calls, std::greater<>(), &std::pair<std::string, size_t>::second);
  const std::string more = calls.size() > kCallsNamed ? ", ..." : "";
  calls.resize(std::min(calls.size(), kCallsNamed));
  std::vector<std::string> names;
  for (const auto& [name, count] : calls)
    names.push_back(name);
  return fmt::format("calls {}{}", fmt::join(names, ", "), more);
}

std::string doing_shown(const Row& row) {
  const TopRank& first = row.front();
  if (first.current.empty()) return first.doing;
  return calls_folded(row) + (first.doing.empty() ? "" : "; " + first.doing);
}

std::string cut(std::string_view line, size_t columns) {
  size_t characters = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool continues = (static_cast<unsigned char>(line[i]) & 0xc0) == 0x80;
    if (!continues && ++characters > columns) return std::string(line.substr(0, i));
  }
  return std::string(line);
}

std::string heading(const control::JobStatus& status) {
  return fmt::format("job {} (pid {}): {}; {} on {}, restarts: {} of {}, up {}",
                     clean_line(status.job_id), status.pid, clean_line(status.phase),
                     counted(status.world_size, "rank"), counted(status.nodes.size(), "node"),
                     status.restarts_used, status.max_restarts, elapsed_text(status.uptime_s));
}

}  // namespace

std::vector<TopRank> top_ranks(const control::Records* before, const control::Records& now,
                               double seconds) {
  std::vector<TopRank> ranks;
  const auto lead = before == nullptr ? std::map<std::string, int64_t>() : leads(*before, now);
  for (const RankRecords& rank : now.ranks) {
    TopRank& top = ranks.emplace_back(top_rank(rank));
    const RankRecords* const then = before == nullptr ? nullptr : rank_in(*before, rank.rank);
    if (then != nullptr && is_same(*then, rank)) put_progress(*then, rank, lead, seconds, top);
  }
  return ranks;
}

std::string top_text(const control::JobStatus& status, const std::vector<TopRank>& ranks,
                     const std::vector<std::string>& unanswered, const Screen& screen) {
  const std::vector<Row> rows = folded(ranks);
  const size_t beside = kRowsBeside + unanswered.size();
  size_t shown = rows.size();
  if (screen.rows > 0 && shown + beside > screen.rows)
    shown = screen.rows > beside + 1 ? screen.rows - beside - 1 : 1;
  std::vector<std::vector<std::string>> cells{{"RANKS", "CALLS/S", "BEHIND", "FOR", "DOING"}};
  size_t hidden = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (i >= shown) {
      hidden += row.size();
      continue;
    }
    cells.push_back({ranks_shown(row), rates_shown(row), clean_line(behind_shown(row.front())),
                     longest_shown(row), clean_line(doing_shown(row))});
  }
  std::string text = heading(status) + "\n\n" + table_text(cells);
  if (hidden > 0)
    text += fmt::format("{} in {}\n", counted(hidden, "more rank"),
                        counted(rows.size() - shown, "row"));
  for (const std::string& line : unanswered)
    text += clean_line(line) + "\n";
  if (screen.columns == 0) return text;
  std::string fitting;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    fitting += cut(std::string_view(text).substr(begin, end - begin), screen.columns) + "\n";
    begin = end + 1;
  }
  return fitting;
}

std::string top_json(const control::JobStatus& status, const std::vector<TopRank>& ranks,
                     const std::vector<std::string>& unanswered) {
  using json = wire::Json;
  json object{{"version", 1},           {"ok", true},
              {"job", status.job_id},   {"phase", status.phase},
              {"ranks", json::array()}, {"unanswered", unanswered}};
  for (const TopRank& rank : ranks) {
    json line{{"rank", rank.rank},
              {"pid", rank.pid},
              {"behind", rank.behind},
              {"doing", doing_shown({rank})}};
    if (rank.calls_per_s) line["calls_per_s"] = *rank.calls_per_s;
    if (rank.for_s) line["for_s"] = *rank.for_s;
    if (!rank.behind_in.empty()) line["behind_in"] = rank.behind_in;
    object["ranks"].push_back(std::move(line));
  }
  return wire::dump(object) + "\n";
}

}  // namespace muster

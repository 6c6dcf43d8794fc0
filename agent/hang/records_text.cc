#include "agent/hang/records_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr size_t kLineShownMax = 1000;  // Characters of a line.
constexpr size_t kFailureMax = 200;
constexpr size_t kGroupLinesMax = 12;
constexpr const char* kNoRecorder =
    "no recorder attached (a program that uses no muster library, or that has made no group yet)";

int64_t json_number(uint64_t number) {
  return static_cast<int64_t>(
      std::min(number, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
}

double seconds_of(Duration duration) {
  return std::chrono::duration<double>(std::max(duration, Duration::zero())).count();
}

// The seconds may come from another process.
std::string seconds_text(double seconds) {
  constexpr double kLongest = 1e9;
  const double sane = std::isfinite(seconds) ? std::clamp(seconds, 0.0, kLongest) : 0.0;
  if (sane < 0.001) return fmt::format("{:.0f} us", sane * 1e6);
  if (sane < 0.1) return fmt::format("{:.1f} ms", sane * 1e3);
  return duration_text(Duration(static_cast<int64_t>(sane * 1e9)));
}

const char* source_name(ring::Source source) {
  constexpr const char* kNames[] = {"", "worker_lib", "python_hook", "nccl_plugin"};
  return kNames[static_cast<size_t>(source)];
}

const std::string& name_or_id(const RecordedGroup& group) {
  return group.name.empty() ? group.id : group.name;
}

// The first values are those of the ring.
static_assert(static_cast<int>(GroupState::closed) == static_cast<int>(ring::GroupState::closed));

GroupState group_state(const RecordedGroup& group) {
  const bool is_captured = group.calls_are_unknown && group.state == ring::GroupState::ready;
  return is_captured ? GroupState::captured : static_cast<GroupState>(group.state);
}

GroupLine group_line(const RecordedGroup& group, Instant now) {
  return {.name = name_or_id(group),
          .id = group.id,
          .ranks = group.ranks,
          .size = group.size,
          .own_rank = group.own_rank,
          .state = group_state(group),
          .called = json_number(group.called),
          .completed = json_number(group.completed),
          .state_ago_s = seconds_of(now - group.state_since),
          .called_ago_s = seconds_of(now - group.called_at)};
}

// A collective is also complete if a later one of its group is.
CallState call_state(const RecordedCall& call, const RecordedGroup* group, bool is_stale) {
  if (call.withdrawn) return CallState::withdrawn;
  if (call.failed) return CallState::failed;
  if (call.completed) return CallState::complete;
  if (group != nullptr && !is_message(call.call.kind) && call.ordinal <= group->completed)
    return CallState::complete;
  if (group == nullptr || group->state == ring::GroupState::closed) return CallState::abandoned;
  const bool is_unseen = group->is_on_device ? !call.started : is_stale;
  return is_unseen || group->completion_is_unknown ? CallState::unknown : CallState::pending;
}

std::string site_text(const RecordedCall& call) {
  if (!call.site.empty() || call.site_address == 0) return call.site;
  return fmt::format("{:#x}", call.site_address);
}

CallLine call_line(const RecordedCall& call, const RecordedGroup* group, bool is_stale,
                   Instant now) {
  CallLine line;
  if (group != nullptr) line.group = name_or_id(*group);
  line.ordinal = json_number(call.ordinal);
  line.operation = name_of(call.call.kind);
  line.call = describe(call.call);
  line.count = json_number(call.call.count);
  line.type = name_of(call.call.type);
  line.reduction = name_of(call.call.reduction);
  line.root = call.call.root;
  line.tag = call.tag;
  line.synchronous = call.call.is_synchronous;
  line.state = call_state(call, group, is_stale);
  line.called_ago_s = seconds_of(now - call.called);
  if (call.completed) line.took_s = seconds_of(*call.completed - call.called);
  line.site = site_text(call);
  return line;
}

bool is_pending(const CallLine& call) {
  return call.state == CallState::pending;
}

std::string at_site(const CallLine& call) {
  return call.site.empty() ? "" : " at " + call.site;
}

std::string called_from(const CallLine& call) {
  return call.site.empty() ? "" : ", called" + at_site(call);
}

std::string in_call(const CallLine& call, std::string_view how) {
  std::string text =
      fmt::format("{} {} for {}", how, call_name(call), seconds_text(call.called_ago_s));
  if (call.call != call.operation) text += ": " + call.call;
  return text + called_from(call);
}

std::string between_calls(const CallLine& last) {
  if (last.state == CallState::unknown) {
    return in_call(last, "between calls, or in") + "; whether it is complete cannot be seen now";
  }
  if (!last.took_s) {
    return fmt::format("between calls; last: {}, {}, called {} ago{}", call_name(last),
                       name_of(last.state), seconds_text(last.called_ago_s), at_site(last));
  }
  const bool good = last.state == CallState::complete;
  return fmt::format("between calls for {}; last: {}{}{}",
                     seconds_text(last.called_ago_s - *last.took_s), call_name(last),
                     good ? "" : fmt::format(", {}", name_of(last.state)), called_from(last));
}

// `calls` are oldest first; a caller waits in the first pending synchronous one.
std::optional<CallLine> current_call(const std::vector<CallLine>& calls) {
  if (calls.empty()) return std::nullopt;
  const auto first = std::ranges::find_if(calls, is_pending);
  if (first == calls.end()) return calls.back();
  const auto blocking = std::find_if(first, calls.end(), [](const CallLine& call) {
    return is_pending(call) && call.synchronous;
  });
  return blocking != calls.end() ? *blocking : *first;
}

std::string pending_text(const CallLine& current, const std::vector<CallLine>& calls) {
  if (current.synchronous) return in_call(current, "in");
  const auto count = std::ranges::count_if(calls, is_pending);
  if (count == 1) return in_call(current, "has in flight");
  return in_call(current, fmt::format("has {} calls in flight, the oldest", count));
}

// Describes what only the groups show: one that is forming, or a pending call without a record.
// Groups are read first, so a call's record may show it complete by now.
std::optional<std::string> group_text(const RankRecords& records) {
  for (const GroupLine& group : records.groups) {
    if (group.state == GroupState::forming) {
      return fmt::format("waits for the members of {}, {} in all, for {}", group_title(group.name),
                         group.size, seconds_text(group.state_ago_s));
    }
  }
  for (const GroupLine& group : records.groups) {
    const bool is_recorded = std::ranges::any_of(records.calls, [&](const CallLine& call) {
      return call.group == group.name && call.ordinal >= group.called;
    });
    if (group.called > group.completed && group.state == GroupState::ready && !is_recorded) {
      return fmt::format("has in flight #{} of {} for {}, which left no record", group.called,
                         group_title(group.name), seconds_text(group.called_ago_s));
    }
  }
  return std::nullopt;
}

std::string doing_text(const RankRecords& records) {
  const std::optional<CallLine>& current = records.current;
  if (current && is_pending(*current)) return pending_text(*current, records.calls);
  if (auto text = group_text(records)) return *std::move(text);
  if (current) return between_calls(*current);
  return fmt::format("no call yet; attached {} ago", seconds_text(records.attached_ago_s));
}

std::string rank_summary(const RankRecords& records) {
  std::string text = records.owner == 0 ? "records no more calls; " : "";
  text += doing_text(records);
  if (!records.sections.empty()) {
    const SectionLine& section = records.sections.back();
    text +=
        fmt::format("; in section '{}' for {}", section.name, seconds_text(section.entered_ago_s));
  }
  if (!records.failure.empty()) {
    text +=
        fmt::format("; {}failed {} ago: {}",
                    records.failed_group.empty() ? "" : group_title(records.failed_group) + " ",
                    seconds_text(records.failed_ago_s), clean_line(records.failure, kFailureMax));
  }
  return text;
}

void put_state(const RecordedState& state, Instant now, RankRecords& records) {
  records.source = source_name(state.source);
  records.owner = state.owner;
  records.attached_ago_s = seconds_of(now - state.attached);
  records.recorded = json_number(state.calls);
  records.dropped = json_number(state.dropped);
  records.groups_left_out = json_number(state.groups_left_out);
  records.garbage = json_number(state.garbage);
  for (const RecordedGroup& group : state.groups)
    records.groups.push_back(group_line(group, now));
  for (const RecordedSection& section : state.sections)
    records.sections.push_back({section.name, seconds_of(now - section.entered)});
  if (!state.failure) return;
  records.failure = state.failure->message;
  records.failed_ago_s = seconds_of(now - state.failure->at);
  if (const auto* const group = state.group(state.failure->group))
    records.failed_group = name_or_id(*group);
}

std::string group_shown(const GroupLine& group) {
  std::string text = fmt::format("{}: {}", group.name, counted(group.size, "rank"));
  const bool usual = group.ranks.empty() || group.ranks == fmt::format("0-{}", group.size - 1);
  if (!usual) text += fmt::format(" ({})", group.ranks);
  text += fmt::format(", {} called, {} complete", group.called, group.completed);
  return group.state == GroupState::ready ? text
                                          : fmt::format("{}, {}", text, name_of(group.state));
}

// Closed groups are only counted; of many others the first are shown.
std::string groups_shown(const std::vector<GroupLine>& groups) {
  std::string text;
  size_t shown = 0;
  size_t closed = 0;
  for (const GroupLine& group : groups) {
    if (group.state == GroupState::closed) {
      ++closed;
    } else if (shown++ < kGroupLinesMax) {
      text += (text.empty() ? "" : "; ") + group_shown(group);
    }
  }
  if (shown > kGroupLinesMax) text += fmt::format("; {} more", shown - kGroupLinesMax);
  if (closed > 0) text += fmt::format("{}{} closed", text.empty() ? "" : "; ", closed);
  return text;
}

std::string losses_shown(const RankRecords& rank) {
  std::string text;
  const auto add = [&text](int64_t count, const char* what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : "; ", count, what);
  };
  add(rank.dropped, "calls without a record");
  add(rank.groups_left_out, "groups that the recorder had no room for");
  add(rank.garbage, "entries that make no sense");
  return text;
}

std::string end_shown(const CallLine& call) {
  if (call.state == CallState::complete)
    return call.took_s ? "took " + seconds_text(*call.took_s) : "complete";
  const std::string state(name_of(call.state));
  return call.took_s ? fmt::format("{} after {}", state, seconds_text(*call.took_s)) : state;
}

std::string calls_shown(const std::vector<CallLine>& calls) {
  std::vector<std::vector<std::string>> rows;
  for (const CallLine& call : calls) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const std::string& cell :
         {fmt::format("  #{}", call.ordinal), call.group.empty() ? "(gone)" : call.group, call.call,
          seconds_text(call.called_ago_s) + " ago", end_shown(call), call.site})
      row.push_back(clean_line(cell));
  }
  return table_text(rows);
}

std::string line_shown(const std::string& text) {
  return text.empty() ? "" : "  " + clean_line(text, kLineShownMax) + "\n";
}

}  // namespace

std::string call_name(const CallLine& call) {
  return fmt::format("{}{} of {}", call.operation,
                     call.ordinal == 0 ? "" : fmt::format(" #{}", call.ordinal),
                     call.group.empty() ? "a group that is gone" : group_title(call.group));
}

RankRecords records_of(const RankRing& ring, Instant now, size_t calls_max) {
  RankRecords records;
  records.rank = ring.rank;
  records.pid = ring.pid;
  if (!ring.state) {
    records.summary = ring.why_none.empty() ? kNoRecorder : ring.why_none;
    return records;
  }
  put_state(*ring.state, now, records);
  const bool is_stale = completions_are_stale(*ring.state, now);
  for (const RecordedCall& call : ring.calls) {
    const RecordedGroup* const group = ring.state->group(call.group);
    records.calls.push_back(call_line(call, group, is_stale, now));
  }
  records.current = current_call(records.calls);
  records.summary = rank_summary(records);
  const size_t excess = records.calls.size() - std::min(records.calls.size(), calls_max);
  records.calls.erase(records.calls.begin(),
                      records.calls.begin() + static_cast<ptrdiff_t>(excess));
  return records;
}

std::string records_text(const std::vector<RankRecords>& ranks, bool details) {
  std::string text;
  for (const RankRecords& rank : ranks) {
    const bool other = rank.owner != 0 && rank.owner != rank.pid;
    const std::string by = other ? fmt::format(", recorded by pid {}", rank.owner) : "";
    text += fmt::format("rank {} (pid {}{}): {}\n", rank.rank, rank.pid, by,
                        clean_line(rank.summary, kLineShownMax));
    if (!details) continue;
    text += line_shown(groups_shown(rank.groups)) + line_shown(losses_shown(rank)) +
            calls_shown(rank.calls);
  }
  return text;
}

}  // namespace muster

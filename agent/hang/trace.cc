#include "agent/hang/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/base/steady_now.h"

namespace muster::hang {
namespace {

constexpr mode_t kTraceMode = 0644;
constexpr size_t kRowsMax = 64;          // Per rank; further groups share the last one.
constexpr size_t kCallsOfLook = 16'384;  // About 0.1 s of the control loop.
constexpr size_t kSitesTraced = 1024;
constexpr auto kUnsure = std::chrono::seconds(1);

// Returns true if no end of the call is awaited: it has ended, a later one of its group is
// complete, the group is gone, or its completions cannot be seen.
bool is_over(const RecordedCall& call, const RecordedState& state) {
  if (call.completed) return true;
  const RecordedGroup* const group = state.group(call.group);
  if (group == nullptr || group->completion_is_unknown) return true;
  if (group->is_on_device && group->started == 0) return true;
  return !ring::is_message(call.call.kind) && call.ordinal <= group->completed;
}

Error cannot_write(const std::string& path) {
  return {ExitCode::environment,
          fmt::format("cannot write the trace {}: {}; name another file with --trace", path,
                      std::strerror(errno))};
}

}  // namespace

std::string Trace::path_of_node(const std::string& path, int node_rank, uint64_t round) {
  std::filesystem::path parts(path);
  const std::string extension = parts.extension().string();
  parts.replace_extension();
  const std::string later = round > 1 ? fmt::format(".round{}", round) : "";
  return fmt::format("{}.node{}{}{}", parts.string(), node_rank, later, extension);
}

std::optional<Error> Trace::defect_of_folder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0) return {};
  return cannot_write(path);
}

Result<std::unique_ptr<Trace>> Trace::open(const std::string& path, SiteNames& site_names,
                                           std::function<void(const std::string&)> say) {
  UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, kTraceMode));
  if (!fd) return tl::unexpected(cannot_write(path));
  std::unique_ptr<Trace> trace(new Trace(std::move(fd), path, site_names, std::move(say)));
  if (!trace->writer_.start())
    return fail(ExitCode::environment, "cannot start a thread that writes the trace");
  trace->writer_.put({trace_begin()});
  return trace;
}

Trace::Trace(UniqueFd fd, const std::string& path, SiteNames& site_names,
             std::function<void(const std::string&)> say)
    : site_names_(site_names),
      say_(std::move(say)),
      sink_(std::move(fd), path, "what the trace shows meanwhile"),
      writer_(sink_, [] {}) {
  // This machine's own clock, until a better one is known.
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  clock_.exchange(steady_now() - kUnsure, Instant(wall), steady_now() + kUnsure);
}

Trace::~Trace() {
  writer_.put({trace_end()});
  writer_.finish();
}

void Trace::put(std::string_view text) {
  writer_.put({text});
  const auto message = writer_.take_message();
  if (message) say_(message->substr(std::string_view("muster: ").size()));
}

void Trace::set_clock(Instant own, TraceTime there, Duration error) {
  clock_.exchange(own - error, Instant(Duration(there)), own + error);
  has_clock_ = true;
}

TraceTime Trace::time_of(Instant own) const {
  return clock_.host_time(own)->at.time_since_epoch().count();
}

void Trace::begin(int attempt) {
  ranks_.clear();
  ++attempt_;
  began_ = steady_now();
  if (attempt > 0) mark(fmt::format("attempt {}", attempt));
}

void Trace::started(int rank, pid_t pid, const std::string& name) {
  ranks_[rank].pid = pid;
  put(trace_rank(rank, name) + trace_instant(rank, time_of(steady_now()), "started"));
}

void Trace::ended(int rank, int code, const RingReader* reader) {
  Rank& one = ranks_[rank];
  if (const auto state = reader == nullptr ? std::nullopt : reader->state()) {
    has_clock_ = true;  // Node rank 0's would come too late.
    const auto is_unread = [&] {
      return one.position.generation != state->generation || one.position.next < state->calls;
    };
    for (size_t looks = 0; looks <= ranks_.size() && writer_.has_room() && is_unread(); ++looks)
      read(rank, *state, *reader);
    if (is_unread()) one.missing += state->calls - one.position.next;
  }
  const Instant now = steady_now();
  give_up_open(rank, one);
  std::string text = trace_instant(rank, time_of(now), fmt::format("ended with {}", code));
  if (const uint64_t unseen = one.missing + one.position.overwritten; unseen > 0) {
    const std::string missing =
        fmt::format("rank {} calls faster than the trace can be read: {} of its calls are missing",
                    rank, unseen);
    text += trace_instant(rank, time_of(now), missing);
    if (!std::exchange(said_missing_, true)) say_("trace: " + missing);
  }
  put(text);
}

void Trace::mark(std::string_view text) {
  put(trace_instant(-1, time_of(steady_now()), text));
}

// A slow file keeps the calls in the rings.
bool Trace::may_read() {
  const Instant now = steady_now();
  if (!has_clock_) {
    if (now - began_ < kClockPatience) return false;
    say_("the trace has this node's own clock: that of node rank 0 is not known");
    has_clock_ = true;
  }
  return writer_.has_room();
}

void Trace::read(int rank, const RecordedState& state, const RingReader& reader) {
  if (!may_read()) return;
  Rank& one = ranks_[rank];
  if (one.position.generation != state.generation) {
    one.missing += one.position.overwritten;
    one.position = {.generation = state.generation};
    give_up_open(rank, one);
  }
  finish_open(rank, one, state, reader);
  std::vector<RecordedCall> unnamed;
  std::vector<CallGlance> glances;
  const size_t most = std::max<size_t>(kCallsOfLook / ranks_.size(), 1);
  reader.read_on(one.position, [&](const CallGlance& glance) {
    if (glances.size() == most) return false;
    glances.push_back(glance);
    return true;
  });
  for (const CallGlance& glance : glances) {
    const RecordedGroup* const group = state.group(glance.group);
    auto call = reader.call(one.position, glance.record);
    if (glance.withdrawn) continue;
    if (!call || group == nullptr) {
      ++one.missing;
      continue;
    }
    if (call->withdrawn) continue;
    if (call->site.empty() && call->site_address != 0 && !one.sites.contains(call->site_address))
      unnamed.push_back(*call);
    Open open{glance.record, row_for(rank, one, group->name, call->called), group->name,
              group->completion_is_late, *std::move(call)};
    if (is_over(open.call, state)) {
      write(rank, one, open, open.call.completed);
    } else {
      one.rows[open.row].free = Instant::max();
      one.open.push_back(std::move(open));
    }
  }
  if (!unnamed.empty()) name_sites(rank, one, state, std::move(unnamed));
}

// The process has ended, or records no more.
void Trace::give_up_open(int rank, Rank& one) {
  const Instant now = steady_now();
  for (const Open& open : std::exchange(one.open, {}))
    write(rank, one, open, now, /*is_complete=*/false);
}

// Writes calls that were completed or overwritten since.
void Trace::finish_open(int rank, Rank& one, const RecordedState& state, const RingReader& reader) {
  std::vector<Open> still;
  for (Open& open : one.open) {
    const auto call = reader.call(one.position, open.record);
    if (call && !is_over(*call, state)) {
      still.push_back(std::move(open));
      continue;
    }
    if (call) open.call = *call;
    write(rank, one, open, open.call.completed);
  }
  one.open = std::move(still);
}

// A row of the group that is free again, else a new one.
size_t Trace::row_for(int rank, Rank& one, const std::string& group, Instant called) {
  size_t of_group = 0;
  size_t last = 0;
  for (size_t i = 0; i < one.rows.size(); ++i) {
    if (one.rows[i].group != group) continue;
    if (one.rows[i].free <= called) return i;
    ++of_group;
    last = i;
  }
  if (one.rows.size() >= kRowsMax) return of_group > 0 ? last : kRowsMax - 1;
  const bool is_shared = one.rows.size() + 1 == kRowsMax;
  const std::string name = of_group == 0 ? group : fmt::format("{} ({})", group, of_group + 1);
  one.rows.push_back({is_shared ? "" : group, {}});
  put(trace_row(rank, static_cast<int>(one.rows.size()), is_shared ? "further groups" : name));
  return one.rows.size() - 1;
}

void Trace::write(int rank, Rank& one, const Open& open, std::optional<Instant> over,
                  bool is_complete) {
  one.rows[open.row].free = over.value_or(open.call.called);
  RecordedCall call = open.call;
  const auto site = one.sites.find(call.site_address);
  if (call.site.empty() && site != one.sites.end()) call.site = site->second;
  TraceCall traced{.rank = rank,
                   .row = static_cast<int>(open.row) + 1,
                   .group = open.group,
                   .call = &call,
                   .called = time_of(call.called),
                   .is_complete = is_complete,
                   .is_late = open.is_late};
  if (over) traced.over = time_of(*over);
  put(trace_call(traced));
}

// Requests names; later calls from there have them.
void Trace::name_sites(int rank, Rank& one, const RecordedState& state,
                       std::vector<RecordedCall> calls) {
  if (one.sites.size() > kSitesTraced) return;
  for (const RecordedCall& call : calls)
    one.sites[call.site_address];
  RankRing ring{
      .rank = rank, .pid = one.pid, .state = state, .calls = std::move(calls), .why_none = {}};
  site_names_.name({std::move(ring)}, [this, alive = std::weak_ptr<bool>(alive_),
                                       attempt = attempt_](const std::vector<RankRing>& named) {
    if (alive.expired() || attempt != attempt_) return;
    for (const RecordedCall& call : named.front().calls)
      ranks_[named.front().rank].sites[call.site_address] = call.site;
  });
}

}  // namespace muster::hang

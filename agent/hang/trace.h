// The trace of a job (--trace): what the ranks of this node have called, written to a file as they
// do (trace_events.h says in which form), on the clock of the node with rank 0. Calls are read from
// the rings at each look; those that are not complete by then are looked at again.
//
// A thread writes. What it cannot keep up with stays in the rings, where it may be overwritten
// before it is read: that is counted, and never holds up the ranks or the agent.
//
// Owned by the agent's loop, for all attempts; control loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "agent/hang/site_names.h"
#include "agent/hang/trace_events.h"
#include "agent/output/console.h"
#include "agent/output/sink.h"
#include "rendezvous/base/time.h"
#include "rendezvous/membership/clock_offset.h"

namespace muster::hang {

class Trace {
 public:
  // Fails with ExitCode::environment. `say` gets one line for people; not from open(), nor from the
  // end of the trace, which may be on another thread.
  static Result<std::unique_ptr<Trace>> open(const std::string& path, SiteNames& site_names,
                                             std::function<void(const std::string&)> say);
  // Of a job of several nodes, each of which has a file of its own, by its first rank: for
  // "trace.json" "trace.node3.json", or where it came in a later round
  // "trace.node3.round2.json", so that one that replaces another leaves that one's file alone.
  static std::string path_of_node(const std::string& path, int node_rank, uint64_t round);
  // Why no such file can be written, as far as that shows before there is one.
  static std::optional<Error> defect_of_folder(const std::string& path);
  // Ends the file.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // ---- an attempt
  void begin(int attempt);
  // `name`: "rank 5 (node-b, GPU 1)".
  void started(int rank, pid_t pid, const std::string& name);
  // `code`: ExitStatus::signed_code(). `reader`: of what it has recorded to its end; nullptr:
  // nothing.
  void ended(int rank, int code, const RingReader* reader);

  // The clock of node rank 0 showed so many nanoseconds since 1970 at `own` of ours; the difference
  // is wrong by at most `error`. Before the first one nothing is read from the rings, but for
  // kClockPatience.
  static constexpr auto kClockPatience = std::chrono::seconds(3);
  void set_clock(Instant own, TraceTime there, Duration error);

  void read(int rank, const RecordedState& state, const RingReader& reader);
  // Notices and verdicts.
  void mark(std::string_view text);

 private:
  struct Open {
    uint64_t record = 0;
    size_t row = 0;
    std::string group;  // Name.
    bool is_late = false;
    RecordedCall call;
  };
  struct Row {
    std::string group;
    Instant free{};  // From when on.
  };
  struct Rank {
    pid_t pid = 0;
    RingPosition position;
    uint64_t missing = 0;  // Calls, besides those that `position` counts.
    std::vector<Open> open;
    // Calls of one group that overlap are in different rows.
    std::vector<Row> rows;
    std::map<uint64_t, std::string> sites;  // Of native calls; empty: it was asked for.
  };

  Trace(UniqueFd fd, const std::string& path, SiteNames& site_names,
        std::function<void(const std::string&)> say);

  TraceTime time_of(Instant own) const;
  bool may_read();
  void put(std::string_view text);
  void finish_open(int rank, Rank& one, const RecordedState& state, const RingReader& reader);
  void give_up_open(int rank, Rank& one);
  size_t row_for(int rank, Rank& one, const std::string& group, Instant called);
  void write(int rank, Rank& one, const Open& open, std::optional<Instant> over,
             bool is_complete = true);
  void name_sites(int rank, Rank& one, const RecordedState& state, std::vector<RecordedCall> calls);

  SiteNames& site_names_;
  const std::function<void(const std::string&)> say_;
  Sink sink_;
  SinkWriter writer_;
  std::map<int, Rank> ranks_;
  bool has_clock_ = false;  // That of node rank 0, or it is awaited no more.
  uint64_t attempt_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For names that come later.
  Instant began_{};
  bool said_missing_ = false;
  ClockOffset clock_;
};

}  // namespace muster::hang

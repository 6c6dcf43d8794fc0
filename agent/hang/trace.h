// The trace of a job (--trace): writes the calls of this node's ranks to a file as they happen
// (trace_events.h has the format), on the clock of the node with rank 0. Calls are read from the
// rings at each poll, incomplete ones again at the next.
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
  // Fails with ExitCode::environment. `say` gets one line for people, never from open() or the
  // destructor, which may run on another thread.
  static Result<std::unique_ptr<Trace>> open(const std::string& path, SiteNames& site_names,
                                             std::function<void(const std::string&)> say);
  // Path of one node's file in a job of several: for "trace.json" "trace.node3.json", or
  // "trace.node3.round2.json" if it came in a later round, so that a replacement leaves its
  // predecessor's file alone. `node_rank`: its first.
  static std::string path_of_node(const std::string& path, int node_rank, uint64_t round);
  // Why no such file can be written, as far as its folder shows.
  static std::optional<Error> defect_of_folder(const std::string& path);
  // Ends the file.
  ~Trace();
  Trace(Trace&&) = delete;

  // ---- an attempt
  void begin(int attempt);
  // `name`: "rank 5 (node-b, GPU 1)".
  void started(int rank, pid_t pid, const std::string& name);
  // `code`: ExitStatus::signed_code(). `reader`: of its ring, to its end; nullptr: none.
  void ended(int rank, int code, const RingReader* reader);

  // Node rank 0's clock showed `there` at our time `own`, wrong by at most `error`. Until the first
  // call, but no longer than kClockPatience, nothing is read from the rings.
  static constexpr auto kClockPatience = std::chrono::seconds(3);
  void set_clock(Instant own, TraceTime there, Duration error);

  void read(int rank, const RecordedState& state, const RingReader& reader);
  // Adds a notice or verdict.
  void mark(std::string_view text);

 private:
  struct Open {
    uint64_t record = 0;
    size_t row = 0;
    std::string group;
    bool is_late = false;
    RecordedCall call;
  };
  struct Row {
    std::string group;
    Instant free{};  // When it is free again.
  };
  struct Rank {
    pid_t pid = 0;
    RingPosition position;
    uint64_t missing = 0;  // Lost calls besides those that `position` counts.
    std::vector<Open> open;
    // Calls of one group that overlap are in different rows.
    std::vector<Row> rows;
    std::map<uint64_t, std::string> sites;  // Native call sites; empty: requested.
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
  bool has_clock_ = false;  // Node rank 0's clock is known, or no longer awaited.
  uint64_t attempt_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // Guards names that come later.
  Instant began_{};
  bool said_missing_ = false;
  ClockOffset clock_;
};

}  // namespace muster::hang

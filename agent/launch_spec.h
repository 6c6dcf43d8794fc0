// What the user asked for, parsed and checked, before anything is looked up or opened.
// launcher/options fills it without side effects; the agent turns it into a running job. Plain
// data: every field has torchrun's default unless its comment says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/net/address.h"

namespace muster {

enum class RunMode {
  script,    // .py: PY -u SCRIPT args; any other executable: run directly
  module,    // -m: PY -u -m MODULE args
  direct,    // --no-python: PROGRAM args, looked up on PATH
  run_path,  // --run-path: PY -u, runpy.run_path(SCRIPT, run_name="__main__")
};

enum class ExitCodePolicy { culprit, torchrun };

struct ExitCodes {
  ExitCodes(ExitCodePolicy for_others = ExitCodePolicy::culprit) : policy(for_others) {}

  ExitCodePolicy policy;
  std::map<std::string, int, std::less<>> by_cause;  // See exit_causes() in agent/report.

  friend bool operator==(const ExitCodes&, const ExitCodes&) = default;
};

// Selects streams of a worker: bit 0 stdout, bit 1 stderr (torchrun's 0, 1, 2, 3).
enum class Streams : uint8_t { none = 0, out = 1, err = 2, both = 3 };

// torchrun's "-r 3" or "-r 0:1,1:3": one value for all, or per local rank (missing ranks: none).
struct StreamsByRank {
  Streams all = Streams::none;
  std::map<int, Streams> by_rank;  // Replaces `all` unless empty.

  Streams of(int local_rank) const {
    if (by_rank.empty()) return all;
    const auto it = by_rank.find(local_rank);
    return it == by_rank.end() ? Streams::none : it->second;
  }
  friend bool operator==(const StreamsByRank&, const StreamsByRank&) = default;
};

enum class GpuBinding { shared, exclusive };

enum class NumaBinding { none, node, socket, exclusive, core_complex };

enum class EventLogHandler { null, console };

// How long each step of a rendezvous may take. torchrun's --rdzv-conf keys and defaults, with
// --lease and --start-timeout on top.
struct RendezvousTimes {
  double join_timeout_s = 600;  // First try to formed round; static: 900 (`timeout`).
  double last_call_s = 30;      // Wait for more nodes once MIN have joined, if MIN < MAX.
  // A node gives up after this long without a host (`read_timeout`). Not given: the join time-out.
  std::optional<double> reach_timeout_s;
  // Silence after which a node counts as lost: --lease if given; else keep_alive_interval times
  // keep_alive_max_attempt if either is given (torchrun's defaults: 5 s and 3); else 3 s, or
  // 15 s where the number of nodes is fixed and no spare is announced.
  double lease_s = 3;

  friend bool operator==(const RendezvousTimes&, const RendezvousTimes&) = default;
};

struct RendezvousSpec {
  bool single_node_default = false;  // Nothing about nodes was given, so standalone.
  bool standalone = false;           // --standalone was given.
  // "static", "c10d", "file" or "etcd", after mode selection.
  std::string backend = "static";
  std::string endpoint_host;  // Brackets removed. Empty: not given, or backend file or etcd.
  std::optional<int> endpoint_port;
  std::string file_path;  // Backend file: an absolute path on a file system that all nodes share.
  std::optional<EtcdOptions> etcd;                        // Backend etcd.
  std::string id = "none";                                // Empty: make one up (a random UUID).
  std::vector<std::pair<std::string, std::string>> conf;  // --rdzv-conf in order, as typed.
  int nnodes_min = 1;                                     // Static: equal to nnodes_max.
  int nnodes_max = 1;
  // Static: always set, below nnodes_max. Else optional, below nnodes_max + spares.
  std::optional<int> node_rank;
  std::optional<std::string> local_addr;
  RendezvousTimes times;
  std::optional<bool> is_host;  // --rdzv-conf is_host: this node must, or must not, host.

  // Set if the nodes meet by what an engine told them: node rank 0, on endpoint_host, hosts on the
  // first of these ports that is free. The backend is c10d; `id` and node_rank are set.
  std::vector<uint16_t> ports_of_node_0;
  // The job's name at the rendezvous then: the engine's unique id, as several jobs may share `id`.
  std::string engine_id;
  // The nodes meet in the same way, but get endpoint_host, engine_id and the ports through PMI.
  bool ask_pmi = false;

  std::optional<int> worker_port;             // A separate port for the workers' store.
  int spares = 0;                             // Nodes beyond nnodes_max that wait for a free place.
  std::optional<int> max_membership_changes;  // Not given: no limit.
  std::optional<std::string> iface;           // The network interface that reaches the peers.
  bool export_iface = true;  // Set *_SOCKET_IFNAME for the workers if there are several interfaces.
  std::optional<std::string> token_file;  // The file with the job's token; read by the agent.
  std::optional<std::string> token;  // $MUSTER_TOKEN, never empty; unset if there is a token_file.
  bool store_allow_any = false;      // --store-allow any
  std::vector<Network> store_allow;  // Networks allowed besides the members.
  size_t store_bytes_max = size_t{1} << 30;  // --store-limit

  friend bool operator==(const RendezvousSpec&, const RendezvousSpec&) = default;
};

// The place of this process in the job if the engine started several tasks on each node, each a
// muster with one worker. Every task is a node of the rendezvous, with the task's rank.
struct TaskPlace {
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int nodes = 1;                 // 0: unknown, and so is `node`, until the nodes have met.
  bool own_gpu = false;          // The task sees only its own GPU: LOCAL_RANK is 0.
  std::optional<int> cpus = {};  // The task's own; nullopt: the node's tasks share what it sees.

  friend bool operator==(const TaskPlace&, const TaskPlace&) = default;
};

// A query of the engine by a hidden command of muster, which prints one line.
struct EngineQuestion {
  std::vector<std::string> arguments;  // The hidden command's.
  std::string program;                 // What it runs in turn: "squeue".
  friend bool operator==(const EngineQuestion&, const EngineQuestion&) = default;
};

// The engine that started this process; all defaults if there is none.
struct EngineSpec {
  std::string name = {};     // "Slurm"
  std::string job = {};      // Its own id of the job: "4711"; empty: none.
  int starts = 0;            // How often it had started this job before.
  bool signals_all = false;  // It sends each signal to every process here, ours included.
  bool one_console = false;  // All processes that it started share one console.
  std::optional<int64_t> ends_at = {};  // When it ends the job, in seconds since 1970.
  // Answers the seconds until it ends the job, "none", or why that is unknown.
  EngineQuestion time_left = {};
  // Answers "done" once the job has been requeued, or why not; with a further argument, the reason
  // not to, that. requeue_if_preempted answers nothing if the job was not pre-empted.
  EngineQuestion requeue = {};
  EngineQuestion requeue_if_preempted = {};
  std::string requeue_by_hand = {};  // The command with which a user does it.

  friend bool operator==(const EngineSpec&, const EngineSpec&) = default;
};

struct LogSpec {
  std::optional<std::string> dir;  // --log-dir. Not given: a fresh folder under $TMPDIR.
  StreamsByRank redirects;
  StreamsByRank tee;
  std::string prefix_template;  // --log-line-prefix-template, torchrun's ${...} syntax.
  std::string prefix;  // --log-prefix, muster's own: {time} {host} {rank} {local_rank} {role}.
  std::optional<std::vector<int>> local_ranks_filter;  // --local-ranks-filter
  std::vector<std::pair<int, int>> ranks;              // --ranks 0,8-15: inclusive global ranges.
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;

  bool wants_files() const { return dir != "/dev/null"; }
  const std::vector<std::string>& filters(Streams stream) const {
    return stream == Streams::err ? duplicate_stderr_filters : duplicate_stdout_filters;
  }
  friend bool operator==(const LogSpec&, const LogSpec&) = default;
};

struct PlacementSpec {
  std::vector<std::string> gpus;  // --gpus 0,2 or UUIDs. Empty: not given.
  GpuBinding gpu_binding = GpuBinding::shared;
  bool virtual_local_rank = false;
  bool keep_local_rank = false;
  NumaBinding numa_binding = NumaBinding::none;
  bool report_bindings = false;

  friend bool operator==(const PlacementSpec&, const PlacementSpec&) = default;
};

// What a verdict on a hang triggers.
enum class OnHang : uint8_t {
  automatic,  // `restart` for a proof, else `report`.
  report,     // The job goes on.
  restart,    // A rank counts as failed: restarts as after any failure.
  stop,       // A rank counts as failed and the job ends.
};

// Limits of the hang detector (agent/hang/detector.h), and what follows.
struct HangSpec {
  bool off = false;            // --hang-timeout off
  double hang_timeout_s = 12;  // Limit of a rank that is blocked or stopped.
  // Limit of a rank that is late for any other reason. Not given: learnt from the job.
  std::optional<double> busy_timeout_s;
  OnHang on_hang = OnHang::automatic;

  friend bool operator==(const HangSpec&, const HangSpec&) = default;
};

struct LaunchSpec {
  RunMode mode = RunMode::script;
  std::string program;                // Script, module or executable, as typed.
  std::vector<std::string> args;      // Everything after it, verbatim.
  std::optional<std::string> python;  // --python
  bool pass_local_rank = false;       // --pass-local-rank: insert --local-rank=N before args.

  std::string nproc_per_node = "1";  // A positive number, "cpu", "gpu", "auto" or "xpu".
  RendezvousSpec rendezvous;
  std::optional<TaskPlace> task;
  EngineSpec engine;
  std::optional<double> notice_before_s;  // --notice-before; given only in a Slurm job.
  std::optional<int> requeue_max;         // --requeue: the limit; given only in a Slurm job.
  std::string role = "default";

  int max_restarts = 0;
  double shutdown_timeout_s = 30;  // TERM to KILL.
  std::string signals_to_handle =
      "SIGTERM,SIGINT,SIGHUP,SIGQUIT";  // Typed text, for the workers' environment.
  std::vector<int> stop_signals;        // The known ones as numbers; default TERM, INT, QUIT, HUP.
  std::optional<int> stdin_rank = 0;    // --stdin RANK (global); none: every worker gets /dev/null.
  ExitCodes exit_code;
  EventLogHandler event_log = EventLogHandler::null;
  bool recorder = true;         // --no-recorder: workers get no ring to record their calls in.
  bool python_hook = true;      // --no-python-hook: Python programs do not record their calls.
  bool record_kernels = false;  // --record-kernels: when NCCL's kernels run on the GPU.

  std::string trace;  // --trace FILE; empty: none.

  HangSpec hang;
  LogSpec log;
  PlacementSpec placement;

  friend bool operator==(const LaunchSpec&, const LaunchSpec&) = default;
};

}  // namespace muster

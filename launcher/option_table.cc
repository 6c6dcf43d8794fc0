#include "launcher/option_table.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "launcher/values/values.h"
#include "rendezvous/base/error.h"

namespace muster {
namespace {

constexpr OptionTraits kTorchruns{};
constexpr OptionTraits kLaunchersOnly{.launchers_only = true};
// Read from the command line only, as in torchrun.
constexpr OptionTraits kWithoutVariable{.reads_variable = false};
constexpr OptionTraits kOwn{.own = true};
constexpr OptionTraits kOwnWithoutVariable{.own = true, .reads_variable = false};
constexpr OptionTraits kInformation{.reads_variable = false, .information = true};
constexpr OptionTraits kOwnInformation{.own = true, .reads_variable = false, .information = true};

constexpr std::string_view kWorkers = "Workers";
constexpr std::string_view kProgram = "What to run";
constexpr std::string_view kRestarts = "Restarting and stopping";
constexpr std::string_view kHangs = "Hangs";
constexpr std::string_view kOutput = "Output";
constexpr std::string_view kPlacement = "GPUs and CPUs";
constexpr std::string_view kRendezvous = "Nodes and rendezvous";
constexpr std::string_view kElastic = "Losing and replacing nodes";
constexpr std::string_view kNetwork = "Network and security";
constexpr std::string_view kInformative = "Information";

// Name, heading, value, default, help, traits, letter.
constexpr auto kRows = std::to_array<OptionRow>({
    {"nproc-per-node", kWorkers, "N|auto|gpu|cpu|xpu", "1",
     "Workers on this machine: a number, one per GPU (gpu), one per usable CPU (cpu), or one per "
     "accelerator where there is one and else per CPU (auto).",
     kLaunchersOnly},
    {"role", kWorkers, "NAME", "default",
     "Role of the workers: ROLE_NAME, and the prefix of tee'd lines."},
    {"stdin", kWorkers, "RANK|none", "0",
     "The global rank that reads muster's standard input; the others read nothing.", kOwn},
    {"module", kProgram, "", "",
     "PROGRAM is a Python module: run PYTHON -u -m PROGRAM. Excludes --no-python.", kTorchruns,
     'm'},
    {"no-python", kProgram, "", "",
     "PROGRAM is an executable, looked up on PATH; a .py file is not given to Python."},
    {"run-path", kProgram, "", "",
     "Run the Python script PROGRAM by runpy and record an uncaught exception in the worker's "
     "error file. Takes precedence over --module and --no-python."},
    {"python", kProgram, "PATH", "$PYTHON_EXEC, else see PYTHON below",
     "The Python interpreter; a bare name is looked up on PATH.", kOwn},
    {"pass-local-rank", kProgram, "", "",
     "Insert --local-rank=N before the program's own arguments, as the old "
     "torch.distributed.launch did.",
     kOwn},
    {"use-env", kProgram, "", "",
     "Accepted for torch.distributed.launch: do not pass --local-rank, which is the default here.",
     kOwnWithoutVariable},
    {"start-method", kProgram, "spawn|fork|forkserver", "spawn",
     "Accepted for torchrun; workers are always started as new processes."},
    {"max-restarts", kRestarts, "N", "0",
     "How many times, at most, all workers are restarted after one of them has failed.",
     kLaunchersOnly},
    {"shutdown-timeout", kRestarts, "SECONDS",
     "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30, or 25 under Slurm and in pods",
     "Time between SIGTERM and SIGKILL when workers are stopped; fractions and 0 are allowed."},
    {"signals-to-handle", kRestarts, "NAMES", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     "Comma-separated signals that shut the job down, in addition to SIGTERM, SIGINT, SIGQUIT and "
     "SIGHUP, which always do; others are forwarded to the workers."},
    {"notice-before", kRestarts, "SECONDS", "",
     "Under Slurm: warn all workers this long before the job's time limit, by SIGUSR1, which they "
     "ignore unless they handle it, and by should_stop() of the worker library. A warning signal "
     "of Slurm itself (sbatch --signal) is passed on to all nodes as well.",
     kOwn},
    {"requeue", kRestarts, "[=MAX]", "",
     "Under Slurm: requeue the job once it has ended after such a warning, or when Slurm pre-empts "
     "it, at most MAX times (1000). MUSTER_START_COUNT tells the workers how often the job had "
     "been started before.",
     kOwnWithoutVariable},
    {"exit-code", kRestarts, "culprit|torchrun|CAUSE=CODE,...", "culprit",
     "Exit code of a failed job: that of the first worker that failed (signal n as 128+n), or "
     "1, as with torchrun, if the job failed, was stopped or did not meet; with codes for causes, "
     "as in lost=143,oom=137 or torchrun,lost=143: user, oom, gpu, network, signal, shm, disk, "
     "stuck, timer, limit, hang, lost, rendezvous and stopped.",
     kOwn},
    {"monitor-interval", kRestarts, "SECONDS", "0.1",
     "Accepted for torchrun; muster notices exits at once and never polls."},
    {"event-log-handler", kRestarts, "null|console|dynamic_rendezvous", "null",
     "console writes one JSON object per event to stderr; the others write nothing."},
    {"hang-timeout", kHangs, "SECONDS|off", "12",
     "How long a rank for which others wait may be blocked or stopped before it is named as the "
     "cause of a hang; off: watch nothing.",
     kOwn},
    {"busy-timeout", kHangs, "SECONDS", "900",
     "The same for a rank that computes, sleeps, polls or is late for a reason that cannot be "
     "seen.",
     kOwn},
    {"on-hang", kHangs, "auto|report|restart|stop", "auto",
     "What to do once a rank is named: report: only print it; restart: let the rank fail; stop: "
     "let it fail, without a restart; auto: restart if the cause is proven, else report.",
     kOwn},
    {"no-recorder", kHangs, "", "",
     "Do not record which collectives the ranks have called: a hang is then not explained.", kOwn},
    {"no-python-hook", kHangs, "", "",
     "Do not put the recorder of PyTorch's collectives before PYTHONPATH.", kOwn},
    {"record-kernels", kHangs, "", "",
     "Record when NCCL's kernels start and end on the GPU as well, which costs time; not with NCCL "
     "2.31.2.",
     kOwn},
    {"trace", kHangs, "FILE", "",
     "Write every collective of every rank to FILE, for ui.perfetto.dev; of several nodes each "
     "writes its own: FILE with .nodeN before its extension.",
     kOwn},
    {"log-dir", kOutput, "DIR", "a fresh folder in $TMPDIR",
     "Folder for logs and, where it is given, for result.json and events.jsonl, with {host}, "
     "{node_rank}, {job} and {start}; {{ and }} are braces; /dev/null: no files."},
    {"redirects", kOutput, "STREAMS", "0",
     "Streams that go to a file instead of the console: 0 none, 1 stdout, 2 stderr, 3 both, or by "
     "local rank as in 0:1,1:3.",
     kTorchruns, 'r'},
    {"tee", kOutput, "STREAMS", "0",
     "Streams that go to a file and, with a prefix, to the console; written as for --redirects.",
     kTorchruns, 't'},
    {"log-line-prefix-template", kOutput, "TEMPLATE", "[ROLE LOCAL_RANK]:",
     "Prefix of tee'd lines, with ${role_name}, ${local_rank}, ${rank} and ${hostname}."},
    {"log-prefix", kOutput, "FORMAT", "",
     "Prefix of every line on the console, with {time}, {host}, {rank}, {local_rank} and {role}; "
     "{{ and }} are braces.",
     kOwn},
    {"local-ranks-filter", kOutput, "RANKS", "all",
     "Only these local ranks write to the console, as in 0,2."},
    {"ranks", kOutput, "RANKS", "all",
     "Only these global ranks write to the console, as in 0,8-15.", kOwn},
    {"duplicate-stdout-filters", kOutput, "WORDS", "",
     "tee'd stdout lines with one of these comma-separated words also go to filtered_stdout.log; "
     ",, is a comma."},
    {"duplicate-stderr-filters", kOutput, "WORDS", "", "The same for stderr."},
    {"logs-specs", kOutput, "default", "default",
     "Accepted for torchrun, whose other layouts are Python plug-ins.", kWithoutVariable},
    {"gpus", kPlacement, "LIST", "$CUDA_VISIBLE_DEVICES, else all",
     "The GPUs to use, as indices or UUIDs: 0,2 or GPU-8f3a...,MIG-51b2....", kOwn},
    {"gpu-binding", kPlacement, "shared|exclusive", "shared",
     "Every worker sees all GPUs of the job and takes number LOCAL_RANK (shared), or only its own "
     "one (exclusive; LOCAL_RANK is then 0).",
     kOwn},
    {"virtual-local-rank", kPlacement, "", "",
     "torchrun's name for --gpu-binding exclusive: LOCAL_RANK is 0 and each worker sees only its "
     "own GPU."},
    {"keep-local-rank", kPlacement, "", "",
     "Keep the real LOCAL_RANK where each worker has its own GPU.", kOwn},
    {"numa-binding", kPlacement, "node|socket|exclusive|core-complex", "",
     "Bind each worker to CPU cores near its GPU: of the NUMA node, the socket, a share of the "
     "node, or one last-level cache.",
     kWithoutVariable},
    {"report-bindings", kPlacement, "", "",
     "Print one table: local rank, GPU, NUMA node, cores, threads.", kOwn},
    {"nnodes", kRendezvous, "N|MIN:MAX", "1",
     "Number of nodes, or MIN:MAX; the same on every node. Not needed under srun, mpirun or "
     "Kubernetes (1: each process is a job of its own).",
     kLaunchersOnly},
    {"engine", kRendezvous, "auto|none|slurm|mpi|kubernetes", "auto",
     "The system whose variables say how many nodes there are, which one this is, where the first "
     "is, and how many GPUs the job has here; none: only flags do.",
     kOwn},
    {"standalone", kRendezvous, "", "",
     "One node on a free port of its own; endpoint and backend are ignored."},
    {"rdzv-backend", kRendezvous, "static|c10d|file|etcd", "static",
     "How nodes find each other: by numbers given to each (static), at a host and port (c10d, "
     "served by muster itself), by a path that all of them can access (file), or through etcd.",
     kLaunchersOnly},
    {"rdzv-endpoint", kRendezvous, "HOST[:PORT][,...]|/PATH", "",
     "Where nodes meet; c10d's default is localhost:29400, file needs an absolute path, etcd the "
     "addresses of its members (default: ETCDCTL_ENDPOINTS).",
     kLaunchersOnly},
    {"rdzv-id", kRendezvous, "ID", "a random one; none with --master-port or c10d",
     "Name of the job, equal on all nodes.", kLaunchersOnly},
    {"rdzv-conf", kRendezvous, "KEY=VALUE,...", "",
     "torchrun's settings of the rendezvous, in seconds: join_timeout, last_call_timeout, "
     "read_timeout, keep_alive_interval, timeout and others.",
     kLaunchersOnly},
    {"node-rank", kRendezvous, "N", "0 for static, else by host name",
     "Rank of this node, honoured by every backend."},
    {"master-addr", kRendezvous, "HOST", "127.0.0.1", "Address of rank 0 for the static backend."},
    {"master-port", kRendezvous, "PORT", "29500",
     "Port of rank 0 for the static backend; giving it selects that backend."},
    {"local-addr", kRendezvous, "HOST", "that of the connection to the endpoint",
     "Address under which other nodes reach this one."},
    {"start-timeout", kRendezvous, "SECONDS", "600; static 900",
     "How long to wait for the other nodes; takes precedence over the timeouts in --rdzv-conf.",
     kOwn},
    {"lease", kElastic, "SECONDS", "3; 15 where --nnodes is fixed and there are no spares",
     "A node that is silent for this long is lost; takes precedence over keep_alive_interval x "
     "keep_alive_max_attempt of --rdzv-conf.",
     kOwn},
    {"spares", kElastic, "N", "0",
     "Nodes beyond --nnodes that are expected to wait and to replace a lost node; further ones may "
     "wait as well.",
     kOwn},
    {"max-membership-changes", kElastic, "N", "no limit",
     "How many times, at most, the workers are restarted because nodes joined or left; "
     "--max-restarts counts failures only.",
     kOwn},
    {"iface", kNetwork, "NAME", "that of the connection to the endpoint",
     "Network interface that reaches the other nodes.", kOwn},
    {"no-iface-env", kNetwork, "", "",
     "Do not set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME for the workers where there are several "
     "interfaces or the machine's own name resolves to loopback.",
     kOwn},
    {"worker-port", kNetwork, "PORT", "the port of the endpoint",
     "A port of its own for the workers' store (MASTER_PORT).", kOwn},
    {"rdzv-token-file", kNetwork, "PATH", "$MUSTER_TOKEN, else no token",
     "File with a secret that all nodes share; nodes without it are refused.", kOwn},
    {"store-allow", kNetwork, "CIDR[,CIDR]|any", "the addresses of the nodes",
     "Further addresses from which workers may use the store, as behind NAT.", kOwn},
    {"store-limit", kNetwork, "SIZE", "1G",
     "Limit for the keys and values that the workers keep in the store, in bytes or with the "
     "suffix K, M, G or T; a worker that exceeds it loses its connection.",
     kOwn},
    {"help", kInformative, "", "", "Print this text.", kInformation, 'h'},
    {"version", kInformative, "", "", "Print the version.", kOwnInformation},
    {"print-completion", kInformative, "bash|zsh|tcsh", "",
     "Print a completion script for that shell.", kInformation},
    {"print-man", "", "", "", "Print the manual page.", kOwnInformation},
});

}  // namespace

std::string OptionRow::variable() const {
  std::string variable = "PET_";
  for (const char c : name) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

std::span<const OptionRow> option_rows() {
  return kRows;
}

const OptionRow* find_option(std::string_view name) {
  const auto found = std::ranges::find(kRows, name, &OptionRow::name);
  return found == kRows.end() ? nullptr : &*found;
}

const OptionRow& option_row(std::string_view name) {
  const OptionRow* const row = find_option(name);
  if (row == nullptr) check_failed("the option table has this row", __FILE__, __LINE__);
  return *row;
}

std::vector<std::string_view> words_to_type(const OptionRow& row) {
  std::vector<std::string_view> words = split(row.value, '|');
  std::erase_if(words, [](std::string_view word) {
    return word.empty() || std::islower(static_cast<unsigned char>(word.front())) == 0;
  });
  return words;
}

}  // namespace muster

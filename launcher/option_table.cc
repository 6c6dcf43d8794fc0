#include "launcher/option_table.h"

#include <algorithm>
#include <cctype>
#include <memory>

#include <CLI/CLI.hpp>

#include "launcher/values/values.h"
#include "rendezvous/base/error.h"

namespace muster {
namespace {

constexpr OptionTraits kTorchruns{};
constexpr OptionTraits kLaunchersOnly{.launchers_only = true};
// As in torchrun, read only from the command line.
constexpr OptionTraits kWithoutVariable{.reads_variable = false};
constexpr OptionTraits kOwn{.own = true};
constexpr OptionTraits kOwnWithoutVariable{.own = true, .reads_variable = false};
constexpr OptionTraits kInformation{.reads_variable = false, .information = true};
constexpr OptionTraits kOwnInformation{.own = true, .reads_variable = false, .information = true};

std::string variable_of(std::string_view name) {
  std::string variable = "PET_";
  for (const char c : name) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

struct Table {
  CLI::App app;  // Rejects names that are malformed or taken.
  std::vector<OptionRow> rows;
};

// One heading of the help. `names` is in CLI11's form: "-r,--redirects".
struct Section {
  Table& table;
  const char* heading;

  void flag(const char* names, const char* help, const OptionTraits& traits = kTorchruns) const {
    add(*table.app.add_flag(names), "", "", help, traits);
  }

  void value(const char* names, const char* value_text, const char* default_text, const char* help,
             const OptionTraits& traits = kTorchruns) const {
    add(*table.app.add_option(names), value_text, default_text, help, traits);
  }

 private:
  void add(const CLI::Option& option, const char* value_text, const char* default_text,
           const char* help, const OptionTraits& traits) const {
    OptionRow row;
    row.name = option.get_lnames().front();
    if (!option.get_snames().empty()) row.letter = option.get_snames().front().front();
    row.value = value_text;
    row.default_text = default_text;
    row.group = heading;
    row.help = help;
    row.variable = variable_of(row.name);
    row.traits = traits;
    table.rows.push_back(std::move(row));
  }
};

void add_program_options(Table& table) {
  const Section section{table, "What to run"};
  section.flag("-m,--module",
               "PROGRAM is a Python module: run PYTHON -u -m PROGRAM. Excludes --no-python.");
  section.flag("--no-python",
               "PROGRAM is an executable, looked up on PATH; a .py file is not given to Python.");
  section.flag("--run-path",
               "Run the Python script PROGRAM by runpy and record an uncaught exception in the "
               "worker's error file. Takes precedence over --module and --no-python.");
  section.value("--python", "PATH", "$PYTHON_EXEC, else see PYTHON below",
                "The Python interpreter; a bare name is looked up on PATH.", kOwn);
  section.flag("--pass-local-rank",
               "Insert --local-rank=N before the program's own arguments, as the old "
               "torch.distributed.launch did.",
               kOwn);
  section.flag("--use-env",
               "Accepted for torch.distributed.launch: do not pass --local-rank, which is the "
               "default here.",
               kOwnWithoutVariable);
  section.value("--start-method", "spawn|fork|forkserver", "spawn",
                "Accepted for torchrun; workers are always started as new processes.");
}

void add_worker_options(Table& table) {
  const Section section{table, "Workers"};
  section.value(
      "--nproc-per-node", "N|auto|gpu|cpu|xpu", "1",
      "Workers on this machine: a number, one per GPU (gpu), one per usable CPU (cpu), or "
      "one per accelerator where there is one and else per CPU (auto).",
      kLaunchersOnly);
  section.value("--role", "NAME", "default",
                "Role of the workers: ROLE_NAME, and the prefix of tee'd lines.");
  section.value("--stdin", "RANK|none", "0",
                "The global rank that reads muster's standard input; the others read nothing.",
                kOwn);
}

void add_restart_options(Table& table) {
  const Section section{table, "Restarting and stopping"};
  section.value("--max-restarts", "N", "0",
                "How many times, at most, all workers are restarted after one of them has failed.",
                kLaunchersOnly);
  section.value(
      "--shutdown-timeout", "SECONDS", "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30",
      "Time between SIGTERM and SIGKILL when workers are stopped; fractions and 0 are allowed.");
  section.value("--signals-to-handle", "NAMES", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                "Comma-separated signals that shut the job down, in addition to SIGTERM, SIGINT, "
                "SIGQUIT and SIGHUP, which always do; others are forwarded to the workers.");
  section.value("--exit-code", "culprit|torchrun", "culprit",
                "Exit code of a failed job: that of the first worker that failed (signal n as "
                "128+n), or always 1, as with torchrun, also if the job cannot start.",
                kOwn);
  section.value("--monitor-interval", "SECONDS", "0.1",
                "Accepted for torchrun; muster notices exits at once and never polls.");
  section.value("--event-log-handler", "null|console|dynamic_rendezvous", "null",
                "console writes one JSON object per event to stderr; the others write nothing.");
}

void add_output_options(Table& table) {
  const Section section{table, "Output"};
  section.value(
      "--log-dir", "DIR", "a fresh folder in $TMPDIR",
      "Folder for logs and, where it is given, for result.json and events.jsonl; /dev/null: no "
      "files.");
  section.value("-r,--redirects", "STREAMS", "0",
                "Streams that go to a file instead of the console: 0 none, 1 stdout, 2 stderr, 3 "
                "both, or by local rank as in 0:1,1:3.");
  section.value("-t,--tee", "STREAMS", "0",
                "Streams that go to a file and, with a prefix, to the console; written as for "
                "--redirects.");
  section.value(
      "--log-line-prefix-template", "TEMPLATE", "[ROLE LOCAL_RANK]:",
      "Prefix of tee'd lines, with ${role_name}, ${local_rank}, ${rank} and ${hostname}.");
  section.value(
      "--log-prefix", "FORMAT", "",
      "Prefix of every line on the console, with {time}, {host}, {rank}, {local_rank} and "
      "{role}.",
      kOwn);
  section.value("--local-ranks-filter", "RANKS", "all",
                "Only these local ranks write to the console, as in 0,2.");
  section.value("--ranks", "RANKS", "all",
                "Only these global ranks write to the console, as in 0,8-15.", kOwn);
  section.value("--duplicate-stdout-filters", "WORDS", "",
                "tee'd stdout lines with one of these comma-separated words also go to "
                "filtered_stdout.log; ,, is a comma.");
  section.value("--duplicate-stderr-filters", "WORDS", "", "The same for stderr.");
  section.value("--logs-specs", "default", "default",
                "Accepted for torchrun, whose other layouts are Python plug-ins.",
                kWithoutVariable);
}

void add_placement_options(Table& table) {
  const Section section{table, "GPUs and CPUs"};
  section.value("--gpus", "LIST", "$CUDA_VISIBLE_DEVICES, else all",
                "The GPUs to use, as indices or UUIDs: 0,2 or GPU-8f3a...,MIG-51b2....", kOwn);
  section.value("--gpu-binding", "shared|exclusive", "shared",
                "Every worker sees all GPUs of the job and takes number LOCAL_RANK (shared), or "
                "only its own one (exclusive; LOCAL_RANK is then 0).",
                kOwn);
  section.flag("--virtual-local-rank",
               "torchrun's name for --gpu-binding exclusive: LOCAL_RANK is 0 and each worker sees "
               "only its own GPU.");
  section.flag("--keep-local-rank", "Keep the real LOCAL_RANK where each worker has its own GPU.",
               kOwn);
  section.value("--numa-binding", "node|socket|exclusive|core-complex", "",
                "Bind each worker to CPU cores near its GPU: of the NUMA node, the socket, a share "
                "of the node, or one last-level cache.",
                kWithoutVariable);
  section.flag("--report-bindings", "Print one table: local rank, GPU, NUMA node, cores, threads.",
               kOwn);
}

void add_rendezvous_options(Table& table) {
  const Section section{table, "Nodes and rendezvous"};
  section.value(
      "--nnodes", "N|MIN:MAX", "1",
      "Number of nodes, or its limits; every node gets the same command. Required where srun, "
      "mpirun or Kubernetes has started several processes (1: each of them is a job of its own).",
      kLaunchersOnly);
  section.flag("--standalone",
               "One node on a free port of its own; endpoint and backend are ignored.");
  section.value("--rdzv-backend", "static|c10d|file", "static",
                "How nodes find each other: by numbers given to each (static), at a host and port "
                "(c10d, served by muster itself), or by a path that all of them can access (file).",
                kLaunchersOnly);
  section.value("--rdzv-endpoint", "HOST[:PORT]|/PATH", "",
                "Where nodes meet; c10d's default is localhost:29400, file needs an absolute path.",
                kLaunchersOnly);
  section.value("--rdzv-id", "ID", "a random one; none with --master-port or c10d",
                "Name of the job, equal on all nodes.", kLaunchersOnly);
  section.value("--rdzv-conf", "KEY=VALUE,...", "",
                "torchrun's settings of the rendezvous, in seconds: join_timeout, "
                "last_call_timeout, read_timeout, keep_alive_interval, timeout and others.",
                kLaunchersOnly);
  section.value("--node-rank", "N", "0 for static, else by host name",
                "Rank of this node, honoured by every backend.");
  section.value("--master-addr", "HOST", "127.0.0.1", "Address of rank 0 for the static backend.");
  section.value("--master-port", "PORT", "29500",
                "Port of rank 0 for the static backend; giving it selects that backend.");
  section.value("--local-addr", "HOST", "that of the connection to the endpoint",
                "Address under which other nodes reach this one.");
  section.value(
      "--start-timeout", "SECONDS", "600; static 900",
      "How long to wait for the other nodes; takes precedence over the timeouts in --rdzv-conf.",
      kOwn);
}

void add_elastic_options(Table& table) {
  const Section section{table, "Losing and replacing nodes"};
  section.value("--lease", "SECONDS", "3",
                "A node that is silent for this long is lost; takes precedence over "
                "keep_alive_interval x keep_alive_max_attempt of --rdzv-conf.",
                kOwn);
  section.value(
      "--spares", "N", "0",
      "Nodes beyond --nnodes that are expected to wait and to replace a lost node; further "
      "ones may wait as well.",
      kOwn);
  section.value("--max-membership-changes", "N", "no limit",
                "How many times, at most, the workers are restarted because nodes joined or left; "
                "--max-restarts counts failures only.",
                kOwn);
}

void add_network_options(Table& table) {
  const Section section{table, "Network and security"};
  section.value("--iface", "NAME", "that of the connection to the endpoint",
                "Network interface that reaches the other nodes.", kOwn);
  section.flag("--no-iface-env",
               "Do not set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME for the workers where there "
               "are several interfaces or the machine's own name resolves to loopback.",
               kOwn);
  section.value("--worker-port", "PORT", "the port of the endpoint",
                "A port of its own for the workers' store (MASTER_PORT).", kOwn);
  section.value("--rdzv-token-file", "PATH", "$MUSTER_TOKEN, else no token",
                "File with a secret that all nodes share; nodes without it are refused.", kOwn);
  section.value("--store-allow", "CIDR[,CIDR]|any", "the addresses of the nodes",
                "Further addresses from which workers may use the store, as behind NAT.", kOwn);
}

void add_information_options(Table& table) {
  const Section section{table, "Information"};
  section.flag("-h,--help", "Print this text.", kInformation);
  section.flag("--version", "Print the version.", kOwnInformation);
  section.value("--print-completion", "bash|zsh|tcsh", "",
                "Print a completion script for that shell.", kInformation);
  Section{table, ""}.flag("--print-man", "Print the manual page.", kOwnInformation);
}

std::vector<OptionRow> make_rows() {
  Table table;
  table.app.set_help_flag("");
  add_worker_options(table);
  add_program_options(table);
  add_restart_options(table);
  add_output_options(table);
  add_placement_options(table);
  add_rendezvous_options(table);
  add_elastic_options(table);
  add_network_options(table);
  add_information_options(table);
  return std::move(table.rows);
}

}  // namespace

const std::vector<OptionRow>& option_rows() {
  static const std::vector<OptionRow> rows = make_rows();
  return rows;
}

const OptionRow& option_row(std::string_view name) {
  for (const OptionRow& row : option_rows()) {
    if (row.name == name) return row;
  }
  check_failed("the option table has this row", __FILE__, __LINE__);
}

std::vector<std::string_view> words_to_type(const OptionRow& row) {
  std::vector<std::string_view> words;
  for (const std::string_view word : split(row.value, '|')) {
    if (!word.empty() && std::islower(static_cast<unsigned char>(word.front())) != 0) {
      words.push_back(word);
    }
  }
  return words;
}

}  // namespace muster

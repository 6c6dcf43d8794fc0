#include "launcher/options.h"

#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "launcher/option_table.h"
#include "tests/unit/launcher/command_line_samples.h"

namespace muster {
namespace {

// Expected spec of a command line without flags.
LaunchSpec plain_spec() {
  LaunchSpec spec;
  spec.program = "x.py";
  spec.stop_signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  spec.rendezvous.single_node_default = true;
  spec.rendezvous.backend = "c10d";
  spec.rendezvous.endpoint_host = "localhost";
  spec.rendezvous.endpoint_port = 0;
  spec.rendezvous.id = "";
  return spec;
}

LaunchSpec plain_but(const std::function<void(LaunchSpec&)>& change) {
  LaunchSpec spec = plain_spec();
  change(spec);
  return spec;
}

TEST(Options, HaveTheDefaultsOfTorchrun) {
  EXPECT_EQ(spec_of({}), plain_spec());
}

// One row per flag: the words typed, and the only change that they make to the spec.
struct FlagCase {
  Words flags;
  std::function<void(LaunchSpec&)> change;
};

const std::vector<FlagCase>& flag_cases() {
  static const std::vector<FlagCase> cases{
      {{"--nproc-per-node", "4"}, [](LaunchSpec& s) { s.nproc_per_node = "4"; }},
      {{"--nproc-per-node", " 0_4 "}, [](LaunchSpec& s) { s.nproc_per_node = "4"; }},
      {{"--nproc-per-node", "auto"}, [](LaunchSpec& s) { s.nproc_per_node = "auto"; }},
      {{"--nproc-per-node", "gpu"}, [](LaunchSpec& s) { s.nproc_per_node = "gpu"; }},
      {{"--nproc-per-node", "cpu"}, [](LaunchSpec& s) { s.nproc_per_node = "cpu"; }},
      {{"--nproc-per-node", "xpu"}, [](LaunchSpec& s) { s.nproc_per_node = "xpu"; }},
      {{"--role", "trainer"}, [](LaunchSpec& s) { s.role = "trainer"; }},
      {{"--role", ""}, [](LaunchSpec& s) { s.role = ""; }},
      {{"--stdin", "3"}, [](LaunchSpec& s) { s.stdin_rank = 3; }},
      {{"--stdin", "none"}, [](LaunchSpec& s) { s.stdin_rank = std::nullopt; }},
      {{"--max-restarts", "3"}, [](LaunchSpec& s) { s.max_restarts = 3; }},
      {{"--start-method", "spawn"}, [](LaunchSpec&) {}},
      {{"--shutdown-timeout", "0"}, [](LaunchSpec& s) { s.shutdown_timeout_s = 0; }},
      {{"--shutdown-timeout", "2.5"}, [](LaunchSpec& s) { s.shutdown_timeout_s = 2.5; }},
      {{"--exit-code", "torchrun"}, [](LaunchSpec& s) { s.exit_code = ExitCodePolicy::torchrun; }},
      {{"--exit-code", "culprit"}, [](LaunchSpec&) {}},
      {{"--exit-code", "lost=143,oom=137"},
       [](LaunchSpec& s) { s.exit_code.by_cause = {{"lost", 143}, {"oom", 137}}; }},
      {{"--exit-code", "torchrun,hang=255"},
       [](LaunchSpec& s) {
         s.exit_code = ExitCodePolicy::torchrun;
         s.exit_code.by_cause = {{"hang", 255}};
       }},
      {{"--event-log-handler", "null"}, [](LaunchSpec&) {}},
      {{"--event-log-handler", "dynamic_rendezvous"}, [](LaunchSpec&) {}},
      {{"--event-log-handler", "console"},
       [](LaunchSpec& s) { s.event_log = EventLogHandler::console; }},
      {{"--log-dir", "logs"}, [](LaunchSpec& s) { s.log.dir = "logs"; }},
      {{"--log-dir", ""}, [](LaunchSpec&) {}},
      {{"--log-dir", "{job}/{start}-{host}-{node_rank}{{"},
       [](LaunchSpec& s) { s.log.dir = "{job}/{start}-{host}-{node_rank}{{"; }},
      {{"-r", "3"}, [](LaunchSpec& s) { s.log.redirects.all = Streams::both; }},
      {{"--tee", "1:2"}, [](LaunchSpec& s) { s.log.tee.by_rank = {{1, Streams::err}}; }},
      {{"--log-prefix", "{time} {host}:{rank}"},
       [](LaunchSpec& s) { s.log.prefix = "{time} {host}:{rank}"; }},
      {{"--log-prefix", "{role}/{local_rank}> "},
       [](LaunchSpec& s) { s.log.prefix = "{role}/{local_rank}> "; }},
      {{"--local-ranks-filter", "2, 0"},
       [](LaunchSpec& s) { s.log.local_ranks_filter = std::vector<int>{0, 2}; }},
      {{"--local-ranks-filter", ""}, [](LaunchSpec&) {}},
      {{"--ranks", "0,8-15"}, [](LaunchSpec& s) { s.log.ranks = {{0, 0}, {8, 15}}; }},
      {{"-t1", "--duplicate-stdout-filters", "loss,a,,b"},
       [](LaunchSpec& s) {
         s.log.tee.all = Streams::out;
         s.log.duplicate_stdout_filters = {"loss", "a,b"};
       }},
      {{"-t1:2", "--duplicate-stderr-filters", "Error"},
       [](LaunchSpec& s) {
         s.log.tee.by_rank = {{1, Streams::err}};
         s.log.duplicate_stderr_filters = {"Error"};
       }},
      {{"--logs-specs", "default"}, [](LaunchSpec&) {}},
      {{"--gpus", "0, 2"}, [](LaunchSpec& s) { s.placement.gpus = {"0", "2"}; }},
      {{"--gpus", "GPU-8f,MIG-51"}, [](LaunchSpec& s) { s.placement.gpus = {"GPU-8f", "MIG-51"}; }},
      {{"--gpu-binding", "shared"}, [](LaunchSpec&) {}},
      {{"--gpu-binding", "exclusive"},
       [](LaunchSpec& s) { s.placement.gpu_binding = GpuBinding::exclusive; }},
      {{"--virtual-local-rank"}, [](LaunchSpec& s) { s.placement.virtual_local_rank = true; }},
      {{"--virtual-local-rank", "--keep-local-rank"},
       [](LaunchSpec& s) {
         s.placement.virtual_local_rank = true;
         s.placement.keep_local_rank = true;
       }},
      {{"--hang-timeout", "1.2"}, [](LaunchSpec& s) { s.hang.hang_timeout_s = 1.2; }},
      {{"--hang-timeout", "off"}, [](LaunchSpec& s) { s.hang.off = true; }},
      {{"--on-hang", "auto"}, [](LaunchSpec&) {}},
      {{"--on-hang", "report"}, [](LaunchSpec& s) { s.hang.on_hang = OnHang::report; }},
      {{"--on-hang", "restart"}, [](LaunchSpec& s) { s.hang.on_hang = OnHang::restart; }},
      {{"--on-hang", "stop"}, [](LaunchSpec& s) { s.hang.on_hang = OnHang::stop; }},
      {{"--busy-timeout", "3"}, [](LaunchSpec& s) { s.hang.busy_timeout_s = 3; }},
      {{"--no-recorder"}, [](LaunchSpec& s) { s.recorder = false; }},
      {{"--trace", "out/trace.json"}, [](LaunchSpec& s) { s.trace = "out/trace.json"; }},
      {{"--no-python-hook"}, [](LaunchSpec& s) { s.python_hook = false; }},
      {{"--record-kernels"}, [](LaunchSpec& s) { s.record_kernels = true; }},
      {{"--report-bindings"}, [](LaunchSpec& s) { s.placement.report_bindings = true; }},
      {{"--numa-binding", "node"},
       [](LaunchSpec& s) { s.placement.numa_binding = NumaBinding::node; }},
      {{"--numa-binding", "socket"},
       [](LaunchSpec& s) { s.placement.numa_binding = NumaBinding::socket; }},
      {{"--numa-binding", "exclusive"},
       [](LaunchSpec& s) { s.placement.numa_binding = NumaBinding::exclusive; }},
      {{"--numa-binding", "core-complex"},
       [](LaunchSpec& s) { s.placement.numa_binding = NumaBinding::core_complex; }},
      {{"--python", "python3.11"}, [](LaunchSpec& s) { s.python = "python3.11"; }},
      {{"-m"}, [](LaunchSpec& s) { s.mode = RunMode::module; }},
      {{"--no-python"}, [](LaunchSpec& s) { s.mode = RunMode::direct; }},
      {{"--run-path"}, [](LaunchSpec& s) { s.mode = RunMode::run_path; }},
      {{"--pass-local-rank"}, [](LaunchSpec& s) { s.pass_local_rank = true; }},
      {{"--use-env"}, [](LaunchSpec&) {}},
      {{"--signals-to-handle", "SIGUSR1,SIGTERM,SIGUSR1"},
       [](LaunchSpec& s) {
         s.signals_to_handle = "SIGUSR1,SIGTERM,SIGUSR1";
         s.stop_signals = {SIGUSR1, SIGTERM};
       }},
      {{"--local-addr", "10.0.0.7"}, [](LaunchSpec& s) { s.rendezvous.local_addr = "10.0.0.7"; }},
      {{"--rdzv-id", "job"}, [](LaunchSpec& s) { s.rendezvous.id = "job"; }},
      {{"--rdzv-conf", "join_timeout=5"},
       [](LaunchSpec& s) {
         s.rendezvous.conf = {{"join_timeout", "5"}};
         s.rendezvous.times.join_timeout_s = 5;
       }},
      {{"--start-timeout", "5"}, [](LaunchSpec& s) { s.rendezvous.times.join_timeout_s = 5; }},
      {{"--lease", "1.5"}, [](LaunchSpec& s) { s.rendezvous.times.lease_s = 1.5; }},
      {{"--spares", "0"}, [](LaunchSpec&) {}},
      {{"--max-membership-changes", "4"},
       [](LaunchSpec& s) { s.rendezvous.max_membership_changes = 4; }},
      {{"--iface", "eth0"}, [](LaunchSpec& s) { s.rendezvous.iface = "eth0"; }},
      {{"--no-iface-env"}, [](LaunchSpec& s) { s.rendezvous.export_iface = false; }},
      {{"--worker-port", "4000"}, [](LaunchSpec& s) { s.rendezvous.worker_port = 4000; }},
      {{"--rdzv-token-file", "/t"}, [](LaunchSpec& s) { s.rendezvous.token_file = "/t"; }},
      {{"--store-allow", "any"}, [](LaunchSpec& s) { s.rendezvous.store_allow_any = true; }},
      {{"--store-limit", "2G"},
       [](LaunchSpec& s) { s.rendezvous.store_bytes_max = size_t{2} << 30; }},
      {{"--node-rank", "0"}, [](LaunchSpec& s) { s.rendezvous.node_rank = 0; }},
      {{"--nnodes", "1:1"}, [](LaunchSpec&) {}},
      {{"--standalone"},
       [](LaunchSpec& s) {
         s.rendezvous.standalone = true;
         s.rendezvous.single_node_default = false;
       }},
  };
  return cases;
}

TEST(Options, ChangeWhatTheySayAndNothingElse) {
  for (const auto& [flags, change] : flag_cases()) {
    EXPECT_EQ(spec_of(flags), plain_but(change)) << testing::PrintToString(flags);
  }
}

TEST(Options, MeanTheSameAsVariables) {
  for (const auto& [flags, change] : flag_cases()) {
    const bool one_flag = flags.size() == 1 || (flags.size() == 2 && flags[1][0] != '-');
    if (!one_flag || !flags.front().starts_with("--")) continue;
    const OptionRow& row = option_row(flags.front().substr(2));
    if (!row.traits.reads_variable) continue;
    const Environment environment{{row.variable(), flags.size() == 2 ? flags.back() : "1"}};
    EXPECT_EQ(spec_of({}, environment), plain_but(change)) << row.variable();
  }
}

TEST(Options, TakeTheProgramAndItsArgumentsVerbatim) {
  const ParsedCommandLine line = parsed({"-m", "pkg.train", "--lr", "0.1", "-h", "", "[1,2]"});
  EXPECT_EQ(line, (ParsedCommandLine{plain_but([](LaunchSpec& s) {
                                       s.mode = RunMode::module;
                                       s.program = "pkg.train";
                                       s.args = {"--lr", "0.1", "-h", "", "[1,2]"};
                                     }),
                                     {},
                                     {}}));
}

std::string misplaced_in(const Words& line, const Environment& environment = {}) {
  const std::optional<MisplacedFlag> misplaced = parsed(line, environment).misplaced;
  return misplaced ? misplaced->name + ": " + misplaced->hint : "";
}

TEST(MisplacedFlag, IsTheFirstArgumentOfAScript) {
  EXPECT_EQ(misplaced_in({"ok.py", "--nproc-per-node", "4"}),
            "nproc-per-node: --nproc-per-node after ok.py goes to that program; put muster's flags "
            "before it: muster --nproc-per-node ... ok.py");
  EXPECT_EQ(misplaced_in({"--standalone", "ok.py", "--nproc_per_node=4"}).substr(0, 15),
            "nproc-per-node:");
  EXPECT_EQ(misplaced_in({"--run-path", "ok.py", "--max-restarts", "1"}).substr(0, 13),
            "max-restarts:");
  EXPECT_EQ(misplaced_in({"ok.py", "--rdzv-id=7"}).substr(0, 8), "rdzv-id:");
}

TEST(MisplacedFlag, IsNotReportedIfTheProgramMayHaveThatFlag) {
  for (const Words& line : std::vector<Words>{
           {"ok.py", "train", "--nproc-per-node", "4"},
           {"ok.py", "--nproc", "4"},
           {"ok.py", "--log-dir", "logs"},
           {"ok.py", "-h"},
           {"ok.py", "--", "--nproc-per-node"},
           {"--", "ok.py", "--nproc-per-node", "4"},
           {"ok.py"},
           {"--nproc-per-node", "2", "ok.py", "--nproc-per-node", "4"},
           {"-m", "torch.distributed.run", "--nproc-per-node", "4", "x.py"},
           {"--no-python", "torchrun", "--nproc-per-node", "4", "x.py"},
           {"--no-python", "ok.py", "--nproc-per-node", "4"},
           {"torchrun", "--nproc-per-node", "4", "x.py"},
       }) {
    EXPECT_EQ(misplaced_in(line), "") << testing::PrintToString(line);
  }
  EXPECT_EQ(misplaced_in({"ok.py", "--nproc-per-node", "4"}, {{"PET_NPROC_PER_NODE", "2"}}), "");
}

TEST(Options, AskForAProgram) {
  const std::string usage =
      "no program is given; usage: muster [FLAGS] PROGRAM [ARGS...], see --help";
  EXPECT_EQ(complaint_about_line({}), usage);
  EXPECT_EQ(complaint_about_line({"--nnodes=1"}), usage);
  EXPECT_EQ(complaint_about_line({"--log-dir", ""}), usage);
  EXPECT_EQ(complaint_about_line({"--max-restarts=1", "--"}), usage);
  const std::string of_flag = complaint_about_line({"-m", "--log-dir", "train.py"});
  EXPECT_TRUE(of_flag.starts_with("no program is given: train.py is the value of --log-dir; "))
      << of_flag;
  EXPECT_EQ(complaint_about_line({""}), usage);
  EXPECT_EQ(complaint_about_line({"--"}), usage);
}

TEST(Options, NameFlagValueAndRemedyOfJunk) {
  const std::string not_understood =
      " is not understood; give culprit or torchrun, or CAUSE=CODE,...; the causes are user, oom, "
      "gpu, network, signal, shm, disk, stuck, timer, limit, hang, lost, rendezvous, stopped";
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--nproc-per-node", "0"},
       "--nproc-per-node 0: out of range; give 1 or more, or auto, gpu or cpu"},
      {{"--nproc_per_node=foo"},
       "--nproc-per-node foo: not a whole number; give 1 or more, or auto, gpu or cpu"},
      {{"--max-restarts", "-1"}, "--max-restarts -1: out of range; give 0 or more"},
      {{"--monitor-interval", "0"},
       "--monitor-interval 0: out of range; give seconds, more than 0"},
      {{"--shutdown-timeout", "-1"},
       "--shutdown-timeout -1: out of range; give seconds, 0 or more"},
      {{"--stdin=-1"}, "--stdin -1: out of range; give 0 or more, or none"},
      {{"--hang-timeout", "0"},
       "--hang-timeout 0: out of range; give seconds, more than 0, or off"},
      {{"--hang-timeout", "OFF"},
       "--hang-timeout OFF: not a number; give seconds, more than 0, or off"},
      {{"--busy-timeout", "off"}, "--busy-timeout off: not a number; give seconds, more than 0"},
      {{"--exit-code", "1"}, "--exit-code 1: 1" + not_understood},
      {{"--exit-code", ""}, "--exit-code '': ''" + not_understood},
      {{"--exit-code", "lots=3"}, "--exit-code lots=3: lots=3" + not_understood},
      {{"--exit-code", "lost=3,torchrun"},
       "--exit-code lost=3,torchrun: torchrun" + not_understood},
      {{"--exit-code", "lost=3,"}, "--exit-code lost=3,: ''" + not_understood},
      {{"--exit-code", "lost=0"}, "--exit-code lost=0: lost: out of range; give 1 to 255"},
      {{"--exit-code", "lost="}, "--exit-code lost=: lost: not a whole number; give 1 to 255"},
      {{"--exit-code", "lost=256"}, "--exit-code lost=256: lost: out of range; give 1 to 255"},
      {{"--exit-code", "lost=3,oom=4,lost=3"},
       "--exit-code lost=3,oom=4,lost=3: lost is named twice; name each cause once"},
      {{"--event-log-handler", "file"},
       "--event-log-handler file: unknown; give one of null, console, dynamic_rendezvous"},
      {{"--start-method", "thread"},
       "--start-method thread: unknown; give one of spawn, fork, forkserver"},
      {{"--logs-specs", "mine"}, "--logs-specs mine: unknown; give one of default"},
      {{"-r", "4"},
       "--redirects 4: 4 is not understood; give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or "
       "RANK:0..3,RANK:0..3"},
      {{"-t", "0:1,"},
       "--tee 0:1,: '' is not understood; give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or "
       "RANK:0..3,RANK:0..3"},
      {{"--local-ranks-filter", "0,,1"},
       "--local-ranks-filter 0,,1: '' is not a local rank; give for example 0,2"},
      {{"--ranks", "a-b"},
       "--ranks a-b: a-b is neither a rank nor a range; give for example 0,8-15"},
      {{"--ranks", ""}, "--ranks '': '' is neither a rank nor a range; give for example 0,8-15"},
      {{"--log-prefix", "{rnk}"},
       "--log-prefix {rnk}: rnk is not a field; the fields are {time}, {host}, {rank}, "
       "{local_rank}, {role}"},
      {{"--log-dir", "logs/{rank}"},
       "--log-dir logs/{rank}: rank is not a field; the fields are {host}, {node_rank}, {job}, "
       "{start}"},
      {{"--log-dir", "{node_rank}", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
        "a"},
       "--log-dir {node_rank}: the nodes' ranks are not known before they meet; give {host} in "
       "place of {node_rank}"},
      {{"--gpus", "0,,1"},
       "--gpus 0,,1: '' is neither an index nor a UUID; give for example 0,2 or GPU-UUID,MIG-UUID"},
      {{"--gpus", "-1"},
       "--gpus -1: -1 is neither an index nor a UUID; give for example 0,2 or GPU-UUID,MIG-UUID"},
      {{"--gpus", "1,1"}, "--gpus 1,1: 1 is named twice; name each GPU once"},
      {{"--gpu-binding", "own"}, "--gpu-binding own: unknown; give one of shared, exclusive"},
      {{"--numa-binding", "cpu"},
       "--numa-binding cpu: unknown; give one of node, socket, exclusive, core-complex"},
      {{"--python", ""}, "--python '': no interpreter is given; give a path or a name on PATH"},
      {{"--signals-to-handle", "SIGTERM,SIGKILL"},
       "--signals-to-handle SIGTERM,SIGKILL: no program can handle SIGKILL; leave it out"},
      {{"--signals-to-handle", "SIGSTOP"},
       "--signals-to-handle SIGSTOP: no program can handle SIGSTOP; leave it out"},
      {{"--module", "--no-python"},
       "--module and --no-python contradict each other; give one of them"},
      {{"--pass-local-rank", "--use-env"},
       "--pass-local-rank and --use-env contradict each other; give one of them"},
  };
  for (const auto& [flags, expected] : cases)
    EXPECT_EQ(complaint_about(flags), expected);
}

TEST(Options, ComplainAboutTheFirstThingOnly) {
  EXPECT_EQ(complaint_about({"--max-restarts", "x", "--nproc-per-node", "y"}),
            "--nproc-per-node y: not a whole number; give 1 or more, or auto, gpu or cpu");
}

TEST(Options, LetRunPathWinOverModuleAndNoPython) {
  EXPECT_EQ(spec_of({"--run-path", "-m", "--no-python"}).mode, RunMode::run_path);
}

TEST(OptionVariables, AreNamedInComplaints) {
  EXPECT_EQ(complaint_about({}, {{"PET_MAX_RESTARTS", "x"}}),
            "PET_MAX_RESTARTS=x: not a whole number; give 0 or more");
  EXPECT_EQ(complaint_about({}, {{"PET_NNODES", ""}}),
            "PET_NNODES='': not a whole number; give 1 or more, as N or MIN:MAX");
  EXPECT_EQ(complaint_about({}, {{"PET_EVENT_LOG_HANDLER", "x"}}),
            "PET_EVENT_LOG_HANDLER=x: unknown; give one of null, console, dynamic_rendezvous");
}

TEST(OptionVariables, AreNotReadIfTheFlagIsGiven) {
  const Environment environment{
      {"PET_MAX_RESTARTS", "x"}, {"PET_NNODES", ""}, {"PET_NPROC_PER_NODE", "2"}};
  EXPECT_EQ(spec_of({"--max-restarts", "1", "--nnodes", "1"}, environment),
            plain_but([](LaunchSpec& s) {
              s.max_restarts = 1;
              s.nproc_per_node = "2";
            }));
}

TEST(OptionVariables, AreCheckedForEveryFlagWithoutValue) {
  for (const OptionRow& row : option_rows()) {
    if (row.takes_value() || !row.traits.reads_variable) continue;
    const std::string variable = row.variable();
    EXPECT_EQ(complaint_about({}, {{variable, "x"}}).substr(0, variable.size() + 2),
              variable + "=x");
  }
}

TEST(OptionVariables, MayContradictEachOther) {
  EXPECT_EQ(complaint_about({}, {{"PET_MODULE", "1"}, {"PET_NO_PYTHON", "1"}}),
            "--module and --no-python contradict each other; give one of them");
  EXPECT_EQ(spec_of({}, {{"PET_MODULE", "0"}, {"PET_NO_PYTHON", "1"}}).mode, RunMode::direct);
}

TEST(OptionVariables, DoNotCheckTheStartMethod) {
  EXPECT_EQ(spec_despite_warnings({}, {{"PET_START_METHOD", "thread"}}), plain_spec());
}

TEST(OptionVariables, DoNotExistForSomeFlags) {
  const std::map<std::string, std::string> ignored{{"PET_NUMA_BINDING", "numa-binding"},
                                                   {"PET_LOGS_SPECS", "logs-specs"},
                                                   {"PET_PRINT_COMPLETION", "print-completion"},
                                                   {"PET_VERSION", "version"},
                                                   {"PET_HELP", "help"}};
  for (const auto& [variable, flag] : ignored) {
    EXPECT_EQ(warnings_of({}, {{variable, "junk"}}),
              Words({variable + " is ignored: --" + flag + " is read from the command line only"}));
    EXPECT_EQ(spec_despite_warnings({}, {{variable, "junk"}}), plain_spec());
  }
}

TEST(HangTimeouts, HaveNoEffectIfNothingIsRecordedOrWatched) {
  EXPECT_EQ(warnings_of({"--no-recorder", "--hang-timeout", "5", "--busy-timeout", "9"}),
            Words({"--hang-timeout 5 has no effect with --no-recorder",
                   "--busy-timeout 9 has no effect with --no-recorder"}));
  EXPECT_EQ(warnings_of({"--no-recorder", "--record-kernels"}),
            Words({"--record-kernels has no effect with --no-recorder"}));
  EXPECT_EQ(warnings_of({"--hang-timeout", "off", "--busy-timeout", "9", "--on-hang", "stop"}),
            Words({"--busy-timeout 9 has no effect with --hang-timeout off",
                   "--on-hang stop has no effect with --hang-timeout off"}));
}

TEST(ShutdownTimeout, FallsBackToItsOwnVariable) {
  const Environment twelve{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "12"}};
  EXPECT_EQ(spec_of({}, twelve).shutdown_timeout_s, 12);
  EXPECT_EQ(spec_of({"--shutdown-timeout", "3"}, twelve).shutdown_timeout_s, 3);
  Environment both = twelve;
  both["PET_SHUTDOWN_TIMEOUT"] = "4";
  EXPECT_EQ(spec_of({}, both).shutdown_timeout_s, 4);
}

TEST(ShutdownTimeout, NamesTheVariableThatIsJunk) {
  EXPECT_EQ(complaint_about({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", ""}}),
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT='': not a number; give seconds, 0 or more");
  EXPECT_EQ(complaint_about({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "-2"}}),
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=-2: out of range; give seconds, 0 or more");
  EXPECT_EQ(spec_of({"--shutdown-timeout", "3"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "x"}})
                .shutdown_timeout_s,
            3);
}

TEST(LinePrefixTemplate, FallsBackToItsOwnVariable) {
  const Environment variable{{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[${rank}]"}};
  EXPECT_EQ(spec_of({}, variable).log.prefix_template, "[${rank}]");
  EXPECT_EQ(spec_of({"-t3", "--log-line-prefix-template", "x"}, variable).log.prefix_template, "x");
  EXPECT_EQ(spec_of({"-t3", "--log-line-prefix-template", ""}, variable).log.prefix_template,
            "[${rank}]");
}

TEST(LinePrefixTemplate, WarnsIfItHasNoEffect) {
  EXPECT_EQ(warnings_of({"--log-line-prefix-template", "x"}),
            Words({"--log-line-prefix-template has no effect without --tee"}));
  EXPECT_EQ(warnings_of({"-t", "1", "--log-line-prefix-template", "x", "--log-prefix", "y"}),
            Words({"--log-line-prefix-template has no effect beside --log-prefix"}));
}

TEST(Options, SayWhatHasNoEffect) {
  const std::vector<std::pair<Words, Words>> cases{
      {{"--monitor-interval", "5"},
       {"--monitor-interval 5 has no effect here: muster notices at once when a worker ends, and "
        "never polls"}},
      {{"--start-method", "fork"},
       {"--start-method fork has no effect here: workers are always started as new processes"}},
      {{"--no-python", "--python", "python3"}, {"--python python3 has no effect with --no-python"}},
      {{"-t1", "-r3", "--log-dir", "/dev/null"},
       {"--redirects 3 has no effect with --log-dir /dev/null, which keeps no files",
        "--tee 1 has no effect with --log-dir /dev/null, which keeps no files"}},
      {{"-t2", "--duplicate-stdout-filters", "a"},
       {"--duplicate-stdout-filters a has no effect where no stdout is tee'd"}},
      {{"-t0:1,1:1", "--duplicate-stderr-filters", "a"},
       {"--duplicate-stderr-filters a has no effect where no stderr is tee'd"}},
      {{"-r0", "-t0", "--log-dir", "/dev/null"}, {}},
  };
  for (const auto& [flags, expected] : cases)
    EXPECT_EQ(warnings_of(flags), expected);
  EXPECT_EQ(warnings_of({}, {{"PET_MONITOR_INTERVAL", "5"}, {"PET_START_METHOD", "fork"}}),
            Words({"PET_MONITOR_INTERVAL=5 has no effect here: muster notices at once when a "
                   "worker ends, and never polls",
                   "PET_START_METHOD=fork has no effect here: workers are always started as new "
                   "processes"}));
}

TEST(KeepLocalRank, WarnsIfItHasNoEffect) {
  EXPECT_EQ(warnings_of({"--keep-local-rank"}),
            Words({"--keep-local-rank has no effect without --gpu-binding exclusive"}));
  EXPECT_EQ(warnings_of({"--keep-local-rank", "--gpu-binding", "exclusive"}), Words{});
}

TEST(SignalsToHandle, LeavesOutUnknownNamesWithAWarning) {
  const Words flags{"--signals-to-handle", "SIGINT, TERM,SIGFOO,,SIGUSR2"};
  EXPECT_EQ(spec_despite_warnings(flags), plain_but([](LaunchSpec& s) {
              s.signals_to_handle = "SIGINT, TERM,SIGFOO,,SIGUSR2";
              s.stop_signals = {SIGINT, SIGUSR2};
            }));
  const std::string flag =
      "--signals-to-handle 'SIGINT, TERM,SIGFOO,,SIGUSR2': there is no signal ";
  EXPECT_EQ(warnings_of(flags),
            Words({flag + "TERM, it is left out; did you mean SIGTERM?",
                   flag + "SIGFOO, it is left out", flag + "'', it is left out"}));
}

TEST(SignalsToHandle, MayBeEmpty) {
  EXPECT_EQ(spec_despite_warnings({}, {{"PET_SIGNALS_TO_HANDLE", ""}}).stop_signals,
            std::vector<int>{});
}

std::string printed(const Words& args, const Environment& environment = {}) {
  const ParsedCommandLine line = parsed(args, environment);
  EXPECT_EQ(line.warnings, Words{});
  EXPECT_TRUE(std::holds_alternative<TextToPrint>(line.what));
  return std::holds_alternative<TextToPrint>(line.what) ? std::get<TextToPrint>(line.what).text
                                                        : "";
}

TEST(Information, IsPrintedInsteadOfARun) {
  EXPECT_EQ(printed({"--version"}), "muster 1.2.3 (abc)\n");
  EXPECT_EQ(printed({"-h"}), printed({"--nnodes", "x", "--help", "x.py"}));
  EXPECT_EQ(printed({"-h"}).substr(0, 7), "Usage: ");
  EXPECT_EQ(printed({"--print-man"}).substr(0, 4), ".TH ");
  EXPECT_NE(printed({"--print-completion", "bash"}).find("complete "), std::string::npos);
}

TEST(Information, IsPrintedWhateverTheVariablesSay) {
  EXPECT_EQ(printed({"--version"}, {{"PET_STANDALONE", "x"}, {"PET_NNODES", ""}}),
            "muster 1.2.3 (abc)\n");
}

TEST(Information, KnowsThreeShells) {
  EXPECT_EQ(complaint_about({"--print-completion", "fish"}),
            "--print-completion fish: unknown shell; give bash, zsh or tcsh");
}

}  // namespace
}  // namespace muster

#include "launcher/options.h"

#include <algorithm>
#include <csignal>

#include <fmt/format.h>

#include "agent/output/fields.h"
#include "agent/output/prefix.h"
#include "agent/report/job_report.h"
#include "launcher/argument_walk.h"
#include "launcher/help.h"
#include "launcher/option_table.h"
#include "launcher/rendezvous_options.h"
#include "launcher/settings.h"
#include "launcher/values/rank_lists.h"

namespace muster {
namespace {

Parsed<std::string> parse_nproc(const std::string& text) {
  if (std::ranges::count(words_to_type(option_row("nproc-per-node")), text) > 0) return text;
  const Parsed<int> number = parse_int(text, 1);
  if (!number) return problem(number.error() + ", or auto, gpu or cpu");
  return std::to_string(*number);
}

Parsed<std::optional<int>> parse_stdin(const std::string& text) {
  if (text == "none") return std::optional<int>{};
  const Parsed<int> rank = parse_int(text, 0);
  if (!rank) return problem(rank.error() + ", or none");
  return std::optional<int>(*rank);
}

bool is_device(std::string_view item) {
  return item.starts_with("GPU-") || item.starts_with("MIG-") ||
         (!item.empty() && item.find_first_not_of("0123456789") == std::string_view::npos);
}

Parsed<std::vector<std::string>> parse_devices(const std::string& text) {
  std::vector<std::string> devices;
  for (const std::string_view item : split(text, ',')) {
    const std::string device(trim(item));
    if (!is_device(device)) {
      return problem(
          fmt::format("{} is neither an index nor a UUID; give for example 0,2 or "
                      "GPU-UUID,MIG-UUID",
                      shown(device)));
    }
    if (std::ranges::count(devices, device) > 0)
      return problem(fmt::format("{} is named twice; name each GPU once", device));
    devices.push_back(device);
  }
  return devices;
}

// Parses "torchrun,lost=143": an optional policy and the codes of causes.
Parsed<ExitCodes> parse_exit_codes(const std::string& text) {
  ExitCodes codes;
  std::vector<std::string_view> items = split(text, ',');
  const std::vector<std::string_view> policies = words_to_type(option_row("exit-code"));
  if (std::ranges::count(policies, items.front()) > 0) {
    if (items.front() == "torchrun") codes.policy = ExitCodePolicy::torchrun;
    items.erase(items.begin());
  }
  const std::vector<std::string_view> causes = exit_causes();
  for (const std::string_view item : items) {
    const size_t equals = item.find('=');
    const std::string cause(item.substr(0, equals));
    if (equals == item.npos || std::ranges::count(causes, cause) == 0) {
      return problem(
          fmt::format("{} is not understood; give {}, or CAUSE=CODE,...; the causes are {}",
                      shown(item), fmt::join(policies, " or "), fmt::join(causes, ", ")));
    }
    const Parsed<int> code = parse_int(item.substr(equals + 1), 1, 255);
    if (!code) return problem(fmt::format("{}: {}", cause, code.error()));
    if (!codes.by_cause.emplace(cause, *code).second)
      return problem(fmt::format("{} is named twice; name each cause once", cause));
  }
  return codes;
}

std::string not_a_field(const std::string& name, const std::vector<Field>& fields) {
  return fmt::format("{} is not a field; the fields are {}", shown(name), names_of_fields(fields));
}

Parsed<std::string> parse_log_prefix(const std::string& text) {
  const std::vector<Field> fields = log_prefix_fields({});
  const auto filled = fill_fields(text, fields);
  if (!filled) return problem(not_a_field(filled.error(), fields));
  return text;
}

// ": train.py is the value of --log-dir" if the program's name may have become that; else empty.
std::string taken_for_program(std::span<const std::string> args) {
  if (args.size() < 2 || args.back().empty() || args.back().front() == '-') return {};
  return fmt::format(": {} is the value of {}", shown(args.back()), shown(args[args.size() - 2]));
}

void read_program(Settings& settings, std::span<const std::string> args,
                  const std::vector<std::string>& rest, LaunchSpec& spec) {
  const bool module = settings.on("module");
  const bool no_python = settings.on("no-python");
  if (settings.on("run-path")) {
    spec.mode = RunMode::run_path;
  } else if (module && no_python) {
    settings.refuse("--module and --no-python contradict each other; give one of them");
  } else if (module || no_python) {
    spec.mode = module ? RunMode::module : RunMode::direct;
  }
  if (settings.given("python")) {
    spec.python = settings.text("python", "");
    if (spec.python->empty()) {
      settings.refuse_value("python", "no interpreter is given; give a path or a name on PATH");
    }
  }
  if (spec.mode == RunMode::direct) settings.warn_without_effect("python", "with --no-python");
  spec.pass_local_rank = settings.on("pass-local-rank");
  if (spec.pass_local_rank && settings.on("use-env")) {
    settings.refuse("--pass-local-rank and --use-env contradict each other; give one of them");
  }
  if (rest.empty() || rest.front().empty()) {
    settings.refuse(
        fmt::format("no program is given{}; usage: muster [FLAGS] PROGRAM [ARGS...], see --help",
                    rest.empty() ? taken_for_program(args) : ""));
    return;
  }
  spec.program = rest.front();
  spec.args.assign(rest.begin() + 1, rest.end());
}

std::string unknown_signal(std::string_view name) {
  const std::string full = fmt::format("SIG{}", name);
  return fmt::format("there is no signal {}, it is left out{}", shown(name),
                     signal_number(full) ? fmt::format("; did you mean {}?", full) : "");
}

void read_signals(Settings& settings, LaunchSpec& spec) {
  constexpr std::string_view kFlag = "signals-to-handle";
  spec.signals_to_handle = settings.text(kFlag, spec.signals_to_handle);
  for (const std::string_view item : split(spec.signals_to_handle, ',')) {
    const std::string_view name = trim(item);
    const std::optional<int> number = signal_number(name);
    if (!number) {
      settings.warn_of_value(kFlag, unknown_signal(name));
    } else if (*number == SIGKILL || *number == SIGSTOP) {
      settings.refuse_value(kFlag, fmt::format("no program can handle {}; leave it out", name));
    } else if (std::ranges::count(spec.stop_signals, *number) == 0) {
      spec.stop_signals.push_back(*number);
    }
  }
}

// Reserves 5 s for muster's own end and its report if the engine kills 30 s after its stop signal.
void read_shutdown_timeout(Settings& settings, bool is_killed_after_30_s, LaunchSpec& spec) {
  if (is_killed_after_30_s) spec.shutdown_timeout_s = 25;
  const auto parse = [](const std::string& text) { return parse_seconds(text, true); };
  settings.read("shutdown-timeout", spec.shutdown_timeout_s, parse);
  const auto fallback = settings.variable(env::kShutdownTimeout);
  if (settings.given("shutdown-timeout") || !fallback) return;
  const Parsed<double> seconds = parse(*fallback);
  if (!seconds) {
    settings.refuse(
        fmt::format("{}={}: {}", env::kShutdownTimeout, shown(*fallback), seconds.error()));
    return;
  }
  spec.shutdown_timeout_s = *seconds;
}

constexpr int kRequeuesMax = 1000;

// Reads the flags that only Slurm can serve.
void read_requeue(Settings& settings, const std::optional<EngineFacts>& engine, LaunchSpec& spec) {
  settings.read("notice-before", spec.notice_before_s, seconds_above_0);
  if (settings.given("requeue")) {
    spec.requeue_max = kRequeuesMax;
    if (!settings.text("requeue", "").empty())
      settings.read("requeue", spec.requeue_max, int_from(1));
  }
  if (engine && !engine->engine.requeue.program.empty()) return;
  for (const char* const flag : {"notice-before", "requeue"}) {
    if (!settings.given(flag)) continue;
    settings.refuse(fmt::format("--{} works in Slurm jobs only; leave the flag out", flag));
  }
}

void read_monitor_interval(Settings& settings) {
  double ignored = 0;
  settings.read("monitor-interval", ignored, seconds_above_0);
  settings.warn_without_effect("monitor-interval",
                               "here: muster notices at once when a worker ends, and never polls");
}

void read_supervision(Settings& settings, const std::optional<EngineFacts>& engine,
                      LaunchSpec& spec) {
  settings.read("max-restarts", spec.max_restarts, int_from(0));
  read_monitor_interval(settings);
  read_shutdown_timeout(settings, engine && engine->kills_after_30_s, spec);
  read_signals(settings, spec);
  read_requeue(settings, engine, spec);
  settings.read("exit-code", spec.exit_code, parse_exit_codes);
  if (settings.choice("event-log-handler") == "console") spec.event_log = EventLogHandler::console;
}

Parsed<std::optional<double>> parse_hang_timeout(const std::string& text) {
  if (text == "off") return std::optional<double>{};
  const Parsed<double> seconds = parse_seconds(text, false);
  if (!seconds) return problem(seconds.error() + ", or off");
  return std::optional<double>(*seconds);
}

void read_hangs(Settings& settings, LaunchSpec& spec) {
  spec.recorder = !settings.on("no-recorder");
  spec.python_hook = !settings.on("no-python-hook");
  spec.trace = settings.non_blank("trace").value_or("");
  if (!spec.recorder && !spec.trace.empty())
    settings.refuse("--trace shows what the ranks record; leave out --no-recorder, or --trace");
  spec.record_kernels = settings.on("record-kernels");
  std::optional<double> hang_timeout_s = spec.hang.hang_timeout_s;
  settings.read("hang-timeout", hang_timeout_s, parse_hang_timeout);
  spec.hang.off = !hang_timeout_s;
  spec.hang.hang_timeout_s = hang_timeout_s.value_or(spec.hang.hang_timeout_s);
  settings.read("busy-timeout", spec.hang.busy_timeout_s, seconds_above_0);
  const std::string action = settings.choice("on-hang");
  if (action == "report") spec.hang.on_hang = OnHang::report;
  if (action == "restart") spec.hang.on_hang = OnHang::restart;
  if (action == "stop") spec.hang.on_hang = OnHang::stop;
  if (!spec.recorder) settings.warn_without_effect("hang-timeout", "with --no-recorder");
  if (!spec.recorder && spec.record_kernels)
    settings.warn("--record-kernels has no effect with --no-recorder");
  if (spec.recorder && !spec.hang.off) return;
  for (const char* const flag : {"busy-timeout", "on-hang"})
    settings.warn_without_effect(flag,
                                 spec.recorder ? "with --hang-timeout off" : "with --no-recorder");
}

// Refuses a wrong flag but not a wrong PET_START_METHOD, as torchrun does. Neither has an effect.
void check_start_method(Settings& settings) {
  if (settings.text("start-method", "spawn") == "spawn") return;
  if (settings.on_command_line("start-method")) settings.choice("start-method");
  settings.warn_without_effect("start-method", "here: workers are always started as new processes");
}

bool any_worker_has(const StreamsByRank& streams, Streams wanted) {
  const auto has = [wanted](Streams one) {
    return (static_cast<unsigned>(one) & static_cast<unsigned>(wanted)) != 0;
  };
  return streams.by_rank.empty() ? has(streams.all)
                                 : std::ranges::any_of(streams.by_rank, [&](const auto& one) {
                                     return has(one.second);
                                   });
}

void check_files(Settings& settings, const LogSpec& log) {
  if (log.dir == "/dev/null") {
    for (const auto& [name, streams] : {std::pair("redirects", log.redirects), {"tee", log.tee}}) {
      if (!any_worker_has(streams, Streams::both)) continue;
      settings.warn_without_effect(name, "with --log-dir /dev/null, which keeps no files");
    }
  }
  if (!any_worker_has(log.tee, Streams::out))
    settings.warn_without_effect("duplicate-stdout-filters", "where no stdout is tee'd");
  if (!any_worker_has(log.tee, Streams::err))
    settings.warn_without_effect("duplicate-stderr-filters", "where no stderr is tee'd");
}

void check_prefixes(Settings& settings, const LogSpec& log) {
  const bool template_typed = settings.on_command_line("log-line-prefix-template");
  if (template_typed && log.tee == StreamsByRank{}) {
    settings.warn("--log-line-prefix-template has no effect without --tee");
  } else if (template_typed && settings.on_command_line("log-prefix")) {
    settings.warn("--log-line-prefix-template has no effect beside --log-prefix");
  }
}

// Checks the fields of --log-dir; the agent fills them in, since it may have to generate the run
// id. `later`: true if this process only starts the processes that will be the nodes.
void check_log_dir(Settings& settings, const LaunchSpec& spec, bool later) {
  if (!spec.log.dir) return;
  std::vector<Field> fields = log_dir_fields(spec, spec.rendezvous.id, "");
  const auto filled = fill_fields(*spec.log.dir, fields);
  if (!filled) return settings.refuse_value("log-dir", not_a_field(filled.error(), fields));
  std::erase_if(fields, [](const Field& field) {
    return field.name == kNodeRankField && field.value.empty();
  });
  if (later || fill_fields(*spec.log.dir, fields)) return;
  settings.refuse_value("log-dir",
                        "the nodes' ranks are not known before they meet; give {host} in place of "
                        "{node_rank}");
}

void read_output(Settings& settings, LogSpec& log) {
  settings.choice("logs-specs");
  if (const std::string dir = settings.text("log-dir", ""); !dir.empty()) log.dir = dir;
  settings.read("redirects", log.redirects, parse_streams);
  settings.read("tee", log.tee, parse_streams);
  log.prefix_template = settings.text("log-line-prefix-template", "");
  if (log.prefix_template.empty()) {
    log.prefix_template = settings.variable(env::kLogLinePrefixTemplate).value_or("");
  }
  settings.read("log-prefix", log.prefix, parse_log_prefix);
  if (!settings.text("local-ranks-filter", "").empty()) {
    settings.read("local-ranks-filter", log.local_ranks_filter, parse_local_ranks);
  }
  settings.read("ranks", log.ranks, parse_rank_ranges);
  log.duplicate_stdout_filters = parse_escaped_list(settings.text("duplicate-stdout-filters", ""));
  log.duplicate_stderr_filters = parse_escaped_list(settings.text("duplicate-stderr-filters", ""));
  check_prefixes(settings, log);
  check_files(settings, log);
}

NumaBinding numa_binding_named(std::string_view name) {
  if (name == "node") return NumaBinding::node;
  if (name == "socket") return NumaBinding::socket;
  if (name == "exclusive") return NumaBinding::exclusive;
  return name == "core-complex" ? NumaBinding::core_complex : NumaBinding::none;
}

void read_placement(Settings& settings, PlacementSpec& placement) {
  settings.read("gpus", placement.gpus, parse_devices);
  if (settings.choice("gpu-binding") == "exclusive") placement.gpu_binding = GpuBinding::exclusive;
  placement.virtual_local_rank = settings.on("virtual-local-rank");
  placement.keep_local_rank = settings.on("keep-local-rank");
  placement.numa_binding = numa_binding_named(settings.choice("numa-binding"));
  placement.report_bindings = settings.on("report-bindings");
  if (placement.keep_local_rank && placement.gpu_binding != GpuBinding::exclusive &&
      !placement.virtual_local_rank) {
    settings.warn("--keep-local-rank has no effect without --gpu-binding exclusive");
  }
}

// The engine's facts and what the flags leave of them.
struct Engine {
  std::optional<EngineFacts> facts;
  EngineUse use;

  const EngineFacts* meets() const { return use.meets ? &*facts : nullptr; }
};

Engine read_engine(Settings& settings, const Environment& environment, const TextOfFile& text_of) {
  Engine engine;
  const std::string family = settings.choice("engine");
  EngineOutcome found = find_engine(environment, text_of, family.empty() ? "auto" : family);
  if (!found) {
    settings.refuse(std::move(found.error()));
  } else if (*found) {
    engine.facts = std::move(*found);
    engine.use = use_engine(settings, *engine.facts);
  }
  return engine;
}

// Checks scripts only: an executable or a module may itself be a launcher (torchrun, accelerate). A
// flag that muster was given too, by a flag or variable, is the program's own.
std::optional<MisplacedFlag> find_misplaced(const Settings& settings, const LaunchSpec& spec) {
  const bool script = spec.mode == RunMode::script || spec.mode == RunMode::run_path;
  if (!script || !spec.program.ends_with(".py") || spec.args.empty()) return std::nullopt;
  const std::string& first = spec.args.front();
  if (!first.starts_with("--")) return std::nullopt;
  std::string name = first.substr(2, first.find('=') - 2);
  std::replace(name.begin(), name.end(), '_', '-');
  const OptionRow* const row = find_option(name);
  if (row == nullptr || !row->traits.launchers_only || settings.given(name)) return std::nullopt;
  return MisplacedFlag{
      name,
      fmt::format(
          "{} after {} goes to that program; put muster's flags before it: muster --{} ... {}",
          shown(first), shown(spec.program), name, shown(spec.program))};
}

LaunchSpec read_spec(Settings& settings, std::span<const std::string> args,
                     const std::vector<std::string>& rest, const Engine& engine) {
  LaunchSpec spec;
  read_program(settings, args, rest, spec);
  settings.read("nproc-per-node", spec.nproc_per_node, parse_nproc);
  spec.role = settings.text("role", spec.role);
  settings.read("stdin", spec.stdin_rank, parse_stdin);
  spec.rendezvous = read_rendezvous(settings, engine.meets());
  spec.task = engine.use.task;
  if (engine.facts) spec.engine = engine.facts->engine;
  read_supervision(settings, engine.facts, spec);
  read_hangs(settings, spec);
  check_start_method(settings);
  read_output(settings, spec.log);
  check_log_dir(settings, spec, engine.use.start.has_value());
  read_placement(settings, spec.placement);
  return spec;
}

Result<ParsedCommandLine> print_information(const WalkedArguments& walked,
                                            std::string_view version) {
  const auto text = [](std::string content) {
    return ParsedCommandLine{TextToPrint{std::move(content)}, {}, {}};
  };
  if (walked.information == "help") return text(help_text());
  if (walked.information == "version") return text(fmt::format("{}\n", version));
  if (walked.information == "print-man") return text(man_page());
  const std::string& shell = walked.values.at("print-completion");
  if (const auto script = completion_script(shell)) return text(*script);
  return fail(
      ExitCode::usage,
      fmt::format("--print-completion {}: unknown shell; give bash, zsh or tcsh", shown(shell)));
}

}  // namespace

Result<ParsedCommandLine> parse_command_line(std::span<const std::string> args,
                                             const Environment& environment,
                                             std::string_view version, const TextOfFile& text_of) {
  const Result<WalkedArguments> walked = walk_arguments(args);
  if (!walked) return tl::unexpected(walked.error());
  if (!walked->information.empty()) return print_information(*walked, version);
  Settings settings(walked->values, environment);
  const Engine engine = read_engine(settings, environment, text_of);
  LaunchSpec spec = read_spec(settings, args, walked->rest, engine);
  if (settings.error()) return tl::unexpected(*settings.error());
  if (engine.use.start) return ParsedCommandLine{*engine.use.start, {}};
  std::optional<MisplacedFlag> misplaced;
  if (!walked->separated) misplaced = find_misplaced(settings, spec);
  std::vector<std::string> warnings = settings.take_warnings();
  if (!engine.use.line.empty()) warnings.insert(warnings.begin(), engine.use.line);
  return ParsedCommandLine{std::move(spec), std::move(warnings), std::move(misplaced)};
}

}  // namespace muster

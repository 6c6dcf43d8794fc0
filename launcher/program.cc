#include "launcher/program.h"

#include <string_view>

#include <fmt/format.h>

#include "agent/output/fields.h"
#include "agent/process/helper_command.h"
#include "launcher/program_file.h"
#include "launcher/values/values.h"

namespace muster {
namespace {

constexpr const char* kDefaultPath = "/bin:/usr/bin";
constexpr std::string_view kHowToNamePython =
    "install Python, or name an interpreter by --python or PYTHON_EXEC";

// Does what torchrun's --run-path does in its own process: runs the script as __main__ with its
// folder on sys.path, and records an uncaught exception as torch's @record would. Must not contain
// a dollar sign, because worker arguments undergo substitution.
constexpr std::string_view kRunPathProgram = R"(import json, os, runpy, sys, time, traceback
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
try:
    import faulthandler
    faulthandler.enable()
except Exception:
    pass
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except Exception as error:
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        extra = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
        text = "%s: %s" % (type(error).__name__, error)
        try:
            with open(path, "w") as file:
                json.dump({"message": {"message": text, "extraInfo": extra}}, file)
        except OSError:
            pass
    raise
)";

std::string path_list(const HostView& host) {
  return lookup(host.environment, "PATH").value_or(kDefaultPath);
}

// The path at which to inspect what the user typed; the path that is executed stays as typed.
std::string seen_from(const HostView& host, std::string_view path) {
  if (path.starts_with('/') || host.cwd.empty()) return std::string(path);
  return fmt::format("{}/{}", host.cwd, path);
}

bool is_program(const HostView& host, const std::string& path) {
  return inspect_program(seen_from(host, path)).executable;
}

Result<std::string> named_python(const HostView& host, const std::string& name,
                                 std::string_view named_by) {
  if (name.find('/') == std::string::npos) {
    const std::string found = find_on_path(name, path_list(host));
    if (!found.empty()) return found;
    return fail(ExitCode::not_found, fmt::format("{} {}: no such program on PATH; {}", named_by,
                                                 shown(name), kHowToNamePython));
  }
  if (is_program(host, name)) return name;
  const bool missing = inspect_program(seen_from(host, name)).kind == FileKind::missing;
  return fail(missing ? ExitCode::not_found : ExitCode::cannot_execute,
              fmt::format("{} {}: {}; {}", named_by, shown(name),
                          missing ? "there is no such file" : "it is not an executable file",
                          kHowToNamePython));
}

// True if muster is in an environment of pipx or `uv tool`, whose Python has nothing else.
bool is_of_a_tool(const std::string& muster_directory) {
  for (const char* mark : {"/../pipx_metadata.json", "/../uv-receipt.toml"}) {
    if (inspect_program(muster_directory + mark).kind != FileKind::missing) return true;
  }
  return false;
}

Result<std::string> find_python(const LaunchSpec& spec, const HostView& host) {
  if (spec.python) return named_python(host, *spec.python, "--python");
  const std::string named = lookup(host.environment, env::kPythonExec).value_or("");
  if (!named.empty()) return named_python(host, named, env::kPythonExec);
  std::vector<std::string> candidates;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = lookup(host.environment, variable).value_or("");
    if (!prefix.empty()) candidates.push_back(fmt::format("{}/bin/python", prefix));
  }
  if (!host.muster_directory.empty() && !is_of_a_tool(host.muster_directory)) {
    candidates.push_back(host.muster_directory + "/python");
    candidates.push_back(host.muster_directory + "/python3");
  }
  for (const std::string& candidate : candidates) {
    if (is_program(host, candidate)) return candidate;
  }
  for (const std::string_view name : {"python3", "python"}) {
    const std::string found = find_on_path(name, path_list(host));
    if (!found.empty()) return found;
  }
  return fail(ExitCode::not_found,
              fmt::format("no Python found for {}: none in VIRTUAL_ENV, in CONDA_PREFIX, beside "
                          "muster or on PATH; {}",
                          shown(spec.program), kHowToNamePython));
}

Result<Command> with_python(const LaunchSpec& spec, const HostView& host,
                            std::vector<std::string> between) {
  const Result<std::string> python = find_python(spec, host);
  if (!python) return tl::unexpected(python.error());
  Command command{*python, {*python, "-u"}};
  command.argv.insert(command.argv.end(), between.begin(), between.end());
  command.argv.push_back(spec.program);
  return command;
}

std::string with_slash(const std::string& path) {
  return path.find('/') == std::string::npos ? "./" + path : path;
}

bool is_python_name(std::string_view path) {
  return path.ends_with(".py") || path.ends_with(".pyw") || path.ends_with(".pyc");
}

tl::unexpected<Error> no_program(const LaunchSpec& spec, const ProgramFile& file) {
  return cannot_run(file.kind == FileKind::missing ? ExitCode::not_found : ExitCode::cannot_execute,
                    spec.program, file.reason);
}

tl::unexpected<Error> missing_program(const LaunchSpec& spec, const ProgramFile& file) {
  const bool bare = spec.program.find('/') == std::string::npos;
  const bool script = spec.mode == RunMode::run_path || is_python_name(spec.program);
  if (!file.reason.empty() && bare && !script) {
    return cannot_run(ExitCode::not_found, spec.program,
                      "not found on PATH; in this folder: " + file.reason);
  }
  if (!file.reason.empty()) return no_program(spec, file);
  const std::string where = spec.mode == RunMode::direct
                                ? (bare ? "no such program on PATH" : "no such file")
                            : bare && !script ? "no such file here and no such program on PATH"
                                              : "no such file";
  return cannot_run(ExitCode::not_found, spec.program, where + "; check the name and the folder");
}

tl::unexpected<Error> folder_as_program(const LaunchSpec& spec) {
  return cannot_run(ExitCode::cannot_execute, spec.program,
                    "it is a folder without __main__.py; name the program within it");
}

tl::unexpected<Error> not_executable(const LaunchSpec& spec) {
  return cannot_run(ExitCode::cannot_execute, spec.program,
                    spec.mode == RunMode::direct
                        ? "it is not executable; make it so by chmod +x"
                        : "it is not executable; make it so by chmod +x, or name it .py if it is "
                          "Python");
}

tl::unexpected<Error> no_known_format(const LaunchSpec& spec, bool text) {
  return cannot_run(
      ExitCode::cannot_execute, spec.program,
      text ? "it is text without a #! line; add one, or name it .py if it is Python"
           : "this system cannot execute its format; rebuild it, or give its interpreter as the "
             "program");
}

// Checks a file as the kernel would when it is executed directly.
Result<Command> executed(const LaunchSpec& spec, const HostView& host, const std::string& path,
                         const ProgramFile& file) {
  if (!file.executable) return not_executable(spec);
  Result<void> fine;
  if (file.kind == FileKind::elf) {
    fine = check_elf(spec.program, file.head);
  } else if (file.kind == FileKind::hash_bang) {
    fine = check_hash_bang(spec.program, parse_hash_bang(file.head), path_list(host));
  } else if (file.kind != FileKind::unreadable) {  // Unreadable, yet executable: execve decides.
    return no_known_format(spec, file.kind == FileKind::text);
  }
  if (!fine) return tl::unexpected(fine.error());
  return Command{with_slash(path), {spec.program}};
}

bool has_extension(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.find('.', 1) != std::string_view::npos;
}

bool names_python(const HashBang& line) {
  const std::string_view word =
      line.interpreter.ends_with("/env") ? std::string_view(line.argument) : line.interpreter;
  return word.substr(word.rfind('/') + 1).starts_with("python");
}

// torchrun runs any program with Python; we do so unless the file suggests otherwise.
bool is_for_python(const LaunchSpec& spec, const ProgramFile& file) {
  if (file.kind == FileKind::stream) return true;
  if (is_python_name(spec.program)) return true;
  if (file.kind == FileKind::zip) return !file.executable || spec.program.ends_with(".pyz");
  if (file.kind == FileKind::text) return !has_extension(spec.program);
  return file.kind == FileKind::hash_bang && !file.executable &&
         names_python(parse_hash_bang(file.head));
}

// `here` is the result of inspecting the name in the current folder.
Result<Command> found_on_path(const LaunchSpec& spec, const HostView& host,
                              const ProgramFile& here) {
  const std::string path = find_on_path(spec.program, path_list(host));
  if (path.empty()) return missing_program(spec, here);
  return executed(spec, host, path, inspect_program(path));
}

Result<Command> resolve_script(const LaunchSpec& spec, const HostView& host) {
  if (spec.program == "-") return with_python(spec, host, {});  // The program comes from stdin.
  const std::string path = seen_from(host, spec.program);
  const ProgramFile file = inspect_program(path);
  const bool bare = spec.program.find('/') == std::string::npos;
  const bool may_be_on_path = bare && !is_python_name(spec.program);
  if (file.kind == FileKind::directory) {
    if (inspect_program(path + "/__main__.py").kind != FileKind::missing) {
      return with_python(spec, host, {});
    }
    const bool elsewhere = may_be_on_path && !find_on_path(spec.program, path_list(host)).empty();
    return elsewhere ? found_on_path(spec, host, file) : folder_as_program(spec);
  }
  if (file.kind == FileKind::missing || file.kind == FileKind::out_of_reach) {
    if (may_be_on_path) return found_on_path(spec, host, file);
    return missing_program(spec, file);
  }
  if (is_for_python(spec, file)) {
    if (file.kind == FileKind::unreadable) return no_program(spec, file);
    return with_python(spec, host, {});
  }
  if (file.kind == FileKind::unreadable && !file.executable) return no_program(spec, file);
  return executed(spec, host, spec.program, file);
}

Result<Command> resolve_direct(const LaunchSpec& spec, const HostView& host) {
  const ProgramFile file = inspect_program(seen_from(host, spec.program));
  if (spec.program.find('/') == std::string::npos) {
    const bool only_here = file.executable && find_on_path(spec.program, path_list(host)).empty();
    if (!only_here) return found_on_path(spec, host, {});
    return cannot_run(
        ExitCode::not_found, spec.program,
        "no such program on PATH; for the file in this folder give ./" + shown(spec.program));
  }
  if (file.kind == FileKind::missing) return missing_program(spec, file);
  if (file.kind == FileKind::directory) return folder_as_program(spec);
  if (!file.reason.empty() && !file.executable) return no_program(spec, file);
  return executed(spec, host, spec.program, file);
}

Result<Command> resolve_run_path(const LaunchSpec& spec, const HostView& host) {
  const ProgramFile file = inspect_program(seen_from(host, spec.program));
  if (file.kind == FileKind::missing) return missing_program(spec, file);
  if (!file.reason.empty()) return no_program(spec, file);
  return with_python(spec, host, {"-c", std::string(kRunPathProgram)});
}

Result<Command> resolve_by_mode(const LaunchSpec& spec, const HostView& host) {
  switch (spec.mode) {
    case RunMode::script:
      return resolve_script(spec, host);
    case RunMode::module:
      return with_python(spec, host, {"-m"});
    case RunMode::direct:
      return resolve_direct(spec, host);
    case RunMode::run_path:
      return resolve_run_path(spec, host);
  }
  return fail(ExitCode::internal, "no such run mode");
}

}  // namespace

Result<Command> resolve_command(const LaunchSpec& spec, const HostView& host) {
  Result<Command> command = resolve_by_mode(spec, host);
  if (!command) return command;
  command->first_arg = command->argv.size();
  command->argv.insert(command->argv.end(), spec.args.begin(), spec.args.end());
  command->pass_local_rank = spec.pass_local_rank;
  return command;
}

std::vector<std::string> worker_argv(const Command& command, int local_rank) {
  const std::string rank = std::to_string(local_rank);
  std::vector<std::string> argv;
  for (std::size_t i = 0; i < command.argv.size(); ++i) {
    if (command.pass_local_rank && i == command.first_arg) argv.push_back("--local-rank=" + rank);
    argv.push_back(i == 0 ? command.argv[i]
                          : fill_template(command.argv[i], {{"local_rank", rank}}));
  }
  if (command.pass_local_rank && command.first_arg >= command.argv.size()) {
    argv.push_back("--local-rank=" + rank);
  }
  return argv;
}

}  // namespace muster

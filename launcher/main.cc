// The main program of muster: parse, check the program to run, become the front, fork the agent.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/job/agent.h"
#include "agent/job/cannot_start.h"
#include "agent/job/node_setup.h"
#include "agent/meeting/pmi_child.h"
#include "agent/placement/nvml.h"
#include "agent/process/spawn.h"
#include "agent/stacks/stack_child.h"
#include "launcher/engines/slurm_step_command.h"
#include "launcher/front.h"
#include "launcher/options.h"
#include "launcher/program.h"
#include "launcher/program_file.h"
#include "launcher/slurm_step.h"
#include "launcher/version.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/process_limit.h"
#include "rendezvous/base/stderr_line.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

int complain(const Error& error) {
  print_line(error.message);
  return static_cast<int>(error.code);
}

// Opens /dev/null in place of closed standard streams: otherwise the next file that muster opens
// would get such a number, and a worker's output would end up in that file.
void fill_standard_descriptors() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

std::string directory_of_this_executable() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
}

// Fails if the current folder, in which workers start, has been removed or cannot be read.
Result<std::string> current_directory() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::current_path(error);
  if (!error) return path.native();
  return fail(
      ExitCode::environment,
      fmt::format(
          "cannot read the current directory: {} (it may have been removed: cd to another one)",
          error.message()));
}

// Makes Linux send us SIGTERM once the thread that started us has ended (PR_SET_PDEATHSIG in
// prctl(2)): a caller such as a notebook's kernel may be killed before it can stop us.
Result<void> end_with_caller(Environment& environment) {
  const auto found = environment.find(std::string(env::kEndWith));
  if (found == environment.end()) return {};
  const auto caller = whole_number<pid_t>(found->second);
  environment.erase(found);
  if (!caller || prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != *caller) {
    return fail(ExitCode::environment,
                fmt::format("{} does not name the process that started this one: it may be gone; "
                            "unset it",
                            env::kEndWith));
  }
  return {};
}

std::string text_of_file(std::string_view path) {
  std::ifstream file{std::string(path)};
  return {std::istreambuf_iterator<char>(file), {}};
}

int launch(const ParsedCommandLine& line, const Environment& environment) {
  const auto& spec = std::get<LaunchSpec>(line.what);
  const Result<std::string> cwd = current_directory();
  if (!cwd) return complain(cwd.error());
  const Result<unsigned long> descriptor_limit =
      make_room_for_descriptors(DescriptorNeeds::of(spec));
  if (!descriptor_limit) return complain(descriptor_limit.error());
  const Result<Command> command =
      resolve_command(spec, {environment, *cwd, directory_of_this_executable()});
  if (!command) {
    const int code = complain(command.error());
    tell_that_it_cannot_start(spec, command.error());
    return code;
  }

  AgentInput input;
  input.spec = spec;
  input.program = {command->executable, (spec.mode == RunMode::module ? "-m " : "") + spec.program,
                   [&command, first = spec.task ? spec.task->local_rank : 0](int local_rank) {
                     return worker_argv(*command, first + local_rank);
                   }};
  input.environment = environment;
  input.warnings = line.warnings;
  if (line.misplaced && !names_flag(spec.program, line.misplaced->name)) {
    input.warnings.push_back(line.misplaced->hint);
  }
  return run_front(spec.stop_signals, [&input, &descriptor_limit](AgentContext context) {
    context.descriptor_limit = *descriptor_limit;
    try {
      return run_agent(input, context);
    } catch (const std::system_error& error) {  // Usually a thread could not be started.
      return complain(
          {ExitCode::environment, "cannot go on: " + call_failed("a call", error.code().value())});
    } catch (const std::exception& error) {
      return complain({ExitCode::environment, fmt::format("cannot go on: {}", error.what())});
    }
  });
}

int run(const std::vector<std::string>& args) {
  // Hidden commands, which HelperProcess runs in killable children.
  if (args == std::vector<std::string>{"--internal-devices"}) return devices_child_main();
  if (args == std::vector<std::string>{"--internal-device-users"}) return device_users_child_main();
  if (!args.empty() && args.front() == kStacksFlag)
    return stacks_child_main({args.begin() + 1, args.end()});
  if (!args.empty() && args.front() == kPmiFlag)
    return pmi_child_main({args.begin() + 1, args.end()});
  if (args.size() == 2 && args.front() == kSlurmTimeLeftFlag)
    return slurm_time_left_child_main(args.back(), current_environment());
  if (args.size() >= 2 && args.front() == kSlurmRequeueFlag)
    return slurm_requeue_child_main({args.begin() + 1, args.end()}, current_environment());

  fill_standard_descriptors();
  Environment environment = current_environment();
  const Result<void> bound = end_with_caller(environment);
  if (!bound) return complain(bound.error());
  const Result<ParsedCommandLine> parsed =
      parse_command_line(args, environment, version_line(), text_of_file);
  if (!parsed) return complain(parsed.error());
  if (const auto* text = std::get_if<TextToPrint>(&parsed->what)) {
    const bool written =
        std::fwrite(text->text.data(), 1, text->text.size(), stdout) == text->text.size();
    if (written && std::fflush(stdout) == 0) return 0;
    return complain({ExitCode::environment,
                     fmt::format("cannot write to standard output: {}", std::strerror(errno))});
  }
  if (const auto* step = std::get_if<StepToStart>(&parsed->what))
    return run_slurm_step(*step, args, environment);
  return launch(*parsed, environment);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  return muster::run(std::vector<std::string>(argv + 1, argv + argc));
}

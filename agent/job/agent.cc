#include "agent/job/agent.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/control_channel.h"
#include "agent/job/agent_loop.h"
#include "agent/output/fields.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/base/stderr_line.h"
#include "rendezvous/membership/random_ids.h"

namespace muster {
namespace {

// A random UUID, version 4 (RFC 9562), which torchrun, too, uses as run id of a single-node job.
std::string random_uuid() {
  membership::Nonce b = random_nonce();
  b[6] = static_cast<unsigned char>((b[6] & 0x0f) | 0x40);
  b[8] = static_cast<unsigned char>((b[8] & 0x3f) | 0x80);
  std::string text = fmt::format("{:02x}", fmt::join(b, ""));
  for (const size_t at : {20U, 16U, 12U, 8U})
    text.insert(at, 1, '-');
  return text;
}

// The command line of the signal witness. Empty for a shell or a shell script: a signal that finds
// the shell by its command line need not reach what the shell runs.
std::vector<std::string> looks_of(const WorkerProgram& program) {
  std::string line;
  std::ifstream file(program.executable);
  std::getline(file, line);
  const bool is_script = line.starts_with("#!") && line.find("sh") != std::string::npos;
  if (is_script || program.executable.ends_with("sh")) return {};
  return program.argv(0);
}

// The first of these folders that is writable, in the order of Python's tempfile.
std::string usable_temp_dir(const Environment& environment, const std::string& cwd) {
  const auto variable = [&environment](const char* name) {
    return lookup(environment, name).value_or("");
  };
  for (const std::string& candidate :
       {variable("TMPDIR"), variable("TEMP"), variable("TMP"), std::string("/tmp"),
        std::string("/var/tmp"), std::string("/usr/tmp")}) {
    struct stat info{};
    if (candidate.starts_with('/') && stat(candidate.c_str(), &info) == 0 &&
        S_ISDIR(info.st_mode) && access(candidate.c_str(), W_OK | X_OK) == 0) {
      return candidate;
    }
  }
  return cwd;
}

JobFolders job_folders(const Environment& environment) {
  std::error_code no_folder;
  JobFolders folders;
  folders.cwd = std::filesystem::current_path(no_folder).string();
  folders.temp_dir = usable_temp_dir(environment, folders.cwd);
  return folders;
}

Result<std::unique_ptr<Output>> start_output(const LaunchSpec& spec, const std::string& run_id,
                                             const JobFolders& folders) {
  OutputOptions options;
  options.log = spec.log;
  if (options.log.dir) {
    options.log.dir =
        fill_fields(*options.log.dir, log_dir_fields(spec, run_id, own_hostname())).value();
  }
  options.run_id = run_id;
  options.role = spec.role;
  options.hostname = own_hostname();
  if (spec.task) options.first_local_rank = spec.task->local_rank;
  options.temp_dir = folders.temp_dir;
  return Output::start(std::move(options));
}

// Grows the descriptor table before threads share it: after that, the kernel waits for all CPUs
// each time it grows (synchronize_rcu() in expand_fdtable(), fs/file.c), 10 ms and more.
void grow_descriptor_table(int any_fd) {
  constexpr int kDescriptors = 1000;  // Below the usual soft limit.
  const UniqueFd high(fcntl(any_fd, F_DUPFD_CLOEXEC, kDescriptors));
}

int run_job(const AgentInput& input, const AgentContext& context) {
  auto witness = std::make_unique<SignalWitness>(looks_of(input.program));  // Before any thread.
  grow_descriptor_table(context.control_fd);
  const std::string& id = input.spec.rendezvous.id;
  std::string run_id = id.empty() ? random_uuid() : id;
  JobFolders folders = job_folders(input.environment);
  Result<std::unique_ptr<Output>> output = start_output(input.spec, run_id, folders);
  if (!output) {
    print_line(output.error().message);
    return static_cast<int>(output.error().code);
  }
  auto loop = std::make_unique<AgentLoop>(input, context, std::move(run_id), std::move(folders),
                                          std::move(witness), std::move(*output));
  const int exit_code = loop->run();
  // A thread that is stuck in a write may wake up at any time: the objects that it uses stay.
  if (loop->abandons_output()) (void)loop.release();
  return exit_code;
}

}  // namespace

int run_agent(const AgentInput& input, const AgentContext& context) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "muster-agent");
  const UniqueFd to_front(fcntl(context.control_fd, F_DUPFD_CLOEXEC, 0));
  const int exit_code = run_job(input, context);
  send_control(to_front.get(), {ControlKind::exiting, exit_code});
  _exit(exit_code);
}

}  // namespace muster

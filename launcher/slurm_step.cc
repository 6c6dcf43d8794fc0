#include "launcher/slurm_step.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/spawn.h"
#include "launcher/engines/slurm_step_command.h"
#include "launcher/helper_command.h"
#include "launcher/program_file.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/base/random.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

constexpr auto kSlurmAnswers = std::chrono::seconds(30);
constexpr size_t kTokenBytes = 32;
constexpr std::array kPassedOn{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

void say_step(const std::string& text) {
  const std::string line = "muster: " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string random_hex(size_t bytes) {
  std::string raw(bytes, '\0');
  fill_randomly(raw.data(), raw.size());
  return to_hex(raw);
}

// srun in a session of its own: a key press on the terminal reaches only this process, and a signal
// that srun gets itself makes it kill the step at once. So signals go to the step, by scancel.
class SlurmStep {
 public:
  SlurmStep(SlurmStepCommand command, std::string job, std::string name)
      : command_(std::move(command)), job_(std::move(job)), name_(std::move(name)) {}

  int run();

 private:
  Result<SpawnedProcess> start();
  void on_signal(int signal);
  void pass_on(int signal);

  const SlurmStepCommand command_;
  const std::string job_;
  const std::string name_;
  int pidfd_ = -1;
  bool stop_requested_ = false;
};

Result<SpawnedProcess> SlurmStep::start() {
  const auto path = command_.environment.find("PATH");
  SpawnRequest request;
  request.executable =
      find_on_path("srun", path == command_.environment.end() ? "" : path->second);
  if (request.executable.empty()) {
    return fail(ExitCode::environment,
                fmt::format("Slurm has reserved nodes for job {}, and there is no srun on PATH to "
                            "start muster on them; put it there, or give --nnodes 1 for a job on "
                            "this machine alone",
                            job_));
  }
  request.argv = command_.argv;
  request.environment = environment_strings(command_.environment);
  return spawn(request);
}

int SlurmStep::run() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kPassedOn)
    sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const UniqueFd signal_fd(signalfd(-1, &signals, SFD_CLOEXEC));
  const Result<SpawnedProcess> srun = start();
  if (!srun || !signal_fd) {
    say_step(srun ? fmt::format("cannot start srun: {}", std::strerror(errno)) : srun.error().message);
    return static_cast<int>(srun ? ExitCode::environment : srun.error().code);
  }
  const UniqueFd pidfd(srun->pidfd);
  pidfd_ = pidfd.get();
  for (;;) {
    std::array<pollfd, 2> fds{{{pidfd.get(), POLLIN, 0}, {signal_fd.get(), POLLIN, 0}}};
    poll(fds.data(), fds.size(), -1);
    signalfd_siginfo info{};
    if ((fds[1].revents & POLLIN) != 0 && read(signal_fd.get(), &info, sizeof info) == sizeof info)
      on_signal(static_cast<int>(info.ssi_signo));
    if ((fds[0].revents & POLLIN) != 0) break;
  }
  siginfo_t info{};
  waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED);
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

// The second key press ends the step at once, as it does with a job of one node.
void SlurmStep::on_signal(int signal) {
  const bool again = stop_requested_ && signal == SIGINT;
  if (signal != SIGUSR1 && signal != SIGUSR2) stop_requested_ = true;
  pass_on(again ? SIGKILL : signal);
}

// A step that has not begun has no tasks to tell; srun gives it up.
void SlurmStep::pass_on(int signal) {
  const auto listing =
      run_helper({"squeue", "-s", "-j", job_, "-h", "-o", "%i %j"}, command_.environment, kSlurmAnswers);
  const std::string step = listing ? step_id_in(listing->printed, name_) : "";
  if (listing && step.empty() && listing->exit_code == 0) {
    syscall(SYS_pidfd_send_signal, pidfd_, SIGTERM, nullptr, 0);
    return;
  }
  const std::string target = step.empty() ? job_ : step;
  const auto sent = run_helper({"scancel", fmt::format("--signal=SIG{}", sigabbrev_np(signal)), target},
                               command_.environment, kSlurmAnswers);
  const Error* const error = !listing ? &listing.error() : !sent ? &sent.error() : nullptr;
  if (error != nullptr) {
    say_step(fmt::format("cannot pass SIG{} on to the step: {}; try again, or scancel {}",
                     sigabbrev_np(signal), error->message, job_));
  }
}

}  // namespace

int run_slurm_step(const StepToStart& step, const std::vector<std::string>& args,
                   const Environment& environment) {
  std::error_code unknown;
  SlurmStepNames names;
  names.muster = std::filesystem::read_symlink("/proc/self/exe", unknown);
  names.step = "muster-" + random_hex(4);
  names.token = random_hex(kTokenBytes);
  SlurmStepCommand command = slurm_step_command(step, names, args, environment);
  const auto job = environment.find("SLURM_JOB_ID");
  const std::string id = job == environment.end() ? "" : job->second;
  say_step(fmt::format("Slurm {}: {} node{} ({}), on which muster starts itself: {}", id,
                   step.on.nodes.value, step.on.nodes.value == 1 ? "" : "s", step.on.nodes.from,
                   command.text()));
  return SlurmStep(std::move(command), id, names.step).run();
}

}  // namespace muster

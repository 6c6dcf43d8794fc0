#include "launcher/slurm_step.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/exit_status.h"
#include "agent/process/helper_command.h"
#include "agent/process/signal_fd.h"
#include "agent/process/signal_witness.h"
#include "agent/process/spawn.h"
#include "launcher/engines/slurm_step_command.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/base/random.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/stderr_line.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

constexpr auto kStepAnswers = std::chrono::seconds(10);
constexpr size_t kTokenBytes = 32;
constexpr std::array kPassedOn{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// True if the witness got the signal too: then Slurm has signalled every process of the batch
// script and of all steps, and not muster alone, as with `sbatch --signal=B:USR1@60`. Waits a
// moment, because Slurm signals the processes one after another.
bool saw(SignalWitness& witness, int signal) {
  constexpr auto kNextDoor = std::chrono::milliseconds(250);
  constexpr auto kOld = std::chrono::seconds(1);  // Older ones belong to an earlier signal.
  const auto begun = std::chrono::steady_clock::now();
  for (;;) {
    while (const auto seen = witness.next()) {
      if (seen->sender == Sender::engine && seen->signal == signal && begun - seen->when < kOld)
        return true;
    }
    pollfd waiting{witness.fd(), POLLIN, 0};
    if (poll(&waiting, 1, poll_timeout(begun + kNextDoor)) <= 0) return false;
  }
}

// Runs srun in a session of its own, so that key presses reach only this process: a signal to srun
// would make it kill the step at once. Signals go to the step by scancel.
class SlurmStep {
 public:
  SlurmStep(SlurmStepCommand command, std::string job, std::string jobs, std::string name)
      : command_(std::move(command)),
        job_(std::move(job)),
        jobs_(std::move(jobs)),
        name_(std::move(name)) {}

  int run();

 private:
  Result<SpawnedProcess> start();
  void on_signal(const signalfd_siginfo& info, SignalWitness& witness);
  void pass_on(int signal, const std::vector<std::string>& ids);
  bool has_ended() const;

  const SlurmStepCommand command_;
  const std::string job_;
  const std::string jobs_;  // job_ and the ids of its other parts, with commas.
  const std::string name_;
  SpawnedProcess srun_;
  bool stop_requested_ = false;
};

Result<SpawnedProcess> SlurmStep::start() {
  SpawnRequest request;
  request.executable = find_on_path("srun", lookup(command_.environment, "PATH").value_or(""));
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
  for (const int signal : kPassedOn) {
    if (!is_ignored(signal)) sigaddset(&signals, signal);  // nohup ignores SIGHUP.
  }
  ::signal(SIGCHLD, SIG_DFL);  // If ignored, srun would be reaped automatically.
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const UniqueFd signal_fd = open_signal_fd(signals);
  SignalWitness witness({});
  Result<SpawnedProcess> srun = start();
  if (!srun || !signal_fd) {
    print_line(srun ? fmt::format("cannot start srun: {}", std::strerror(errno))
                    : srun.error().message);
    return static_cast<int>(srun ? ExitCode::environment : srun.error().code);
  }
  srun_ = std::move(*srun);
  for (;;) {
    std::array<pollfd, 2> fds{{{srun_.end.get(), POLLIN, 0}, {signal_fd.get(), POLLIN, 0}}};
    poll(fds.data(), fds.size(), -1);
    signalfd_siginfo info{};
    if ((fds[1].revents & POLLIN) != 0 && read(signal_fd.get(), &info, sizeof info) == sizeof info)
      on_signal(info, witness);
    if ((fds[0].revents & POLLIN) != 0) break;
  }
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(srun_.pid), &info, WEXITED);
  return exit_status_from_siginfo(info.si_code, info.si_status).code();
}

// A second Ctrl-C kills the step at once, as it does a job of one node.
void SlurmStep::on_signal(const signalfd_siginfo& info, SignalWitness& witness) {
  const int signal = static_cast<int>(info.ssi_signo);
  const bool again = stop_requested_ && signal == SIGINT;
  const bool ends = signal != SIGUSR1 && signal != SIGUSR2;
  stop_requested_ = stop_requested_ || ends;
  if (has_ended() || (sender_of(info) == Sender::engine && saw(witness, signal))) return;
  const auto listing = run_helper({"squeue", "-s", "-j", jobs_, "-h", "-o", "%i %j"},
                                  command_.environment, kStepAnswers);
  if (has_ended()) return;
  const bool listed = listing && listing->exit_code == 0;
  const std::vector<std::string> ids =
      listed ? step_ids_in(listing->printed, name_) : std::vector<std::string>();
  if (!ids.empty()) return pass_on(again ? SIGKILL : signal, ids);
  // A step that has not begun has no tasks to signal, but srun gives it up. The job itself is never
  // signalled: it may have other steps.
  if (listed && ends) {
    kill(srun_.pid, SIGTERM);
    return;
  }
  const std::string why = !listing ? listing.error().message
                          : listed ? "it has not begun"
                                   : "squeue failed";
  print_line(fmt::format("{0} is not passed on to the step: {1}; `scancel -s {0} {2}.STEP` does it",
                         signal_name(signal), why, job_));
}

void SlurmStep::pass_on(int signal, const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    // scancel's exit code says nothing: it is 225 if the step lacks some of the job's nodes.
    const auto sent = run_helper({"scancel", fmt::format("--signal={}", signal_name(signal)), id},
                                 command_.environment, kStepAnswers);
    if (sent || has_ended()) continue;
    print_line(fmt::format("cannot pass {} on to step {}: {}; try again, or scancel {}",
                           signal_name(signal), id, sent.error().message, id));
  }
}

bool SlurmStep::has_ended() const {
  pollfd ended{srun_.end.get(), POLLIN, 0};
  return poll(&ended, 1, 0) > 0;
}

}  // namespace

int run_slurm_step(const StepToStart& step, const std::vector<std::string>& args,
                   const Environment& environment) {
  std::error_code unknown;
  SlurmStepNames names;
  names.muster = std::filesystem::read_symlink("/proc/self/exe", unknown);
  names.step = "muster-" + to_hex(random_bytes(4));
  names.token = to_hex(random_bytes(kTokenBytes));
  SlurmStepCommand command = slurm_step_command(step, names, args, environment);
  const std::string id = lookup(environment, "SLURM_JOB_ID").value_or("");
  std::string jobs = id;  // Each part of a heterogeneous job is a job with a step of its own.
  for (int part = 1; part < step.on.parts; ++part) {
    if (const auto another = lookup(environment, fmt::format("SLURM_JOB_ID_HET_GROUP_{}", part)))
      jobs += "," + *another;
  }
  print_line(fmt::format("Slurm {}: {} ({}); muster starts itself there by: {}", id,
                         counted(step.on.nodes.value, "node"), step.on.nodes.from, command.text()));
  return SlurmStep(std::move(command), id, jobs, names.step).run();
}

}  // namespace muster

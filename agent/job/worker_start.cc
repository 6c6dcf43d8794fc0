#include "agent/job/worker_start.h"

#include <algorithm>
#include <csignal>

#include <fcntl.h>
#include <unistd.h>

#include "agent/meeting/launch_traces.h"

namespace muster {

WorkerStart::WorkerStart(const AgentInput& input, const AgentContext& context,
                         const NodeSetup& setup, MeetingPart& meeting, ControlPart& control,
                         TorchTimers& timers, Rings& rings)
    : spec_(input.spec),
      program_(input.program),
      context_(context),
      inherited_(spec_.rendezvous.ask_pmi ? without_launch(input.environment) : input.environment),
      setup_(setup),
      meeting_(meeting),
      control_(control),
      timers_(timers),
      rings_(rings),
      null_fd_(open("/dev/null", O_RDWR | O_CLOEXEC)) {}

Result<void> WorkerStart::open_null() {
  if (null_fd_) return {};
  return fail(ExitCode::environment,
              "cannot open /dev/null, from which workers read: mount a /dev that has it");
}

// True if we are a background job, which must not read from its terminal. The kernel does not stop
// workers that do (SIGTTIN), as they have sessions of their own: they would take the shell's input.
bool WorkerStart::stdin_belongs_to_others() const {
  const pid_t foreground = isatty(STDIN_FILENO) == 1 ? tcgetpgrp(STDIN_FILENO) : -1;
  return foreground > 0 && foreground != context_.front_group;
}

WorkerVariables WorkerStart::variables(int local_rank) const {
  const WorkerPlacement& placement = setup_.placement.workers[static_cast<size_t>(local_rank)];
  WorkerVariables variables;
  variables.local_rank = local_rank;
  variables.shown_local_rank = placement.local_rank;
  if (spec_.task) variables.shown_local_rank = spec_.task->own_gpu ? 0 : spec_.task->local_rank;
  variables.signals_to_handle = spec_.signals_to_handle;
  variables.timer_file = timers_.path();
  variables.omp_num_threads = setup_.omp_num_threads;
  if (const auto& interface = meeting_.interface()) {
    variables.gloo_interface = interface->gloo;
    variables.nccl_interface = interface->nccl;
  }
  variables.device_variables = placement.env;
  return variables;
}

Environment WorkerStart::environment(int local_rank, const RoundView& round) const {
  return worker_environment(inherited_, meeting_.told(round), variables(local_rank));
}

SpawnRequest WorkerStart::request(int local_rank, const RoundView& round,
                                  const WorkerStreams& streams) {
  WorkerVariables variables = this->variables(local_rank);
  variables.error_file = streams.error_file;

  SpawnRequest request;
  if (const auto record_fd = rings_.make(local_rank)) {
    variables.record_fd = ring::to_text(*record_fd);
    request.kept_fd = record_fd->fd;
    variables.python_hook = control_.python_hook();
    variables.nccl_plugin = control_.nccl_plugin();
    variables.record_kernels = spec_.record_kernels;
  }
  request.executable = program_.executable;
  request.argv = program_.argv(local_rank);
  request.environment =
      environment_strings(worker_environment(inherited_, meeting_.told(round), variables));
  const bool gets_stdin = spec_.stdin_rank && *spec_.stdin_rank == round.base_rank + local_rank;
  request.stdin_fd = gets_stdin && !stdin_belongs_to_others() ? STDIN_FILENO : null_fd_.get();
  request.stdout_fd = streams.out.get();
  request.stderr_fd = streams.err.get();
  request.cpus = setup_.placement.workers[static_cast<size_t>(local_rank)].cpus;
  request.descriptor_limit = context_.descriptor_limit;
  request.keep_hangup_ignored = context_.hangup_ignored;
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    const bool is_stop = std::ranges::count(spec_.stop_signals, signal) > 0;
    if (spec_.engine.signals_all && !is_stop) request.ignored_signals.push_back(signal);
  }
  return request;
}

}  // namespace muster

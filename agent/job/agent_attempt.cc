// One attempt of the job on this node, from the request for a round to the last byte of output.
#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/job/agent_loop.h"
#include "agent/output/log_tree.h"
#include "agent/placement/devices.h"
#include "agent/placement/proc_devices.h"
#include "agent/report/failure_wire.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/drive.h"

namespace muster {
namespace {

constexpr auto kDeviceMemoryPatience = std::chrono::seconds(20);
constexpr auto kDeviceMemoryPause = std::chrono::milliseconds(200);
constexpr auto kDriverAnswer = std::chrono::seconds(5);
constexpr auto kLastWordsPatience = std::chrono::seconds(2);
constexpr size_t kErrorFileBytesMax = 1 << 20;

struct LeftFile {
  std::string content;
  WallTime written;
};

// Runs on the output thread, which may wait for a disk but must not block for ever: a worker may
// have replaced its error file with a FIFO, or with a link to a file that must not be read.
std::optional<LeftFile> read_left_file(const std::string& path, size_t bytes_max) {
  if (path.empty()) return std::nullopt;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return LeftFile{read_up_to(fd.get(), bytes_max), changed_at(info)};
}

// Collects what one worker left behind, on the output thread. `temporary`: its files are in a
// folder that the user did not ask for and that is removed once empty. The failure file goes in any
// case: a program may catch the library's error and succeed.
WorkerRemains collect_remains(WorkerPrinted printed, const WorkerTraces& files, bool temporary) {
  WorkerRemains remains;
  remains.printed = std::move(printed);
  if (auto error = read_left_file(files.error_file, kErrorFileBytesMax)) {
    remains.error_file = std::move(error->content);
    remains.error_file_written = error->written;
  }
  if (const auto library = read_left_file(files.failure_file, kFailureRecordBytesMax))
    remains.library = parse_failure_record(library->content);
  if (temporary && !files.failure_file.empty()) unlink(files.failure_file.c_str());
  return remains;
}

}  // namespace

// The driver lists a dead process until its memory is freed; a worker started before that fails
// with "out of memory" on a GPU that looks free. Only machines with GPUs, and only attempts after
// the first, pay for this query.
void AgentLoop::wait_for_device_memory(group::RequestRound request,
                                       std::chrono::steady_clock::time_point give_up) {
  ask_driver(
      "--internal-device-users", kDriverAnswer, [this, request, give_up](Result<std::string> text) {
        const Result<std::vector<GpuProcess>> users = text.and_then(parse_gpu_processes);
        if (!users) {
          say(users.error().message);
          return open_timers(request);
        }
        const std::vector<GpuProcess> holders = remaining_holders(processes_.seen_pids(), *users);
        if (holders.empty()) return open_timers(request);
        if (std::chrono::steady_clock::now() >= give_up) {
          say(describe_holders(holders) + "; starting anyway");
          return open_timers(request);
        }
        call_after(pause_, kDeviceMemoryPause,
                   [this, request, give_up] { wait_for_device_memory(request, give_up); });
      });
}

void AgentLoop::on(const group::RequestRound& effect) {
  drain_.begin();  // No worker could be started, so on_group_empty() did not do it.
  const auto told = std::make_shared<bool>(false);
  const auto go_on = [this, effect, told] {
    if (std::exchange(*told, true)) return;
    if (!coordinated_) say_restart();
    prepare_round(effect);
  };
  drain_.when_done([this, go_on, epoch = job_round_.epoch] {
    report_evidence(epoch);
    go_on();
  });
  if (*told || !coordinated_) return;
  // Limits how long the other nodes wait for this node's disk before the next round or the verdict.
  call_after(last_words_limit_, kLastWordsPatience, go_on);
}

void AgentLoop::prepare_round(const group::RequestRound& request) {
  round_requested_ = std::chrono::steady_clock::now();
  if (request.attempt > 0 && (has_gpus_ || quick_gpu_count().value_or(0) > 0)) {
    return wait_for_device_memory(request, round_requested_ + kDeviceMemoryPatience);
  }
  open_timers(request);
}

void AgentLoop::open_timers(const group::RequestRound& request) {
  torch_timers_.open(temp_dir_, [this, request](const Result<void>& opened) {
    if (!opened) return drive_->post(group::RoundFailed{request.attempt, opened.error()});
    request_round(request);
  });
}

void AgentLoop::open_round(const group::RequestRound& request) {
  record_.round_formed(round_view(request.restart_count));
  if (group_->finished()) return;
  attempt_ = request.attempt;
  // torch's own switch: the workers create the store themselves. Each attempt gets its own port, so
  // that no process of an earlier attempt can be reached there.
  if (!coordinated_ && lookup(env::kDisableShareStore) == "1") {
    Result<MasterPort> port = MasterPort::reserve();
    if (!port) return drive_->post(group::RoundFailed{attempt_, port.error()});
    master_port_ = std::move(*port);
  }
  round_ = round_view(coordinated_ ? job_round_.restarts : request.restart_count);
  processes_.begin_attempt(setup_.workers);
  hang_part_.end();
  rings_.begin_attempt(setup_.workers);
  hang_part_.begin(job_round_.epoch);
  stop_began_ = false;
  torch_timers_.begin_attempt(setup_.workers);
  AttemptPlan plan;
  plan.restart_count = round_.restart_count;
  for (int i = 0; i < setup_.workers; ++i)
    plan.ranks.push_back(round_.base_rank + i);
  output_->open_attempt(std::move(plan), [this, attempt = attempt_](auto streams) {
    boost::asio::post(io_, [this, attempt, streams = std::move(streams)]() mutable {
      on_streams(attempt, std::move(streams));
    });
  });
}

RoundView AgentLoop::round_view(int restart_count) const {
  RoundView round;
  round.group_rank = job_round_.node_rank;
  round.group_world_size = job_round_.nodes;
  round.local_world_size = setup_.workers;
  round.base_rank = job_round_.base_rank;
  round.world_size = job_round_.world_size;
  round.base_role_rank = job_round_.base_role_rank;
  round.role_world_size = job_round_.role_world_size;
  round.role = spec_.role;
  round.master_addr = job_round_.master_addr;
  round.master_port = master_port_ ? master_port_->port() : job_round_.master_port;
  round.agent_store = !master_port_;
  round.restart_count = restart_count;
  round.max_restarts = spec_.max_restarts;
  round.start_count = spec_.engine.starts;
  round.run_id = run_id_;
  round.worker_secret = job_round_.worker_secret;
  return round;
}

void AgentLoop::on_streams(int attempt, Result<std::vector<WorkerStreams>> streams) {
  opening_round_ = false;
  if (group_->finished() || attempt != attempt_) return;
  if (!streams) return refuse_streams(attempt, streams.error());
  streams_ = std::move(*streams);
  drain_.open();
  if (std::exchange(round_dropped_, false)) return drop_round();
  traces_.clear();
  for (size_t i = 0; i < streams_.size(); ++i) {
    traces_.push_back({streams_[i].out_log, streams_[i].err_log, streams_[i].error_file,
                       streams_[i].failure_file, setup_.placement.workers[i].device});
  }
  oom_.snapshot();
  process_limits_.snapshot();
  kernel_log_.mark();
  const Duration took = std::chrono::steady_clock::now() - round_requested_;
  record_.round_ready(attempt, round_, took, traces_);
  drive_->post(group::RoundReady{attempt, round_.restart_count});
}

// The round was ended before any of its workers was started here.
void AgentLoop::drop_round() {
  const group::RequestRound request{attempt_, round_.restart_count};
  drain_.begin();
  drain_.when_done([this, request] { request_round(request); });
}

void AgentLoop::refuse_streams(int attempt, const Error& error) {
  report_failure(error, 0);
  drive_->post(group::RoundFailed{attempt, error});
}

// A background job must not read from its terminal. The kernel would stop such a reader (SIGTTIN),
// but workers run in sessions of their own, outside the terminal's job control: they would take
// input away from the shell.
bool AgentLoop::stdin_belongs_to_others() const {
  const pid_t foreground = isatty(STDIN_FILENO) == 1 ? tcgetpgrp(STDIN_FILENO) : -1;
  return foreground > 0 && foreground != context_.front_group;
}

// Without its files of this attempt, its ring and its hook.
WorkerVariables AgentLoop::worker_variables(int local_rank) const {
  const WorkerPlacement& placement = setup_.placement.workers[static_cast<size_t>(local_rank)];
  WorkerVariables variables;
  variables.local_rank = local_rank;
  variables.shown_local_rank = placement.local_rank;
  if (spec_.task) variables.shown_local_rank = spec_.task->own_gpu ? 0 : spec_.task->local_rank;
  variables.signals_to_handle = spec_.signals_to_handle;
  variables.timer_file = torch_timers_.path();
  variables.omp_num_threads = setup_.omp_num_threads;
  if (const auto& interface = own_interface_.choice()) {
    variables.gloo_interface = interface->gloo;
    variables.nccl_interface = interface->nccl;
  }
  variables.device_variables = placement.env;
  return variables;
}

// What the workers are told of the round: a task has its place among the engine's tasks.
RoundView AgentLoop::told_round() const {
  RoundView told = round_;
  if (task_) {
    told.group_rank = task_->node;
    told.group_world_size = task_->nodes;
    told.local_world_size = task_->local_size;
  }
  return told;
}

SpawnRequest AgentLoop::spawn_request(int local_rank) {
  const auto index = static_cast<size_t>(local_rank);
  WorkerVariables variables = worker_variables(local_rank);
  variables.error_file = streams_[index].error_file;
  variables.failure_file = streams_[index].failure_file;

  SpawnRequest request;
  if (const auto record_fd = rings_.make(local_rank)) {
    variables.record_fd = ring::to_text(*record_fd);
    request.kept_fd = record_fd->fd;
    variables.python_hook = control_part_.python_hook();
    variables.nccl_plugin = control_part_.nccl_plugin();
    variables.record_kernels = spec_.record_kernels;
  }
  request.executable = program_.executable;
  request.argv = program_.argv(local_rank);
  request.environment = environment_strings(
      worker_environment(inherited_.value_or(environment_), told_round(), variables));
  const bool gets_stdin = spec_.stdin_rank && *spec_.stdin_rank == round_.base_rank + local_rank;
  request.stdin_fd = gets_stdin && !stdin_belongs_to_others() ? STDIN_FILENO : null_fd_.get();
  request.stdout_fd = streams_[index].out.get();
  request.stderr_fd = streams_[index].err.get();
  request.cpus = setup_.placement.workers[index].cpus;
  request.descriptor_limit = context_.descriptor_limit;
  request.keep_hangup_ignored = context_.hangup_ignored;
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    const bool is_stop = std::ranges::count(spec_.stop_signals, signal) > 0;
    if (spec_.engine.signals_all && !is_stop) request.ignored_signals.push_back(signal);
  }
  return request;
}

void AgentLoop::spawn_worker(int attempt, int local_rank) {
  spawn_pending_ = false;
  if (group_->finished() || attempt != attempt_) return;
  const Result<pid_t> pid = processes_.start(local_rank, spawn_request(local_rank));
  rings_.close_descriptor();
  WorkerStreams& streams = streams_[static_cast<size_t>(local_rank)];
  streams.out.reset();
  streams.err.reset();
  if (pid) {
    record_.worker_started(local_rank, *pid);
    hang_part_.started(local_rank, *pid,
                       setup_.placement.workers[static_cast<size_t>(local_rank)].device);
    drive_->post(group::Spawned{attempt, local_rank, *pid});
  } else {
    report_failure(pid.error(), local_rank);
    drive_->post(group::SpawnFailed{attempt, local_rank, pid.error()});
  }
  if (std::exchange(empty_while_spawning_, false)) processes_.watch_empty();
}

void AgentLoop::on_worker_exit(const WorkerExit& exit) {
  HostEvidence evidence;
  if (!exit.status.success()) {
    oom_.fill(evidence);
    evidence.limits = exit.limits;
    evidence.process_limit = process_limits_.met(exit.limits.processes);
  }
  record_.worker_exited(exit, std::move(evidence));
  if (!exit.status.success())
    record_.worker_was_in(exit.local_rank, own_ranks_.call_in_flight(exit.local_rank));
  hang_part_.ended(exit.local_rank, exit.status.signed_code());
  if (!exit.status.success()) gather(exit);
  torch_timers_.forget(exit.pid);
  drive_->post(group::Exited{attempt_, exit.local_rank, exit.status});
}

// Now, while the evidence is fresh, but on the output thread: a core folder may be on a disk that
// hangs. Requests are answered in order, so the answer precedes the end of the drain.
void AgentLoop::gather(const WorkerExit& exit) {
  EvidenceRequest request;
  request.pid = exit.pid;
  request.signal = exit.status.kind == ExitStatus::Kind::signaled ? exit.status.value : 0;
  request.core_dumped = exit.status.core_dumped;
  request.comm = program_.executable.substr(program_.executable.rfind('/') + 1).substr(0, 15);
  request.cwd = cwd_;
  request.kernel_log = &kernel_log_;
  output_->perform([this, request] {
    boost::asio::post(io_, [this, pid = request.pid, evidence = gather_evidence(request)] {
      record_.add_evidence(pid, evidence);
    });
  });
}

// A stop between the machine's Spawn and the actual spawn finds no live process. That does not mean
// an empty group yet: the machine relies on receiving Spawned first.
void AgentLoop::on_group_empty() {
  if (spawn_pending_) {
    empty_while_spawning_ = true;
    return;
  }
  own_ranks_.end_look();
  if (stop_began_) record_.stop_ended();
  drain_.begin();
  drive_->post(group::GroupEmpty{attempt_});
}

// Printed at once, so that a user who watches a slow stop knows the reason.
void AgentLoop::on_refused(const ProcessEntry& process) {
  const std::string text = refusal_text(process);
  record_.note(JobEventKind::note, text);
  say(text);
}

// The attempt's output is complete before the next step or the verdict. The machine does not wait
// for it: a console that nobody reads must not count as a process that does not die.
void AgentLoop::read_to_the_ends() {
  // Streams of workers that were never started would keep the drain from reaching end of file.
  streams_.clear();
  bundles_.close();
  const bool keep = coordinated_ || !record_.all_succeeded();
  output_->drain(keep, [this, traces = traces_, folders = folders_](DrainReport report) {
    AttemptRemains remains;
    for (size_t i = 0; i < report.workers.size(); ++i) {
      remains.workers.push_back(collect_remains(std::move(report.workers[i]),
                                                i < traces.size() ? traces[i] : WorkerTraces{},
                                                folders.temporary));
    }
    EvidenceRequest disk;
    disk.log_dir = folders.run_dir;
    remains.full_log_disk = gather_evidence(disk).full_log_disk;
    boost::asio::post(io_, [this, remains = std::move(remains)] { drain_.finish(remains); });
  });
}

// The judge's input is kept for users who want to know why it decided as it did.
void AgentLoop::take_remains(const AttemptRemains& remains) {
  record_.attempt_drained(remains);
  if (!stop_began_ || !record_.has_evidence()) return;
  const Instant now = to_instant(std::chrono::steady_clock::now());
  output_->write_file(fmt::format("evidence_{}.json", attempt_),
                      evidence_file(record_.evidence(), now));
}

}  // namespace muster

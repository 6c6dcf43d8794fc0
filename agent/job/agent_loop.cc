#include "agent/job/agent_loop.h"

#include <algorithm>
#include <csignal>
#include <variant>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/stderr_line.h"
#include "rendezvous/base/steady_now.h"

namespace muster {
namespace {

constexpr auto kKillPatience = std::chrono::seconds(10);

}  // namespace

AgentLoop::AgentLoop(const AgentInput& input, const AgentContext& context, std::string run_id,
                     JobFolders folders, std::unique_ptr<SignalWitness> witness,
                     std::unique_ptr<Output> output)
    : input_(input),
      context_(context),
      run_id_(std::move(run_id)),
      folders_(std::move(folders)),
      control_(io_, context.control_fd),
      output_(std::move(output)),
      record_(begun_report(), recorder_options()),
      processes_(io_, {[this](const WorkerExit& exit) { attempt_.on_exit(exit); },
                       [this] { attempt_.on_empty(); },
                       [this](const signalfd_siginfo& info) { engine_.on_own_signal(info); },
                       [this](const ProcessEntry& process) {
                         // Said at once: a user who watches a slow stop wants the reason.
                         const std::string text = refusal_text(process);
                         record_.note(JobEventKind::note, text);
                         say(text);
                       },
                       [this] { post(group::KillRefused{attempt()}); }}),
      rings_(input.spec.recorder, [this](const std::string& text) { say(text); }),
      engine_(io_, *this, input.spec.engine, processes_, rings_, std::move(witness),
              [this] { output_->read_to_the_end(); }),
      time_limit_(io_, *this, input.spec, processes_,
                  [this](int signal) { engine_.time_is_short(signal); }),
      own_ranks_(io_, *this, processes_, rings_,
                 {[this](int rank) { hang_part_.was_held(rank); },
                  [this](const std::string& group) { return hang_part_.name_of_group(group); },
                  [this] { return attempt_.memory(); }}),
      answers_(io_, *this, own_ranks_, [this] { return shown_variables(attempt_.variables()); }),
      bundles_(io_, *this, answers_),
      hang_part_(io_, *this, input.spec, rings_, record_, own_ranks_, bundles_,
                 [this] { drain_.settled(); }),
      control_part_(io_, *this, input.spec, input.program, run_id_,
                    {processes_, rings_, record_, own_ranks_, answers_, bundles_},
                    {.add_progress = [this](auto& status) { add_progress(status); },
                     .tails = [this](auto done) { output_->tails(std::move(done)); }}),
      driver_(io_, *this, processes_),
      drain_({.read = [this] { attempt_.read_to_the_ends(); },
              .is_settling = [this] { return hang_part_.is_settling(); },
              .take = [this](const AttemptRemains& remains) { attempt_.take_remains(remains); }}),
      meeting_(io_, *this, input.spec, input.environment,
               {processes_, record_, engine_, time_limit_, answers_, hang_part_, drain_},
               [this](const group::RequestRound& request) { attempt_.open(request); }),
      stop_(*this, input.spec, {processes_, record_, *output_, engine_, own_ranks_, hang_part_},
            {.is_killed = [this] { return end_.is_killed(); },
             .another_says_it = [this] { return meeting_.another_says_it(); }}),
      attempt_(io_, *this, input, context_, folders_, setup_,
               {processes_, record_, rings_, *output_, driver_, own_ranks_, bundles_, hang_part_,
                control_part_, meeting_, stop_, drain_}),
      end_(io_, input, context_, folders_,
           {processes_, record_, *output_, engine_, time_limit_, meeting_, drain_}) {}

// ---- start

int AgentLoop::run() {
  if (const std::optional<Error> error = hang_part_.open_trace()) {
    print_line(error->message);
    return static_cast<int>(error->code);
  }
  for (const std::string& warning : input_.warnings)
    warn(warning);
  if (!lookup(input_.environment, env::kHealthCheckPort).value_or("").empty())
    say("No health check server started: TORCHELASTIC_HEALTH_CHECK_PORT has no effect");
  listen_to_front();
  engine_.listen();
  output_->open_run([this](Result<RunFolders> folders) {
    boost::asio::post(io_, [this, folders = std::move(folders)] { on_run_open(folders); });
  });
  io_.run();
  return end_.exit_code();
}

JobReport AgentLoop::begun_report() const {
  JobReport job;
  job.run_id = run_id_;
  job.program = input_.program.name;
  job.host = own_hostname();
  job.role = input_.spec.role;
  job.max_restarts = input_.spec.max_restarts;
  return job;
}

JobRecorder::Options AgentLoop::recorder_options() {
  JobRecorder::Options options;
  options.binary = input_.program.executable;
  options.rdzv_backend = input_.spec.rendezvous.backend;
  options.torch_events = input_.spec.event_log == EventLogHandler::console;
  options.say_raw = [this](std::string line) { output_->say(std::move(line)); };
  options.append_event = [this](std::string line) {
    output_->append("events.jsonl", std::move(line));
  };
  return options;
}

void AgentLoop::on_run_open(Result<RunFolders> folders) {
  if (is_ending()) return;
  if (!folders) return fail_early(folders.error());
  if (const Result<void> null = attempt_.open_null(); !null) return fail_early(null.error());
  folders_.run = std::move(*folders);
  control_part_.open({lookup(input_.environment, "MUSTER_RUN_DIR").value_or(""),
                      lookup(input_.environment, "XDG_RUNTIME_DIR").value_or("")});
  record_.set_log_dir(log_folder());
  if (!needs_devices(input_.spec)) return set_up(std::nullopt);
  driver_.find_devices([this](const Result<DeviceReport>& devices) {
    if (!devices) return fail_early(devices.error());
    set_up(*devices);
  });
}

void AgentLoop::set_up(std::optional<DeviceReport> devices) {
  if (is_ending()) return;
  Result<NodeSetup> setup = set_up_node(input_.spec, input_.environment, std::move(devices));
  if (!setup) return fail_early(setup.error());
  setup_ = std::move(*setup);
  if (const Result<void> room = check_room(); !room) return fail_early(room.error());
  for (const std::string& line : setup_.lines)
    warn(line);
  if (!setup_.table.empty()) output_->say(setup_.table);
  NodeFacts node;
  node.workers = setup_.workers;
  node.host_name = own_hostname();
  node.run_id = run_id_;
  meeting_.open(node, [this](const Result<NodeFacts>& found) {
    if (!found) return fail_early(found.error());
    run_id_ = found->run_id;
    begin_group();
  });
}

// Checks what depends on this node's number of workers: descriptors and --stdin.
Result<void> AgentLoop::check_room() const {
  DescriptorNeeds needs = DescriptorNeeds::of(input_.spec);
  needs.workers = setup_.workers;
  needs.at_most = false;
  const Result<unsigned long> room = make_room_for_descriptors(needs);
  if (!room) return tl::unexpected<Error>(room.error());
  const std::optional<int> rank = input_.spec.stdin_rank;
  if (!rank || *rank < setup_.workers || meeting_.is_coordinated()) return {};
  return fail(ExitCode::usage,
              fmt::format("--stdin {}: there is no such rank among {}; use 0 to {}, or none", *rank,
                          counted(setup_.workers, "worker"), setup_.workers - 1));
}

// torch's LOGLEVEL: ERROR and above (40 in Python's numbers) suppress warnings.
void AgentLoop::warn(const std::string& text) {
  const std::string level = lookup(input_.environment, "LOGLEVEL").value_or("");
  const bool quiet =
      level == "ERROR" || level == "CRITICAL" || level == "FATAL" || level == "40" || level == "50";
  if (!quiet) say(text);
}

void AgentLoop::begin_group() {
  WorkerGroup::Options options;
  options.coordinated = meeting_.is_coordinated();
  options.workers = setup_.workers;
  options.max_restarts = input_.spec.max_restarts;
  options.grace = stop_.grace();
  options.stop_may_follow =
      input_.spec.engine.signals_all ? EngineSignals::kElsewhere : EngineSignals::kSiblings;
  group_.emplace(io_, options, [this](const group::Effect& effect) { perform(effect); });
  record_.job_started(setup_.workers);
  attempt_.begin_job();
  engine_.seat(node_rank(), input_.spec.rendezvous.nnodes_max);
  post(group::Begin{});
}

// ---- the machine

void AgentLoop::post(const group::Event& event) {
  if (group_) group_->drive.post(event);
}

void AgentLoop::perform(const group::Effect& effect) {
  std::visit(
      Overloaded{
          [this](const group::RequestRound& request) { attempt_.prepare(request); },
          [this](const group::Spawn& spawn) { attempt_.spawn(spawn); },
          [this](const group::WorkerFailed& failure) {
            const group::FirstFailure& first = failure.first;
            if (!first.why.empty()) {
              record_.declared_failed(first.local_rank, first.why);
              stop_.spare_none();
            }
            meeting_.worker_failed(failure);
          },
          [this](const group::Stop& stop) { stop_.stop(stop.signal); },
          [this](const group::StopRest&) { processes_.stop_rest(); },
          [this](const group::Kill&) { stop_.kill(); },
          [this](const group::ReportStopping& report) { stop_.report(report); },
          [this](const group::WatchLeftovers&) { processes_.watch_empty(); },
          [this](const group::ReportLeftovers& report) { stop_.report_leftovers(report); },
          [this](const group::SuspendWorkers&) {
            hang_part_.suspended();
            processes_.suspend();
          },
          [this](const group::ResumeWorkers&) {
            record_.note(JobEventKind::resumed);
            processes_.resume();
            hang_part_.resumed();
          },
          [this](const group::ForwardSignal& forward) { processes_.forward(forward.signal); },
          [this](const group::BackOff& pause) {
            drain_.when_done([this, delay = pause.delay] { meeting_.say_restart(delay); });
          },
          [this](const group::Succeeded&) { meeting_.workers_done(); },
          [this](const group::Note& note) { record_.note(JobEventKind::note, note.text); },
          [this](const group::Finish& last) { finish(last.outcome); },
      },
      effect);
}

void AgentLoop::add_progress(control::JobStatus& status) {
  const Instant now = steady_now();
  status.phase = group_ ? group_->machine.status(now) : "looking at this machine";
  for (const std::string& waits : {meeting_.status(), hang_part_.status()}) {
    if (!waits.empty()) status.phase += "; " + waits;
  }
  status.epoch = static_cast<int64_t>(meeting_.round().epoch);
  status.membership_changes = meeting_.round().changes;
}

// ---- the front

// Only the front holds the other end, so end of file means that it has died.
void AgentLoop::listen_to_front() {
  control_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this](boost::system::error_code error) {
                        if (error) return;
                        ControlMessage message;
                        ControlRead read = ControlRead::nothing;
                        while ((read = receive_control(control_.native_handle(), message)) ==
                               ControlRead::message) {
                          on_control(message);
                        }
                        if (read == ControlRead::closed) die_with_the_front();
                        listen_to_front();
                      });
}

void AgentLoop::on_control(const ControlMessage& message) {
  switch (message.kind) {
    case ControlKind::stop:
      return engine_.on_stop_signal(message.signal, message.sender);
    case ControlKind::repeat:
      return post(group::StopRepeated{});
    case ControlKind::kill:
      return request_kill(message.signal);
    case ControlKind::forward:
      record_.note(JobEventKind::signal_forwarded, {}, message.signal);
      if (engine_.takes_warning(message.signal, message.sender)) return;
      return post(group::Forward{message.signal});
    case ControlKind::suspend:
      record_.note(JobEventKind::suspended);
      post(group::Suspend{});
      send_control(control_.native_handle(), {ControlKind::suspended, 0});
      return;
    case ControlKind::resume:
      return post(group::Resume{});
    case ControlKind::window_size:
      output_->resize();
      // Workers have no controlling terminal, so the kernel sends them no SIGWINCH.
      return post(group::Forward{SIGWINCH});
    case ControlKind::suspended:
    case ControlKind::exiting:
      return;  // Only the agent sends them.
  }
}

// The user can be told nothing more, and no process may outlive the pid that the user knows.
void AgentLoop::die_with_the_front() {
  kill_descendants({engine_.witness()}, kKillPatience);
  processes_.release_cgroup();
  _exit(static_cast<int>(ExitCode::internal));
}

void AgentLoop::request_stop(int signal) {
  if (is_ending()) return end_.signalled();
  record_.note(JobEventKind::signal_received, {}, signal);
  record_.stop_requested();
  stop_.spare_none();
  time_limit_.end_notice();
  if (has_workers() && meeting_.is_coordinated()) return meeting_.leave(signal);
  if (group_) return post(group::StopRequested{signal});
  // Nothing has been started yet, so there is nothing to stop or to wait for.
  group::JobOutcome outcome;
  outcome.end = JobEnd::stopped;
  outcome.signal = signal;
  end(outcome);
}

void AgentLoop::request_kill(int signal) {
  record_.kill_requested();
  end_.killed();
  if (!group_ && !is_ending()) return request_stop(signal);
  // An earlier stop may still wait for the witness, or for its announcement.
  post(group::StopRequested{signal});
  post(group::KillRequested{});
}

// ---- the end

void AgentLoop::finish(const group::JobOutcome& outcome) {
  drain_.begin();  // Processes that survived KILL still hold streams: take what those hold now.
  end_.workers_over();
  // Posted, so that end() does not run inside the machine's step.
  boost::asio::post(io_, [this, outcome] { drain_.when_done([this, outcome] { end(outcome); }); });
}

void AgentLoop::fail_early(const Error& error) {
  group::JobOutcome outcome;
  outcome.end = JobEnd::round_failed;
  outcome.error = error;
  end(outcome);
}

void AgentLoop::end(const group::JobOutcome& outcome) {
  if (!end_.claim()) return;
  driver_.cancel();
  bundles_.close();
  own_ranks_.cancel();
  engine_.cancel();
  time_limit_.cancel();
  meeting_.cancel();
  attempt_.cancel();
  control_part_.close();
  meeting_.report_evidence(meeting_.round().epoch);
  if (std::shared_ptr<hang::Trace> trace = hang_part_.take_trace()) output_->perform([trace] {});
  end_.begin(outcome);
}

}  // namespace muster

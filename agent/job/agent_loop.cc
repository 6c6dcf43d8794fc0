#include "agent/job/agent_loop.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/job/rendezvous_options.h"
#include "agent/output/fields.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/base/text.h"
#include "rendezvous/membership/random_ids.h"

namespace muster {
namespace {

constexpr auto kDriverPatience = std::chrono::seconds(20);
constexpr auto kKillPatience = std::chrono::seconds(10);

// A random UUID, version 4 (RFC 9562), which torchrun also uses as run id of a single-node job.
std::string random_uuid() {
  membership::Nonce b = random_nonce();
  b[6] = static_cast<unsigned char>((b[6] & 0x0f) | 0x40);
  b[8] = static_cast<unsigned char>((b[8] & 0x3f) | 0x80);
  std::string text = fmt::format("{:02x}", fmt::join(b, ""));
  for (const size_t at : {20U, 16U, 12U, 8U})
    text.insert(at, 1, '-');
  return text;
}

// A signal that finds a shell by its command line need not reach what it runs.
std::vector<std::string> looks_of(const WorkerProgram& program) {
  std::string line;
  std::ifstream file(program.executable);
  std::getline(file, line);
  const bool is_script = line.starts_with("#!") && line.find("sh") != std::string::npos;
  if (is_script || program.executable.ends_with("sh")) return {};
  return program.argv(0);
}

}  // namespace

AgentLoop::AgentLoop(const AgentInput& input, const AgentContext& context)
    : spec_(input.spec),
      program_(input.program),
      environment_(input.environment),
      warnings_(input.warnings),
      context_(context),
      control_(io_, context.control_fd),
      pause_(io_),
      last_words_limit_(io_),
      run_id_(spec_.rendezvous.id.empty() ? random_uuid() : spec_.rendezvous.id),
      record_(begun_report(), recorder_options()),
      processes_(io_, {[this](const WorkerExit& exit) { on_worker_exit(exit); },
                       [this] { on_group_empty(); },
                       [this](const signalfd_siginfo& info) { engine_.on_own_signal(info); },
                       [this](const ProcessEntry& process) { on_refused(process); },
                       [this] { drive_->post(group::KillRefused{attempt_}); }}),
      rings_(spec_.recorder, [this](const std::string& text) { say(text); }),
      engine_(io_, *this, spec_.engine, processes_, rings_, looks_of(program_),
              [this] { output_->read_to_the_end(); }),
      time_limit_(io_, *this, spec_, processes_,
                  [this](int signal) { engine_.time_is_short(signal); }),
      site_names_(io_),
      own_ranks_(io_, *this, processes_, rings_, site_names_,
                 {[this](int rank) { hang_part_.was_held(rank); },
                  [this](const std::string& group) { return hang_part_.name_of_group(group); }}),
      answers_(
          io_, *this, own_ranks_,
          [this] {
            return shown_variables(worker_environment(environment_, round_, worker_variables(0)));
          }),
      bundles_(io_, *this, answers_),
      hang_part_(io_, *this, spec_, rings_, site_names_, record_, own_ranks_, bundles_,
                 [this] { drain_.settled(); }),
      control_part_(io_, *this, spec_, program_, run_id_,
                    {processes_, rings_, record_, own_ranks_, answers_, bundles_},
                    {.has_workers = [this] { return drive_ && !group_->finished(); },
                     .add_progress = [this](auto& status) { add_progress(status); },
                     .tails = [this](auto done) { output_->tails(std::move(done)); }}),
      torch_timers_(io_, *this, environment_, processes_, record_),
      own_interface_(io_, spec_.rendezvous, environment_),
      drain_({.read = [this] { read_to_the_ends(); },
              .is_settling = [this] { return hang_part_.is_settling(); },
              .take = [this](const AttemptRemains& remains) { take_remains(remains); }}),
      end_drive_(io_, end_, [this](const Ending::Effect& effect) { perform(effect); }),
      driver_(io_, processes_),
      task_(spec_.task),
      null_fd_(open("/dev/null", O_RDWR | O_CLOEXEC)),
      coordinated_(is_coordinated(spec_.rendezvous)) {}

void AgentLoop::post(const group::Event& event) {
  if (drive_) drive_->post(event);
}

int AgentLoop::node_rank() const {
  if (job_round_.epoch > 0) return job_round_.node_rank;
  return spec_.rendezvous.node_rank.value_or(coordinated_ ? -1 : 0);
}

std::string AgentLoop::lookup(std::string_view name) const {
  return muster::lookup(environment_, name).value_or("");
}

int AgentLoop::run() {
  if (start()) io_.run();
  return exit_code_;
}

// The folder for temporary files, chosen as Python's tempfile does: the first of these that is a
// writable folder.
std::string AgentLoop::usable_temp_dir() const {
  for (const std::string& candidate :
       {lookup("TMPDIR"), lookup("TEMP"), lookup("TMP"), std::string("/tmp"),
        std::string("/var/tmp"), std::string("/usr/tmp")}) {
    struct stat info{};
    if (candidate.starts_with('/') && stat(candidate.c_str(), &info) == 0 &&
        S_ISDIR(info.st_mode) && access(candidate.c_str(), W_OK | X_OK) == 0) {
      return candidate;
    }
  }
  return cwd_;
}

bool AgentLoop::start() {
  std::error_code no_folder;
  cwd_ = std::filesystem::current_path(no_folder).string();
  temp_dir_ = usable_temp_dir();
  OutputOptions options;
  options.log = spec_.log;
  if (options.log.dir) {
    options.log.dir =
        fill_fields(*options.log.dir, log_dir_fields(spec_, run_id_, own_hostname())).value();
  }
  options.run_id = run_id_;
  options.role = spec_.role;
  options.hostname = own_hostname();
  if (spec_.task) options.first_local_rank = spec_.task->local_rank;
  options.temp_dir = temp_dir_;
  Result<std::unique_ptr<Output>> output = Output::start(std::move(options));
  const std::optional<Error> error = output ? hang_part_.open_trace() : output.error();
  if (error) {
    const std::string line = "muster: " + error->message + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
    exit_code_ = static_cast<int>(error->code);
    return false;
  }
  output_ = std::move(*output);
  for (const std::string& warning : warnings_)
    warn(warning);
  if (!lookup(env::kHealthCheckPort).empty())
    say("No health check server started: TORCHELASTIC_HEALTH_CHECK_PORT has no effect");
  listen_to_front();
  engine_.listen();
  output_->open_run([this](Result<RunFolders> folders) {
    boost::asio::post(io_, [this, folders = std::move(folders)] { on_run_open(folders); });
  });
  return true;
}

JobReport AgentLoop::begun_report() const {
  JobReport job;
  job.run_id = run_id_;
  job.program = program_.name;
  job.host = own_hostname();
  job.role = spec_.role;
  job.max_restarts = spec_.max_restarts;
  return job;
}

JobRecorder::Options AgentLoop::recorder_options() {
  JobRecorder::Options options;
  options.binary = program_.executable;
  options.rdzv_backend = spec_.rendezvous.backend;
  options.torch_events = spec_.event_log == EventLogHandler::console;
  options.say_raw = [this](std::string line) { output_->say(std::move(line)); };
  options.append_event = [this](std::string line) {
    output_->append("events.jsonl", std::move(line));
  };
  return options;
}

void AgentLoop::on_run_open(Result<RunFolders> folders) {
  if (ending_) return;
  if (!folders) return fail_early(folders.error());
  if (!null_fd_)
    return fail_early({ExitCode::environment,
                       "cannot open /dev/null, from which workers read: mount a /dev that has it"});
  folders_ = std::move(*folders);
  control_part_.open({lookup("MUSTER_RUN_DIR"), lookup("XDG_RUNTIME_DIR")});
  record_.set_log_dir(log_folder());
  if (!needs_devices(spec_)) return set_up(std::nullopt);
  ask_driver("--internal-devices", kDriverPatience, [this](Result<std::string> text) {
    const Result<DeviceReport> devices = text.and_then(parse_device_report);
    if (!devices) return fail_early(devices.error());
    has_gpus_ = !devices->gpus.empty();
    set_up(*devices);
  });
}

void AgentLoop::ask_driver(const char* flag, Duration limit, HelperProcess::Done done) {
  driver_.ask(
      {.arguments = {flag},
       .limit = limit,
       .what = "ask the GPU driver",
       .late = fmt::format("the GPU driver did not answer within {:.0f} s (does `nvidia-smi` hang "
                           "too?); give --nproc-per-node a number and leave the GPU flags out to "
                           "start without asking it",
                           std::chrono::duration<double>(limit).count())},
      std::move(done));
}

void AgentLoop::set_up(std::optional<DeviceReport> devices) {
  if (ending_) return;
  Result<NodeSetup> setup = set_up_node(spec_, environment_, std::move(devices));
  if (!setup) return fail_early(setup.error());
  DescriptorNeeds needs = DescriptorNeeds::of(spec_);
  needs.workers = setup->workers;
  needs.at_most = false;
  const Result<unsigned long> room = make_room_for_descriptors(needs);
  if (!room) return fail_early(room.error());
  if (spec_.stdin_rank && *spec_.stdin_rank >= setup->workers && !coordinated_) {
    return fail_early(
        {ExitCode::usage,
         fmt::format("--stdin {}: there is no such rank among {}; use 0 to {}, or none",
                     *spec_.stdin_rank, counted(setup->workers, "worker"), setup->workers - 1)});
  }
  setup_ = std::move(*setup);
  for (const std::string& line : setup_.lines)
    warn(line);
  if (!setup_.table.empty()) output_->say(setup_.table);
  find_token([this](const std::string& token) {
    find_host_by_pmi([this, token] {
      if (open_rendezvous(token)) begin_group();
    });
  });
}

// torch's LOGLEVEL: ERROR and above (40 in Python's numbers) suppress warnings.
void AgentLoop::warn(const std::string& text) {
  const std::string level = lookup("LOGLEVEL");
  const bool quiet =
      level == "ERROR" || level == "CRITICAL" || level == "FATAL" || level == "40" || level == "50";
  if (!quiet) say(text);
}

void AgentLoop::begin_group() {
  WorkerGroup::Options options;
  options.coordinated = coordinated_;
  options.workers = setup_.workers;
  options.max_restarts = spec_.max_restarts;
  options.grace = grace();
  options.stop_may_follow =
      spec_.engine.signals_all ? EngineSignals::kElsewhere : EngineSignals::kSiblings;
  options.leftovers_grace = std::min(options.leftovers_grace, options.grace);
  group_.emplace(options);
  drive_.emplace(io_, *group_, [this](const group::Effect& effect) { perform(effect); });
  record_.job_started(setup_.workers);
  torch_timers_.watch_uninterruptible();
  engine_.seat(node_rank(), spec_.rendezvous.nnodes_max);
  drive_->post(group::Begin{});
}

void AgentLoop::add_progress(control::JobStatus& status) {
  const Instant now = to_instant(std::chrono::steady_clock::now());
  status.phase = group_ ? group_->status(now) : "looking at this machine";
  if (coordinated_ && rendezvous_) status.phase += "; " + rendezvous_->status();
  if (const std::string waits = hang_part_.status(); !waits.empty()) status.phase += "; " + waits;
  status.epoch = static_cast<int64_t>(job_round_.epoch);
  status.membership_changes = job_round_.changes;
}

void AgentLoop::find_nodes(std::function<void(std::vector<membership::NodeLine>)> done) {
  if (!rendezvous_) return done({});
  rendezvous_->nodes(std::move(done));
}

// ---- the front

// The front is the only process that holds the other end.
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

// Without the front nothing can be reported to the user, and no process of the job may outlive the
// pid that the user knows.
void AgentLoop::die_with_the_front() {
  kill_descendants({engine_.witness()}, kKillPatience);
  processes_.release_cgroup();
  _exit(static_cast<int>(ExitCode::internal));
}

void AgentLoop::request_stop(int signal) {
  if (ending_) return end_drive_.post(Ending::Signalled{});
  record_.note(JobEventKind::signal_received, {}, signal);
  record_.stop_requested();
  time_limit_.end_notice();
  if (drive_ && coordinated_ && !group_->finished()) {
    // The other nodes are told before the grace period begins on any node.
    if (leaving_signal_) return;
    leaving_signal_ = signal;
    return rendezvous_->leaving(signal, false, engine_.workers_are_told());
  }
  if (drive_) return drive_->post(group::StopRequested{signal});
  // Nothing has been started yet: there is nothing to stop and nothing to wait for.
  group::JobOutcome outcome;
  outcome.end = JobEnd::stopped;
  outcome.signal = signal;
  end(outcome);
}

void AgentLoop::request_kill(int signal) {
  record_.kill_requested();
  end_drive_.post(Ending::Killed{});
  if (!drive_ && !ending_) return request_stop(signal);
  if (!drive_ || group_->finished()) return;
  // It may still wait for the witness, or for its announcement.
  drive_->post(group::StopRequested{signal});
  drive_->post(group::KillRequested{});
}

int run_agent(const AgentInput& input, const AgentContext& context) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "muster-agent");
  const UniqueFd to_front(fcntl(context.control_fd, F_DUPFD_CLOEXEC, 0));
  auto loop = std::make_unique<AgentLoop>(input, context);
  const int exit_code = loop->run();
  // A thread that is stuck writing to a console or a disk may wake up at any time, so the objects
  // that it uses must not be destroyed before it.
  if (loop->abandoned())
    loop.release();
  else
    loop.reset();
  send_control(to_front.get(), {ControlKind::exiting, exit_code});
  _exit(exit_code);
}

}  // namespace muster

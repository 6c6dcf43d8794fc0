// The agent's answers to musterctl: status, signals and logs of a running job.
#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "agent/job/agent_loop.h"
#include "agent/process/worker_hooks.h"

namespace muster {
namespace {

std::string_view last_lines_of(std::string_view text, int lines) {
  size_t at = text.size();
  if (text.ends_with('\n') && at > 0) --at;
  for (int i = 0; i < lines; ++i) {
    const size_t newline = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    if (newline == std::string_view::npos) return text;
    at = newline;
  }
  return text.substr(at + 1);
}

std::string_view asked_for(const WorkerTail& tail, const LogsQuery& query, int rank) {
  const auto after = query.after.find(rank);
  if (after == query.after.end()) return last_lines_of(tail.text, query.lines);
  const uint64_t fresh = tail.position - std::min(tail.position, after->second);
  const std::string_view text = tail.text;
  return fresh >= text.size() ? text : text.substr(text.size() - static_cast<size_t>(fresh));
}

// Their folder, which goes with the socket.
Result<std::string> write_hooks_beside(const ControlServer::Socket& socket,
                                       const WorkerHooks& wanted) {
  // Python compares it with what it makes of it.
  const std::string folder =
      std::filesystem::absolute(control_hook_path(socket.folder, socket.pid)).lexically_normal();
  return write_hooks(folder, wanted).map([&] { return folder; });
}

}  // namespace

// Creating the folder and the socket may wait for a disk, so it runs on the output thread, before
// the first worker's streams are opened there. The job goes on without a control socket, and then
// without the hooks.
void AgentLoop::open_control() {
  const ControlPlace place{lookup("MUSTER_RUN_DIR"), lookup("XDG_RUNTIME_DIR")};
  const JobEntry entry{
      getppid(), run_id_, program_.name, static_cast<double>(std::time(nullptr)), {}};
  WorkerHooks wanted = rings_.wanted() ? built_in_hooks() : WorkerHooks{};
  wanted.python &= spec_.python_hook;
  output_->perform([this, place, entry, wanted] {
    const Result<ControlServer::Socket> socket = ControlServer::open(place, entry);
    Result<std::string> hooks;
    if (socket && wanted != WorkerHooks{}) hooks = write_hooks_beside(*socket, wanted);
    boost::asio::post(io_, [this, socket, hooks, wanted] {
      if (!socket)
        return warn("musterctl cannot reach this job, and its calls are not recorded: " +
                    socket.error().message);
      control_socket_ = *socket;
      if (!hooks) {
        say(fmt::format("the calls of {}NCCL are not recorded: {}",
                        wanted.python ? "Python programs and of " : "", hooks.error().message));
      } else {
        if (wanted.python) own_ranks_.set_stack_folder(python_hook_ = *hooks);
        if (wanted.nccl) nccl_plugin_ = nccl_plugin_in(*hooks);
      }
      if (ending_) {
        close(socket->fd);
        return close_control();
      }
      control_server_ = std::make_unique<ControlServer>(
          io_, *socket, ControlServer::Options{},
          ControlHandlers{
              [this](auto done) { give_status(std::move(done)); },
              [this](int signal, const auto& ranks) { return signal_ranks(signal, ranks); },
              [this](const LogsQuery& query, auto done) { give_logs(query, std::move(done)); },
              [this](const auto& request, auto done) {
                answers_.records(request, std::move(done));
              },
              [this](const auto& request, auto done) { answers_.stacks(request, std::move(done)); },
              [this](auto done) { bundles_.dump(std::move(done)); }});
    });
  });
}

void AgentLoop::close_control() {
  control_server_.reset();
  if (!control_socket_) return;
  output_->perform([socket = *control_socket_] { ControlServer::remove(socket); });
  control_socket_.reset();
}

control::JobStatus AgentLoop::job_status() {
  control::JobStatus status;
  status.job_id = run_id_;
  status.pid = getppid();
  status.program = program_.name;
  const Instant now = to_instant(std::chrono::steady_clock::now());
  status.phase = group_ ? group_->status(now) : "looking at this machine";
  if (coordinated_ && rendezvous_) status.phase += "; " + rendezvous_->status();
  if (const std::string waits = hang_part_.status(); !waits.empty()) status.phase += "; " + waits;
  status.epoch = static_cast<int64_t>(job_round_.epoch);
  status.world_size = round_.world_size;
  status.restarts_used = round_.restart_count;
  status.max_restarts = spec_.max_restarts;
  status.membership_changes = job_round_.changes;
  status.max_membership_changes = spec_.rendezvous.max_membership_changes;
  status.uptime_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  status.log_dir = log_folder();
  return status;
}

// The state of all nodes comes from the job's host.
void AgentLoop::give_status(ControlHandlers::StatusDone done) {
  if (!rendezvous_) return done(job_status());
  rendezvous_->nodes([this, done = std::move(done)](std::vector<membership::NodeLine> lines) {
    control::JobStatus status = job_status();
    status.nodes = std::move(lines);
    done(std::move(status));
  });
}

// A stop signal without ranks stops the job; any other signal goes once to each selected worker.
Result<void> AgentLoop::signal_ranks(int signal, const control::RankRanges& ranks) {
  if (!drive_ || group_->finished()) {
    return fail(ExitCode::environment,
                "no worker is running now; try again when the job has begun");
  }
  if (ranks.empty() && std::ranges::count(spec_.stop_signals, signal) > 0) {
    request_stop(signal);
    return {};
  }
  bool any = false;
  for (int local_rank = 0; local_rank < setup_.workers && attempt_ >= 0; ++local_rank) {
    if (!control::selects(ranks, round_.base_rank + local_rank)) continue;
    any = processes_.forward_to(local_rank, signal) || any;
  }
  if (any) {
    record_.note(JobEventKind::signal_forwarded, {}, signal);
    return {};
  }
  return tl::unexpected(no_such_rank_here());
}

Error AgentLoop::no_such_rank_here() const {
  return {ExitCode::environment,
          fmt::format("none of these ranks runs on this node, which has {} to {}; ask the node "
                      "that has them",
                      round_.base_rank, round_.base_rank + setup_.workers - 1)};
}

void AgentLoop::give_logs(const LogsQuery& query, ControlHandlers::LogsDone done) {
  output_->tails([this, query, done = std::move(done)](const std::vector<WorkerTail>& tails) {
    boost::asio::post(io_, [this, query, done, tails] {
      std::vector<control::LogText> logs;
      for (size_t i = 0; i < tails.size(); ++i) {
        const int rank = round_.base_rank + static_cast<int>(i);
        if (!control::selects(query.ranks, rank)) continue;
        logs.push_back({rank, std::string(asked_for(tails[i], query, rank)), tails[i].position});
      }
      done(std::move(logs));
    });
  });
}

}  // namespace muster

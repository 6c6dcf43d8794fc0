#include "agent/job/control_part.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <unistd.h>

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

// Returns their folder, which is removed with the socket.
Result<std::string> write_hooks_beside(const ControlServer::Socket& socket,
                                       const WorkerHooks& wanted) {
  // The Python hook compares it with os.path.abspath() of its own.
  const std::string folder =
      std::filesystem::absolute(control_hook_path(socket.folder, socket.pid)).lexically_normal();
  return write_hooks(folder, wanted).map([&] { return folder; });
}

}  // namespace

ControlPart::ControlPart(boost::asio::io_context& io, JobSeam& job, const LaunchSpec& spec,
                         const WorkerProgram& program, const std::string& run_id,
                         const Parts& parts, Callbacks callbacks)
    : io_(io),
      job_(job),
      spec_(spec),
      program_(program),
      run_id_(run_id),
      parts_(parts),
      callbacks_(std::move(callbacks)) {}

// Runs on the output thread, as it may wait for a disk; done before the first streams are opened.
void ControlPart::open(const ControlPlace& place) {
  const JobEntry entry{
      getppid(), run_id_, program_.name, static_cast<double>(std::time(nullptr)), {}};
  WorkerHooks wanted = parts_.rings.wanted() ? built_in_hooks() : WorkerHooks{};
  wanted.python &= spec_.python_hook;
  job_.on_disk([this, place, entry, wanted] {
    const Result<ControlServer::Socket> socket = ControlServer::open(place, entry);
    Result<std::string> hooks;
    if (socket && wanted != WorkerHooks{}) hooks = write_hooks_beside(*socket, wanted);
    boost::asio::post(io_, [this, socket, hooks, wanted] {
      if (!socket)
        return job_.warn("musterctl cannot reach this job, and its calls are not recorded: " +
                         socket.error().message);
      socket_ = *socket;
      if (!hooks) {
        job_.say(fmt::format("the calls of {}NCCL are not recorded: {}",
                             wanted.python ? "Python programs and of " : "",
                             hooks.error().message));
      } else {
        if (wanted.python) parts_.own_ranks.set_stack_folder(python_hook_ = *hooks);
        if (wanted.nccl) nccl_plugin_ = nccl_plugin_in(*hooks);
      }
      if (job_.is_ending()) {
        ::close(socket->fd);
        return close();
      }
      server_ = std::make_unique<ControlServer>(
          io_, *socket, ControlServer::Options{},
          ControlHandlers{
              [this](auto done) { give_status(std::move(done)); },
              [this](int signal, const auto& ranks) { return signal_ranks(signal, ranks); },
              [this](const LogsQuery& query, auto done) { give_logs(query, std::move(done)); },
              [this](const auto& request, auto done) {
                parts_.answers.records(request, std::move(done));
              },
              [this](const auto& request, auto done) {
                parts_.answers.stacks(request, std::move(done));
              },
              [this](auto done) { parts_.bundles.dump(std::move(done)); }});
    });
  });
}

void ControlPart::close() {
  server_.reset();
  if (!socket_) return;
  job_.on_disk([socket = *socket_] { ControlServer::remove(socket); });
  socket_.reset();
}

control::JobStatus ControlPart::status() {
  control::JobStatus status;
  status.job_id = run_id_;
  status.pid = getppid();
  status.program = program_.name;
  status.world_size = job_.round().world_size;
  status.restarts_used = job_.round().restarts;
  status.max_restarts = spec_.max_restarts;
  status.max_membership_changes = spec_.rendezvous.max_membership_changes;
  status.uptime_s = to_seconds(std::chrono::steady_clock::now() - began_);
  status.log_dir = job_.log_folder();
  callbacks_.add_progress(status);
  return status;
}

// The state of all nodes comes from the job's host.
void ControlPart::give_status(ControlHandlers::StatusDone done) {
  job_.find_nodes([this, done = std::move(done)](std::vector<membership::NodeLine> lines) {
    control::JobStatus all = status();
    all.nodes = std::move(lines);
    done(std::move(all));
  });
}

// A stop signal without ranks stops the job; any other signal goes once to each selected worker.
Result<void> ControlPart::signal_ranks(int signal, const control::RankRanges& ranks) {
  if (!job_.has_workers()) {
    return fail(ExitCode::environment,
                "no worker is running now; try again when the job has begun");
  }
  if (ranks.empty() && std::ranges::count(spec_.stop_signals, signal) > 0) {
    job_.request_stop(signal);
    return {};
  }
  bool any = false;
  const RoundView& round = job_.round();
  for (int i = 0; i < round.local_world_size && job_.attempt() >= 0; ++i) {
    if (!control::selects(ranks, round.base_rank + i)) continue;
    any = parts_.processes.forward_to(i, signal) || any;
  }
  if (any) {
    parts_.record.note(JobEventKind::signal_forwarded, {}, signal);
    return {};
  }
  return ranks_of_other_nodes();
}

tl::unexpected<Error> ControlPart::ranks_of_other_nodes() {
  const RoundView& round = job_.round();
  return fail(ExitCode::environment,
              fmt::format("none of these ranks runs on this node, which has {} to {}; ask the node "
                          "that has them",
                          round.base_rank, round.base_rank + round.local_world_size - 1));
}

void ControlPart::give_logs(const LogsQuery& query, ControlHandlers::LogsDone done) {
  callbacks_.tails([this, query, done = std::move(done)](const std::vector<WorkerTail>& tails) {
    boost::asio::post(io_, [this, query, done, tails] {
      std::vector<control::LogText> logs;
      for (size_t i = 0; i < tails.size(); ++i) {
        const int rank = job_.round().base_rank + static_cast<int>(i);
        if (!control::selects(query.ranks, rank)) continue;
        logs.push_back({rank, std::string(asked_for(tails[i], query, rank)), tails[i].position});
      }
      if (logs.empty() && !tails.empty()) return done(ranks_of_other_nodes());
      done(std::move(logs));
    });
  });
}

}  // namespace muster

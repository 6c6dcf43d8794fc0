// A control socket without a job: answers musterctl as an agent would, with fake workers.
//
//   control_host ID [RANKS]    prints its pid, then "signal N to RANKS" for each signal; exits at
//                              end of file on its standard input. Each line there is added to every
//                              rank's log. After "stuck" it answers no request for logs; "silent"
//                              gives it a second node that does not answer.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "agent/control/control_server.h"

namespace muster {
namespace {

std::string last_lines(const std::string& text, int lines) {
  std::size_t at = text.size();
  for (int i = 0; i <= lines; ++i) {
    if (at == 0) return text;
    const std::size_t newline = text.rfind('\n', at - 1);
    if (newline == std::string::npos) return text;
    if (i == lines) return text.substr(newline + 1);
    at = newline;
  }
  return text;
}

class ControlHost {
 public:
  ControlHost(std::string id, int ranks)
      : id_(std::move(id)), input_(io_, dup(STDIN_FILENO)), logs_(static_cast<std::size_t>(ranks)) {
    for (std::size_t rank = 0; rank < logs_.size(); ++rank)
      logs_[rank] = fmt::format("rank {} begins\n", rank);
  }

  int run() {
    const auto variable = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value == nullptr ? "" : value);
    };
    const ControlPlace place{variable("MUSTER_RUN_DIR"), variable("XDG_RUNTIME_DIR")};
    const JobEntry entry{getpid(), id_, "made_up.py", 1700000000, {}};
    const auto socket = ControlServer::open(place, entry);
    if (!socket) {
      std::fprintf(stderr, "control_host: %s\n", socket.error().message.c_str());
      return 1;
    }
    ControlServer server(io_, *socket, {}, handlers());
    server_ = &server;
    read_line();
    say(fmt::format("{}", getpid()));
    io_.run();
    ControlServer::remove(*socket);
    return 0;
  }

 private:
  static void say(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  void read_line() {
    boost::asio::async_read_until(input_, boost::asio::dynamic_buffer(typed_), '\n',
                                  [this](boost::system::error_code error, std::size_t n) {
                                    if (error) return server_->close();
                                    take_line(typed_.substr(0, n));
                                    typed_.erase(0, n);
                                    read_line();
                                  });
  }

  void take_line(const std::string& line) {
    if (line == "stuck\n") {
      stuck_ = true;
      return;
    }
    if (line == "silent\n") {
      unanswered_ = {"node-b\x1b[31m (ranks 3-4): no answer within 2 s"};
      return;
    }
    for (std::string& log : logs_)
      log += line;
  }

  ControlHandlers handlers() {
    ControlHandlers handlers;
    handlers.status = [this](auto done) { done(status()); };
    handlers.signal = [this](int signal, const control::RankRanges& ranks) {
      return take_signal(signal, ranks);
    };
    handlers.logs = [this](const LogsQuery& query, ControlHandlers::LogsDone done) {
      if (!stuck_) done(logs(query));
    };
    handlers.records = [this](const control::RecordsRequest& request, auto done) {
      done(control::Records{records(request), unanswered_});
    };
    handlers.stacks = [this](const control::StacksRequest& request, auto done) {
      done(control::Stacks{stacks(request), unanswered_});
    };
    return handlers;
  }

  control::JobStatus status() const {
    const int ranks = static_cast<int>(logs_.size());
    control::JobStatus status;
    status.job_id = id_;
    status.pid = getpid();
    status.program = "made_up.py";
    status.phase = "attempt 0, restart 0 of 3: running";
    status.epoch = 2;
    status.world_size = ranks;
    status.nodes = {{0, "node-a", 0, ranks, "running"}, {-1, "node-b", 0, 0, "spare"}};
    status.max_restarts = 3;
    status.uptime_s = 62;
    return status;
  }

  Result<void> take_signal(int signal, const control::RankRanges& ranks) {
    std::string taken;
    for (int rank = 0; rank < static_cast<int>(logs_.size()); ++rank) {
      if (control::selects(ranks, rank))
        taken += fmt::format("{}{}", taken.empty() ? "" : ",", rank);
    }
    if (taken.empty()) return fail(ExitCode::usage, "no such rank runs here; see musterctl status");
    say(fmt::format("signal {} to {}", signal, taken));
    return {};
  }

  std::vector<control::LogText> logs(const LogsQuery& query) const {
    std::vector<control::LogText> found;
    for (int rank = 0; rank < static_cast<int>(logs_.size()); ++rank) {
      if (!control::selects(query.ranks, rank)) continue;
      const std::string& all = logs_[static_cast<std::size_t>(rank)];
      const auto after = query.after.find(rank);
      found.push_back(
          {rank,
           after == query.after.end() ? last_lines(all, query.lines) : all.substr(after->second),
           all.size()});
    }
    return found;
  }

  // Only rank 0 waits in a call. \x1b: text from a job is untrusted.
  std::vector<RankRecords> records(const control::RecordsRequest& request) const {
    std::vector<RankRecords> found;
    for (int rank = 0; rank < static_cast<int>(logs_.size()); ++rank) {
      if (!control::selects(request.ranks, rank)) continue;
      RankRecords& records = found.emplace_back();
      records.rank = rank;
      records.pid = 4710 + rank;
      records.summary = rank == 0 ? "in barrier #3 of group 'w\x1b[31m'" : "no recorder attached";
      if (rank > 0) continue;
      records.groups = {{"world", "w0", "0-1", 2, 0, GroupState::ready, 3, 2, 62, 12}};
      for (int i = std::max(1, 4 - request.lines); i <= 3; ++i) {
        CallLine& call = records.calls.emplace_back();
        call.group = "world";
        call.ordinal = i;
        call.operation = call.call = "barrier";
        call.state = i < 3 ? CallState::complete : CallState::pending;
        call.called_ago_s = 30 - 6 * i;
      }
      records.source = "worker_lib";
      records.current.emplace();
      records.current->group = "world";
      records.current->ordinal = 3;
      records.current->operation = "barrier\x1b[31m";
      records.current->state = CallState::pending;
      records.current->synchronous = true;
      records.current->called_ago_s = 12;
    }
    return found;
  }

  // Rank 0 is in another function than the other ranks.
  std::vector<RankStacks> stacks(const control::StacksRequest& request) const {
    std::vector<RankStacks> found;
    for (int rank = 0; rank < static_cast<int>(logs_.size()); ++rank) {
      if (!control::selects(request.ranks, rank)) continue;
      const pid_t pid = 4710 + rank;
      const StackFrame own{rank == 0 ? "load\x1b[31m" : "step", "/home/me/train.py", 88};
      found.push_back({.rank = rank,
                       .pid = pid,
                       .process = pid,
                       .threads = {{pid, "main", {{"read", "/lib/libc.so.6", 0}, own}}},
                       .missing = {}});
    }
    return found;
  }

  std::string id_;
  boost::asio::io_context io_{1};
  boost::asio::posix::stream_descriptor input_;
  std::string typed_;
  std::vector<std::string> logs_;
  ControlServer* server_ = nullptr;
  bool stuck_ = false;
  std::vector<std::string> unanswered_;
};

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: control_host ID [RANKS]\n");
    return 2;
  }
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 2;
  return muster::ControlHost(argv[1], std::clamp(ranks, 0, 1000)).run();
}

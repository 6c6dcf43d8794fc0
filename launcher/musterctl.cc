// The main program of musterctl: shows the state, the workers' output, and the ranks' collectives
// and stacks of this user's running jobs on this machine, has a job write what it knows into a
// file, and sends signals. It finds the jobs in a folder (control_folder.h), connects to one of
// them over its socket (control_protocol.h), and keeps nothing open afterwards.
// Exit codes: 0, 1 if a job is missing or refuses, 2 for wrong usage.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "agent/control/control_folder.h"
#include "agent/control/control_protocol.h"
#include "agent/hang/records_text.h"
#include "agent/hang/stacks.h"
#include "agent/report/text.h"
#include "launcher/musterctl_text.h"
#include "launcher/values/rank_lists.h"
#include "launcher/version.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
// Longer than the job's own limit, so that its answer arrives.
constexpr time_t kAnswerSecondsMax = 15;

struct Wanted {
  std::string job;
  std::string ranks;
  std::string signal;
  int lines = control::LogsRequest{}.lines;
  int calls = control::RecordsRequest{}.lines;
  bool follow = false;
  bool all_threads = false;
  bool json = false;
};

int complain_of(const Error& error) {
  std::fputs(("musterctl: " + error.message + "\n").c_str(), stderr);
  return error.code == ExitCode::usage ? kWrongUsage : kFailed;
}

// Returns the exit code.
int complain_of_missing(const std::vector<std::string>& unanswered) {
  for (const std::string& line : unanswered)
    complain_of({ExitCode::environment, clean_line(line)});
  return unanswered.empty() ? EXIT_SUCCESS : kFailed;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string variable_or_nothing(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<JobEntry> jobs_of_this_user() {
  return running_jobs(
      {variable_or_nothing("MUSTER_RUN_DIR"), variable_or_nothing("XDG_RUNTIME_DIR")});
}

// One connection: sends a request, receives lines.
class Conversation {
 public:
  static Result<Conversation> with(const JobEntry& job, const control::Request& request,
                                   bool patient) {
    Result<int> fd = connect_to_job(job.socket_path);
    if (!fd) return tl::unexpected(fd.error());
    Conversation talk{UniqueFd(*fd)};
    const timeval limit{patient ? 0 : kAnswerSecondsMax, 0};
    setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const std::string line = control::encode(request);
    if (send(*fd, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
      return fail(ExitCode::environment,
                  fmt::format("cannot ask the job with pid {}: {}; try again", job.pid,
                              std::strerror(errno)));
    }
    return talk;
  }

  // nullopt: the job has closed the connection.
  Result<std::optional<std::string>> next_line() {
    std::array<char, 65536> buffer;
    std::size_t newline = 0;
    while ((newline = pending_.find('\n')) == std::string::npos) {
      const ssize_t n = recv(fd_.get(), buffer.data(), buffer.size(), 0);
      if (n == 0) return std::optional<std::string>();
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 || pending_.size() > control::kReplyBytesMax) {
        return fail(
            ExitCode::environment,
            fmt::format("the job does not answer ({}); it may be stopped or stuck: try again",
                        n < 0 ? std::strerror(errno) : "the line is too long"));
      }
      pending_.append(buffer.data(), static_cast<std::size_t>(n));
    }
    std::string line = pending_.substr(0, newline);
    pending_.erase(0, newline + 1);
    return std::optional(std::move(line));
  }

 private:
  explicit Conversation(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::string pending_;
};

Result<control::RankRanges> ranges_of(const Wanted& wanted) {
  if (wanted.ranks.empty()) return control::RankRanges();
  auto ranges = parse_rank_ranges(wanted.ranks);
  if (ranges && ranges->size() <= control::kRangesMax) return *std::move(ranges);
  return fail(ExitCode::usage,
              fmt::format("--ranks {}: {}", shown(wanted.ranks),
                          ranges ? "too many ranges; give fewer" : ranges.error()));
}

bool names_one_rank(const control::RankRanges& ranges) {
  return ranges.size() == 1 && ranges.front().first == ranges.front().second;
}

// Prints it, or with --json what is missing alone. Returns the exit code.
int show_reply(const control::Reply& reply, const Wanted& wanted, LogPrinter& logs) {
  if (const auto* error = std::get_if<Error>(&reply)) return std::min(complain_of(*error), kFailed);
  const auto show = [&](const std::string& text) {
    if (!wanted.json) print(text);
  };
  if (const auto* status = std::get_if<control::JobStatus>(&reply)) show(status_text(*status));
  const auto* texts = std::get_if<std::vector<control::LogText>>(&reply);
  if (texts != nullptr && !wanted.json) logs.add(*texts);
  if (const auto* stacks = std::get_if<control::Stacks>(&reply)) {
    show(stacks_text(stacks->ranks, wanted.all_threads));
    return complain_of_missing(stacks->unanswered);
  }
  if (const auto* records = std::get_if<control::Records>(&reply)) {
    show(records_text(records->ranks, wanted.calls > 0));
    return complain_of_missing(records->unanswered);
  }
  if (const auto* dump = std::get_if<control::Dump>(&reply)) {
    show(dump->path + "\n");
    return complain_of_missing(dump->unanswered);
  }
  return EXIT_SUCCESS;
}

// Prints replies until the job closes the connection. Returns the exit code.
int show_replies(Conversation& talk, const Wanted& wanted, LogPrinter& logs) {
  int code = EXIT_SUCCESS;
  for (bool answered = false;; answered = true) {
    const auto line = talk.next_line();
    if (!line) return complain_of(line.error());
    if (!*line && answered) return code;
    if (!*line) return complain_of({ExitCode::environment, "the job ended before it could answer"});
    const Result<control::Reply> reply = control::decode_reply(**line);
    if (!reply) return complain_of(reply.error());
    if (wanted.json) print(**line + "\n");
    code = show_reply(*reply, wanted, logs);
    if (std::holds_alternative<Error>(*reply)) return code;
  }
}

int ask(const control::Request& request, const Wanted& wanted, bool one_rank) {
  const Result<JobEntry> job = pick_job(jobs_of_this_user(), wanted.job);
  if (!job) return complain_of(job.error());
  Result<Conversation> talk = Conversation::with(*job, request, wanted.follow);
  if (!talk) return complain_of(talk.error());
  LogPrinter logs(!one_rank, print);
  const int code = show_replies(*talk, wanted, logs);
  logs.finish();
  return code;
}

int list(const Wanted& wanted) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const auto jobs = jobs_of_this_user();
  print(wanted.json ? list_json(jobs) : list_text(jobs, now));
  return EXIT_SUCCESS;
}

int send_signal(const Wanted& wanted) {
  const std::optional<int> number = control::signal_by_name(wanted.signal);
  if (!number) {
    return complain_of(
        {ExitCode::usage,
         fmt::format("there is no signal {}; give a name such as USR1", shown(wanted.signal))});
  }
  const auto ranges = ranges_of(wanted);
  if (!ranges) return complain_of(ranges.error());
  return ask(control::SignalRequest{*number, *ranges}, wanted, false);
}

int show_logs(const Wanted& wanted) {
  const auto ranges = ranges_of(wanted);
  if (!ranges) return complain_of(ranges.error());
  return ask(control::LogsRequest{*ranges, wanted.lines, wanted.follow}, wanted,
             names_one_rank(*ranges));
}

int show_records(const Wanted& wanted) {
  const auto ranges = ranges_of(wanted);
  if (!ranges) return complain_of(ranges.error());
  return ask(control::RecordsRequest{*ranges, wanted.calls}, wanted, false);
}

int show_stacks(const Wanted& wanted) {
  const auto ranges = ranges_of(wanted);
  if (!ranges) return complain_of(ranges.error());
  control::StacksRequest request{*ranges};
  request.main_threads = !wanted.all_threads && !wanted.json;
  return ask(request, wanted, false);
}

void add_job(CLI::App& command, Wanted& wanted) {
  command.add_option("job", wanted.job, "Job id or pid; may be omitted if only one job is running")
      ->type_name("JOB|PID");
  command.add_flag("--json", wanted.json, "Print JSON, one object per line");
}

void add_ranks(CLI::App& command, Wanted& wanted) {
  command.add_option("--ranks", wanted.ranks, "Only these global ranks, as in 0,8-15")
      ->type_name("RANKS");
}

void add_commands(CLI::App& app, Wanted& wanted) {
  app.set_version_flag("--version", std::string(version_line()));
  app.require_subcommand(0, 1);
  app.add_flag("--json", wanted.json, "Print JSON, one object per line");
  app.add_subcommand("list", "List the jobs of this user on this machine (the default)")
      ->add_flag("--json", wanted.json, "Print JSON");
  add_job(*app.add_subcommand("status", "Show a job: state, nodes, restarts, log folder"), wanted);
  CLI::App& logs = *app.add_subcommand("logs", "Show what the workers on this node have written");
  add_job(logs, wanted);
  add_ranks(logs, wanted);
  logs.add_option("-n,--lines", wanted.lines, "Print the last LINES lines of each rank")
      ->type_name("LINES")
      ->capture_default_str()
      ->check(CLI::Range(0, control::kLogLinesMax));
  logs.add_flag("-f,--follow", wanted.follow, "Keep printing new output");
  CLI::App& records = *app.add_subcommand(
      "records", "Show which collective each rank of the job is in, or called last");
  add_job(records, wanted);
  add_ranks(records, wanted);
  records.add_option("-n,--lines", wanted.calls, "Print its groups and last LINES calls as well")
      ->type_name("LINES")
      ->capture_default_str()
      ->check(CLI::Range(0, control::kRecordLinesMax));
  CLI::App& stacks = *app.add_subcommand("stacks", "Show where the ranks of the job are");
  add_job(stacks, wanted);
  add_ranks(stacks, wanted);
  stacks.add_flag("-a,--all-threads", wanted.all_threads,
                  "Print all threads with all their frames, not the main threads only");
  add_job(
      *app.add_subcommand("dump", "Have the job write all of this into a file of its log folder"),
      wanted);
  CLI::App& signal = *app.add_subcommand("signal", "Send a signal to workers");
  signal.add_option("signal", wanted.signal, "USR1, SIGUSR1 or 10")->required()->type_name("SIG");
  add_job(signal, wanted);
  add_ranks(signal, wanted);
}

int run_musterctl(int argc, char** argv) {
  CLI::App app{"Shows running muster jobs and sends them signals", "musterctl"};
  Wanted wanted;
  add_commands(app, wanted);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& text) {
    return app.exit(text);
  } catch (const CLI::ParseError& error) {
    std::string what = error.what();
    std::ranges::replace(what, '\n', ' ');
    return complain_of({ExitCode::usage, what + "; see musterctl --help"});
  }
  if (app.got_subcommand("status")) return ask(control::StatusRequest{}, wanted, false);
  if (app.got_subcommand("logs")) return show_logs(wanted);
  if (app.got_subcommand("records")) return show_records(wanted);
  if (app.got_subcommand("stacks")) return show_stacks(wanted);
  if (app.got_subcommand("dump")) return ask(control::DumpRequest{}, wanted, false);
  if (app.got_subcommand("signal")) return send_signal(wanted);
  return list(wanted);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  return muster::run_musterctl(argc, argv);
}

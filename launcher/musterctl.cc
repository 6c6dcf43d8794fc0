// The main program of musterctl, for this user's running jobs on this machine: shows their state,
// the workers' output, and the ranks' collectives and stacks, once or repeatedly, makes a job dump
// what it knows into a file, and sends signals. It finds the jobs in a folder (control_folder.h),
// connects to one of them over its socket (control_protocol.h), and keeps nothing open afterwards.
// Exit codes: 0, 1 if a job is missing or refuses, 2 for wrong usage.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "agent/control/control_folder.h"
#include "agent/control/control_protocol.h"
#include "agent/control/musterctl_text.h"
#include "agent/control/musterctl_top.h"
#include "agent/hang/records_text.h"
#include "agent/hang/stacks.h"
#include "agent/report/text.h"
#include "launcher/values/rank_lists.h"
#include "launcher/version.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

struct Wanted {
  std::string job;
  std::string ranks;
  std::string signal;
  int lines = control::LogsRequest{}.lines;
  int calls = control::RecordsRequest{}.lines;
  bool follow = false;
  bool all_threads = false;
  double interval_s = 2;
  bool once = false;
  bool json = false;
};

int complain_of(const Error& error) {
  std::fputs(("musterctl: " + error.message + "\n").c_str(), stderr);
  return error.code == ExitCode::usage ? kWrongUsage : kFailed;
}

// Prints the lines and returns the exit code.
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

ControlPlace place_of_this_user() {
  return {variable_or_nothing("MUSTER_RUN_DIR"), variable_or_nothing("XDG_RUNTIME_DIR")};
}

std::vector<JobEntry> jobs_of_this_user() {
  return running_jobs(place_of_this_user());
}

// Says why jobs that may be meant were not found; empty if there are none.
std::string why_hidden(std::span<const JobEntry> listed, std::string_view name) {
  std::vector<std::string> lines;
  for (const HiddenJob& job : hidden_jobs(place_of_this_user(), listed)) {
    if (name.empty() ? !job.foreign : name == std::to_string(job.pid))
      lines.push_back(
          fmt::format("cannot reach the job of pid {}: {}", job.pid, clean_line(job.why)));
  }
  return fmt::format("{}", fmt::join(lines, "\nmusterctl: "));
}

Result<JobEntry> wanted_job(const Wanted& wanted) {
  const std::vector<JobEntry> jobs = jobs_of_this_user();
  Result<JobEntry> job = pick_job(jobs, wanted.job);
  if (job || job.error().code != ExitCode::not_found) return job;
  const std::string hidden = why_hidden(jobs, wanted.job);
  return hidden.empty() ? job : fail(ExitCode::not_found, hidden);
}

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

// Longer than the job's own limit for an answer.
constexpr time_t kAnswerSecondsMax = 15;

// The connection to one job: sends a request, receives lines (control_protocol.h). Waits only a
// little longer than a job may take to answer, so that a stopped job causes a clear error.
class Conversation {
 public:
  // Fails with ExitCode::environment. `patient`: wait for lines without a limit.
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

  // nullopt if the job has closed the connection.
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

// Returns the only reply to a request, which may be an Error that the job sends.
Result<control::Reply> answer_of(const JobEntry& job, const control::Request& request) {
  Result<Conversation> talk = Conversation::with(job, request, /*patient=*/false);
  if (!talk) return tl::unexpected(talk.error());
  const auto line = talk->next_line();
  if (!line) return tl::unexpected(line.error());
  if (!*line) return fail(ExitCode::environment, "the job ended before it could answer");
  return control::decode_reply(**line);
}

// Prints the reply, or, with --json, only what it lacks. Returns the exit code.
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
  const Result<JobEntry> job = wanted_job(wanted);
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
  const std::string hidden = jobs.empty() ? why_hidden(jobs, {}) : std::string();
  if (wanted.json) {
    print(control::encode(jobs));
  } else if (hidden.empty()) {
    print(list_text(jobs, now));
  }
  if (!hidden.empty()) complain_of({ExitCode::environment, hidden});
  return EXIT_SUCCESS;
}

int send_signal(const Wanted& wanted, const control::RankRanges& ranges) {
  const std::optional<int> number = control::signal_by_name(wanted.signal);
  if (!number) {
    return complain_of(
        {ExitCode::usage,
         fmt::format("there is no signal {}; give a name such as USR1", shown(wanted.signal))});
  }
  return ask(control::SignalRequest{*number, ranges}, wanted, false);
}

// ---- top

// One sample of a job.
struct Look {
  control::JobStatus status;
  control::Records records;
  std::chrono::steady_clock::time_point at;
};

template <typename Wished>
Result<Wished> wished(const JobEntry& job, const control::Request& request) {
  Result<control::Reply> reply = answer_of(job, request);
  if (!reply) return tl::unexpected(reply.error());
  if (auto* const error = std::get_if<Error>(&*reply)) return tl::unexpected(*error);
  if (auto* const found = std::get_if<Wished>(&*reply)) return std::move(*found);
  return fail(ExitCode::environment,
              "the job sent an unexpected answer; does it run another version of muster?");
}

Result<Look> look_at(const JobEntry& job, const control::RecordsRequest& request) {
  auto status = wished<control::JobStatus>(job, control::StatusRequest{});
  if (!status) return tl::unexpected(status.error());
  auto records = wished<control::Records>(job, request);
  if (!records) return tl::unexpected(records.error());
  return Look{*std::move(status), *std::move(records), std::chrono::steady_clock::now()};
}

Screen screen_of(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_row, size.ws_col};
}

// Draws over the terminal's old text without flicker: ends each line with "erase to the right", the
// last one with "erase below" (ECMA-48).
void redraw(std::string_view text) {
  std::string drawn = "\x1b[H";
  for (const char c : text) {
    if (c == '\n') drawn += "\x1b[K";
    drawn += c;
  }
  print(drawn + "\x1b[J");
}

bool redraws(const Wanted& wanted) {
  return !wanted.json && !wanted.once && isatty(STDOUT_FILENO) == 1;
}

void show_look(const Look* before, const Look& now, const Wanted& wanted) {
  const double seconds =
      before == nullptr ? 0 : std::chrono::duration<double>(now.at - before->at).count();
  const std::vector<TopRank> ranks =
      top_ranks(before == nullptr ? nullptr : &before->records, now.records, seconds);
  const std::vector<std::string>& unanswered = now.records.unanswered;
  if (wanted.json) return print(top_json(now.status, ranks, unanswered));
  const Screen screen = redraws(wanted) ? screen_of(STDOUT_FILENO) : Screen{};
  const std::string text = top_text(now.status, ranks, unanswered, screen);
  if (redraws(wanted)) return redraw(text);
  print(text + (wanted.once ? "" : "\n"));
}

bool is_running(const JobEntry& job) {
  return std::ranges::any_of(jobs_of_this_user(),
                             [&](const JobEntry& other) { return other.pid == job.pid; });
}

// Samples until the job ends, or twice for --once; shows rates from the second sample on.
int show_top(const Wanted& wanted, const control::RankRanges& ranges) {
  const Result<JobEntry> job = wanted_job(wanted);
  if (!job) return complain_of(job.error());
  std::optional<Look> before;
  for (;;) {
    Result<Look> now = look_at(*job, control::RecordsRequest{ranges, 0});
    if (!now && before && !is_running(*job)) {
      std::fputs("musterctl: the job has ended\n", stderr);
      return wanted.once ? kFailed : EXIT_SUCCESS;
    }
    if (!now) {
      const int code = std::min(complain_of(now.error()), kFailed);
      if (!before || wanted.once) return code;
    } else {
      if (before || redraws(wanted)) show_look(before ? &*before : nullptr, *now, wanted);
      if (wanted.once && before) return complain_of_missing(now->records.unanswered);
      before = *std::move(now);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(wanted.interval_s));
  }
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
  CLI::App& top =
      *app.add_subcommand("top", "Show repeatedly which ranks make calls and which are behind");
  add_job(top, wanted);
  add_ranks(top, wanted);
  top.add_option("-i,--interval", wanted.interval_s, "Sample every SECONDS")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  top.add_flag("--once", wanted.once, "Take two samples, print once and exit");
  CLI::App& stacks =
      *app.add_subcommand("stacks", "Show where the ranks of the job are, and what they wait for");
  add_job(stacks, wanted);
  add_ranks(stacks, wanted);
  stacks.add_flag("-a,--all-threads", wanted.all_threads,
                  "Print all threads and child processes with all their frames, not only what "
                  "the main threads are in and wait for");
  add_job(*app.add_subcommand(
              "dump", "Have the job write records and stacks into a file of its log folder"),
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
  const auto ranges = ranges_of(wanted);
  if (!ranges) return complain_of(ranges.error());
  if (app.got_subcommand("status")) return ask(control::StatusRequest{}, wanted, false);
  if (app.got_subcommand("logs")) {
    return ask(control::LogsRequest{*ranges, wanted.lines, wanted.follow}, wanted,
               names_one_rank(*ranges));
  }
  if (app.got_subcommand("records"))
    return ask(control::RecordsRequest{*ranges, wanted.calls}, wanted, false);
  if (app.got_subcommand("top")) return show_top(wanted, *ranges);
  if (app.got_subcommand("stacks")) {
    const bool main_threads = !wanted.all_threads && !wanted.json;
    return ask(control::StacksRequest{*ranges, /*quiet=*/false, main_threads}, wanted, false);
  }
  if (app.got_subcommand("dump")) return ask(control::DumpRequest{}, wanted, false);
  if (app.got_subcommand("signal")) return send_signal(wanted, *ranges);
  return list(wanted);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const int code = muster::run_musterctl(argc, argv);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return muster::complain_of(
      {muster::ExitCode::environment, "cannot write all of it to standard output"});
}

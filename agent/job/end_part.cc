#include "agent/job/end_part.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "agent/report/error_file.h"
#include "agent/report/evidence.h"
#include "agent/report/failure_wire.h"
#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/verdict.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/signal_name.h"

namespace muster {
namespace {

// Writes at most PIPE_BUF bytes at a time, which a ready pipe takes without blocking (pipe(7)).
void write_what_fits(std::string_view text) {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  while (!text.empty() && poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0) {
    const ssize_t n = write(STDERR_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// Prints without the output thread, for which the launcher waits in vain; on a thread of its own,
// as the console may be a file on the disk that hangs.
void say_past_the_output(const std::string& text) {
  try {
    quiet_thread([text] { write_what_fits(text); }).detach();
  } catch (const std::system_error&) {
  }
}

RenderOptions terminal_options() {
  RenderOptions options;
  winsize size{};
  const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    options.width = size.ws_col;
  const char* const term = getenv("TERM");
  const char* const no_color = getenv("NO_COLOR");  // no-color.org: set and not empty
  options.colour = terminal && (no_color == nullptr || *no_color == '\0') &&
                   (term == nullptr || std::string_view(term) != "dumb");
  const time_t now = time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  options.utc_offset = std::chrono::seconds(local.tm_gmtoff);
  return options;
}

}  // namespace

EndPart::EndPart(boost::asio::io_context& io, const AgentInput& input, const AgentContext& context,
                 const JobFolders& folders, const Parts& parts)
    : io_(io),
      input_(input),
      context_(context),
      folders_(folders),
      parts_(parts),
      drive_(io, machine_, [this](const Ending::Effect& effect) { perform(effect); }) {}

void EndPart::begin(const group::JobOutcome& outcome) {
  JobReport report = parts_.record.finish(outcome);
  if (const auto& end = parts_.meeting.end()) apply_end(report, *end);
  if (report.end == JobEnd::unkillable) {
    for (const ProcessEntry& process : parts_.processes.descendants()) {
      if (is_over(process)) continue;
      report.stuck.push_back(stuck_process(process));
      report.stuck.back().foreign_user = foreign_user_of(process.pid);
    }
  }
  exit_code_ = exit_code_of(report, input_.spec.exit_code);
  parts_.record.write_final_events(report, exit_code_);
  parts_.output.write_file("result.json", result_json(report, input_.spec.exit_code));
  const bool said = parts_.meeting.another_says_the_end(report);
  RenderOptions options = terminal_options();
  options.whole_block = input_.spec.exit_code.policy == ExitCodePolicy::torchrun;
  last_screen_ = said ? std::string() : render_end(report, options);
  if (!last_screen_.empty()) parts_.output.say(last_screen_);
  parts_.output.perform([this] { boost::asio::post(io_, [this] { last_screen_.clear(); }); });
  write_error_file(report);
  // FilesWritten follows all requests above it; finish() may wait longer, for a console.
  parts_.output.remove_temporary(report.end == JobEnd::success);
  parts_.output.perform(
      [this] { boost::asio::post(io_, [this] { drive_.post(Ending::FilesWritten{}); }); });
  drive_.post(Ending::Ended{.waits_for_teller = said && exit_code_ != 0});
  say_goodbye(report.end == JobEnd::success);
}

// Writes the error file of a launcher that started this one.
void EndPart::write_error_file(const JobReport& report) {
  const std::string path = lookup(input_.environment, env::kErrorFile).value_or("");
  if (path.empty() || report.end == JobEnd::success) return;
  std::optional<std::string> content;
  if (report.culprit) content = launcher_error_file(report.the_culprit());
  if (report.end == JobEnd::stopped) {
    const Error stopped{ExitCode::success, "stopped by " + signal_name(report.stop_signal)};
    content = launcher_error_file(stopped, report.ended);
  }
  if (!report.error.message.empty()) content = launcher_error_file(report.error, report.ended);
  if (content) parts_.output.write_file(path, *content);
}

void EndPart::say_goodbye(bool succeeded) {
  parts_.meeting.close([this, succeeded] {
    parts_.time_limit.requeue(parts_.engine.is_warned() && succeeded,
                              [this] { drive_.post(Ending::Parted{}); });
  });
}

void EndPart::perform(const Ending::Effect& effect) {
  if (std::holds_alternative<Ending::CutDrain>(effect)) return parts_.drain.finish({});
  if (const auto* const notice = std::get_if<Ending::Say>(&effect))
    return say_past_the_output(notice_text(notice->what));
  if (std::holds_alternative<Ending::FinishOutput>(effect)) {
    return parts_.output.finish(
        [this] { boost::asio::post(io_, [this] { drive_.post(Ending::OutputFinished{}); }); });
  }
  // The front may be suspending itself at this very moment; nothing else would wake it up.
  if (getppid() == context_.front) kill(context_.front, SIGCONT);
  abandoned_ = std::get<Ending::Leave>(effect).abandons_output;
  if (abandoned_) parts_.output.abandon();
  io_.stop();
}

std::string EndPart::notice_text(Ending::Notice what) const {
  const std::string& disk = folders_.run.run_dir.empty() ? folders_.temp_dir : folders_.run.run_dir;
  switch (what) {
    case Ending::Notice::disk_is_silent:
      return fmt::format(
          "muster: the job has ended, but the disk of {} does not answer; leaving without its last "
          "files in {}\n",
          disk, duration_text(Ending::kFilesPatience));
    case Ending::Notice::files_are_lost:
      return last_screen_ +
             fmt::format(
                 "muster: the disk of {} does not answer: what was still to be written there is "
                 "lost\n",
                 disk);
    case Ending::Notice::output_is_unread:
      return "muster: the job has ended; waiting for its last output to be read; Ctrl-C stops "
             "waiting\n";
    case Ending::Notice::files_are_missing:
      return "muster: the job has ended; its last files are not written yet; a second signal "
             "leaves without them\n";
  }
  CHECK(false);
}

}  // namespace muster

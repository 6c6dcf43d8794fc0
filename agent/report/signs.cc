#include "agent/report/signs.h"

#include <algorithm>
#include <csignal>
#include <string_view>

#include "agent/report/cause.h"
#include "agent/report/error_file.h"
#include "agent/report/last_words.h"
#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// An error followed by more lines was handled; fewer may be a teardown's warnings.
constexpr int kLinesAfterMax = 20;
// A program that ends this soon after a failure in the worker library ended because of it.
constexpr Duration kLibraryRecent = std::chrono::seconds(10);
// A program that printed something this long after its error had survived it.
constexpr Duration kWentOn = std::chrono::milliseconds(100);
// A program that has ended may have printed something in its teardown.
constexpr Duration kTeardown = std::chrono::seconds(1);
// Output may be read this late if the cores are busy.
constexpr Duration kReadLate = std::chrono::milliseconds(10);
// torch's error file has whole seconds.
constexpr Duration kWholeSecond = std::chrono::seconds(1);

// Summarizes the call stack as on a stderr: it says more than the message, which covers only a
// chain's last exception. A user's handler may record an unrelated call stack, which is ignored.
std::string words_of(const WorkerError& error) {
  const std::string& text = error.message.empty() ? error.callstack : error.message;
  const std::string message = clean_line(std::string_view(text).substr(0, text.find('\n')));
  const bool same = contains(error.callstack, message);
  std::string words = same ? last_words(error.callstack) : std::string();
  return words.empty() ? message : words;
}

class Examiner {
 public:
  Examiner(const WorkerRecord& record, const std::optional<StopMark>& stop, Instant unix_epoch)
      : record_(record), failure_(record.failure), stop_(stop), unix_epoch_(unix_epoch) {}

  Examination examine() {
    take_end();
    // A process that is killed or meets a fault has no time to print anything about it.
    if (!ended_by_fault()) {
      take_error_file();
      take_words();
      take_library();
      take_departure();
    } else {
      examination_.error.text = last_words(record_.printed.err_tail);
    }
    if (signs().lost_console && examination_.error.text.starts_with("BrokenPipeError"))
      signs().blame.reset();
    // The last words of a worker that fails while it is stopped explain only its own end.
    const bool failed = record_.ended && !failure_.status.success() && !signs().by_stop;
    const bool has_reason = signs().declared || signs().raised;
    if (was_stopped() && failed && !has_reason && examination_.error.text.empty())
      examination_.error = {last_words(record_.printed.err_tail), true, {}};
    if (was_stopped() && signs().raised) {
      // A rank that had begun to end got its signal only late in the stop.
      const bool was_spared = record_.departure && record_.ended && !signs().blame;
      const Instant stopped = was_spared ? *record_.ended : stop_->at;
      examination_.error.before_stop = stopped - *signs().raised;
    }
    return std::move(examination_);
  }

 private:
  WorkerSigns& signs() { return examination_.signs; }

  void take_end() {
    signs().rank = failure_.rank;
    signs().node_rank = std::max(failure_.node_rank, 0);
    signs().declared = !failure_.declared.empty();
    signs().lost_console = record_.printed.lost_console;
    signs().at_stop = record_.at_stop;
    signs().order = record_.order;
    signs().active_until = record_.printed.last_output;
    if (const auto seen = record_.declared ? record_.declared : record_.ended)
      signs().ended = *seen;
    if (!record_.ended) return;
    signs().status = failure_.status;
    signs().by_stop = stop_ && may_be_of_stop() &&
                      explained_by_stop(failure_.status, stop_->signal, stop_->killed);
  }

  bool may_be_of_stop() const {
    if (stop_->earlier > Duration::zero()) return *record_.ended >= stop_->at - stop_->earlier;
    return record_.at_stop < AtStop::exiting && *record_.ended >= stop_->at;
  }

  bool ended_by_fault() {
    return record_.ended && !signs().by_stop &&
           failure_.status.kind == ExitStatus::Kind::signaled &&
           !failure_.status.killed_by(SIGABRT) && !failure_.status.killed_by(SIGPIPE);
  }

  // True if it still ran when the stop came, which may then cause its later output.
  bool was_stopped() const {
    const bool going = record_.at_stop == AtStop::exiting || record_.at_stop == AtStop::ended;
    return stop_ && !going && (!record_.ended || *record_.ended >= stop_->at);
  }

  Instant steady(WallTime time) const { return unix_epoch_ + time.time_since_epoch(); }

  // Keeps the earliest of several records of one error: it is the most exact.
  void raised_at(Instant when, Duration error) {
    if (record_.started && when + error < *record_.started) return;
    if (was_stopped() && when >= stop_->at) return;
    if (signs().raised && *signs().raised <= when) return;
    signs().raised = when;
    signs().raised_error = error;
  }

  // Bytes that were in the pipe when the stop began were printed before it, even if read later. For
  // a log that the worker writes itself, only the time of its last change is known.
  void printed_at(size_t begin) {
    const std::optional<Instant> came = record_.printed.came_at(begin);
    if (!came) {
      if (record_.printed.err_written) raised_at(steady(*record_.printed.err_written), kReadLate);
      return;
    }
    const bool waited = was_stopped() && *came >= stop_->at;
    if (waited) return raised_at(stop_->at - std::chrono::nanoseconds(1), kReadLate);
    raised_at(*came, Duration{0});
  }

  // torch records whole seconds; the file's mtime is more exact, unless a file server's clock
  // differs.
  void take_error_file() {
    if (!failure_.error_file_content) return;
    const std::optional<WorkerError> error = parse_error_file(*failure_.error_file_content);
    if (!error) return;
    std::optional<Instant> told;
    std::optional<Instant> written;
    if (error->unix_time_s) told = unix_epoch_ + std::chrono::seconds(*error->unix_time_s);
    if (record_.error_file_written) written = steady(*record_.error_file_written);
    if (is_stale(told, written)) return;
    const bool agree =
        written &&
        (!told || (*written >= *told - kWholeSecond && *written <= *told + 2 * kWholeSecond));
    if (agree) {
      raised_at(*written, Duration{0});
    } else if (told) {
      raised_at(*told, kWholeSecond);
    }
    if (was_stopped() && !signs().raised) return;
    examination_.error = {words_of(*error), true, {}};
    has_record_ = error->well_formed;
    signs().blame = blame_in(error->callstack.empty() ? error->message : error->callstack);
  }

  // True if an earlier life of this worker left the file.
  bool is_stale(std::optional<Instant> told, std::optional<Instant> written) const {
    if (!record_.started) return false;
    return told ? *told + kWholeSecond < *record_.started : written && *written < *record_.started;
  }

  void take_words() {
    std::string_view tail = record_.printed.err_tail;
    if (was_stopped()) tail = tail.substr(0, record_.printed.tail_before_stop());
    const std::optional<ErrorMessage> found = last_message(tail);
    if (!found) return take_words_of_stdout();
    const ErrorMessage& message = *found;
    const bool ended_it = message.uncaught || is_last_word(tail, message);
    const bool known_before = signs().raised.has_value();
    if (ended_it) printed_at(message.begin);
    signs().presumed = was_stopped() && !known_before && !message.uncaught;
    if (was_stopped() && !signs().raised) return;
    if (has_record_) return;  // The error file takes precedence.
    // Python exits with 1 after an uncaught exception, C++ with SIGABRT. With any other end, the
    // program may have caught the exception and continued.
    const bool usual =
        (failure_.status == ExitStatus::exited(1) || failure_.status.killed_by(SIGABRT)) &&
        !printed_after(message);
    examination_.error = {
        message.text, message.uncaught || usual || (was_stopped() && ended_it), {}};
    if (ended_it) signs().blame = message.blame;
  }

  // When its parts came is not known, so it says nothing about a worker that ran until the stop.
  void take_words_of_stdout() {
    if (was_stopped() || has_record_) return;
    const std::optional<ErrorMessage> found = last_message(record_.printed.out_tail);
    if (!found || !is_near_the_end(record_.printed.out_tail, *found)) return;
    const bool usual = failure_.status.kind == ExitStatus::Kind::exited;
    examination_.error = {found->text, found->uncaught || usual, {}};
    signs().blame = found->blame;
  }

  static bool is_near_the_end(std::string_view tail, const ErrorMessage& message) {
    return std::ranges::count(tail.substr(message.end), '\n') <= kLinesAfterMax;
  }

  bool is_last_word(std::string_view tail, const ErrorMessage& message) const {
    if (std::ranges::count(tail.substr(end_of(message)), '\n') > kLinesAfterMax) return false;
    return !printed_after(message);
  }

  // True if more output followed it on either stream, before the stop.
  bool printed_after(const ErrorMessage& message) const {
    const size_t end = end_of(message);
    const auto said = end > 0 ? record_.printed.came_at(end - 1) : std::nullopt;
    const std::optional<Instant>& last = record_.printed.last_output;
    if (!said || !last || (was_stopped() && *last >= stop_->at)) return false;
    return *last > *said + (was_stopped() ? kWentOn : kTeardown);
  }

  // Text that comes much later than a message's beginning does not belong to the message.
  size_t end_of(const ErrorMessage& message) const {
    const auto began = record_.printed.came_at(message.begin);
    size_t low = message.begin;
    size_t high = message.end;
    while (began && low < high) {
      const size_t middle = low + (high - low) / 2;
      const auto came = record_.printed.came_at(middle);
      if (came && *came > *began + kWentOn) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return high;
  }

  // The worker library knows in which ranks a failure began, whereas a message may name any rank.
  void take_library() {
    if (!record_.library || record_.library->code == FailureCode::stopped) return;
    const FailureRecord& library = *record_.library;
    const Instant known{std::chrono::nanoseconds(library.time_ns)};
    if (record_.started && known < *record_.started) return;
    const std::string& text = examination_.error.text;
    const bool is_the_error =
        !text.empty() && (contains(text, library.message) || contains(library.message, text));
    const Instant end = signs().raised.value_or(record_.ended.value_or(known));
    const bool recent = end - known < kLibraryRecent;
    if (!is_the_error && !(recent && (fails_group(library.code) || is_all_said(library)))) return;
    if (was_stopped() && known >= stop_->at) return;
    raised_at(known, Duration{0});
    signs().presumed = false;
    if (examination_.error.text.empty()) examination_.error = {library.message, true, {}};
    if (library.origin.empty()) {
      // The store is gone, or all others have left.
      const bool is_loss =
          is_one_of(library.code, {FailureCode::rendezvous, FailureCode::peer_failed});
      if (is_loss && !signs().blame) signs().blame = Blame{};
      return;
    }
    signs().blame.reset();
    if (std::ranges::find(library.origin, library.rank) == library.origin.end())
      signs().blame = Blame{.ranks = library.origin, .about = about(library.code)};
  }

  // Noted before it closed its connections, and so before the failures that this caused.
  void take_departure() {
    if (!record_.departure) return;
    const Departure& noted = *record_.departure;
    const Instant known{std::chrono::nanoseconds(noted.time_ns)};
    if (noted.kind == DepartureKind::left) {
      signs().left = known;
      return;
    }
    const bool has_words = signs().raised && !examination_.error.text.empty();
    raised_at(known, Duration{0});
    const bool may_be_caught = noted.kind == DepartureKind::raised && signs().by_stop;
    if (!may_be_caught) signs().presumed = false;
    if (has_words && !signs().blame) return;
    const std::optional<Blame> blame = blame_in(noted.error);
    if (has_words && (blame || contains(examination_.error.text, clean_line(noted.error)))) return;
    signs().presumed = may_be_caught;
    signs().blame = blame;
    examination_.error = {clean_line(noted.error), true, {}};
    if (signs().by_stop) examination_.error.site = clean_line(noted.site);
  }

  static Blame::About about(FailureCode code) {
    if (code == FailureCode::mismatch) return Blame::About::mismatch;
    return code == FailureCode::timeout ? Blame::About::timeout : Blame::About::loss;
  }

  // A program that catches an error and exits because of it may print only its message.
  bool is_all_said(const FailureRecord& library) const {
    return examination_.error.text.empty() && !library.message.empty() &&
           contains(record_.printed.err_tail, library.message);
  }

  // These errors make a group unusable; a program may recover from the others.
  static bool fails_group(FailureCode code) {
    using enum FailureCode;
    return is_one_of(code, {timeout, peer_failed, aborted, mismatch, backend});
  }

  const WorkerRecord& record_;
  const WorkerFailure& failure_;
  const std::optional<StopMark>& stop_;
  const Instant unix_epoch_;
  Examination examination_;
  bool has_record_ = false;  // True if there is a well-formed error file.
};

}  // namespace

Examination examine(const WorkerRecord& record, const std::optional<StopMark>& stop,
                    Instant unix_epoch) {
  return Examiner(record, stop, unix_epoch).examine();
}

}  // namespace muster

#include "worker_lib/failure_reports.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <utility>

#include <unistd.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/text.h"
#include "rendezvous/ring/record_fd.h"
#include "worker_lib/fork_guard.h"

namespace muster::worker {

static_assert(static_cast<int>(FailureCode::timeout) == static_cast<int>(ErrorCode::timeout));
static_assert(static_cast<int>(FailureCode::system) == static_cast<int>(ErrorCode::system));

namespace {

// True for this rank's own errors, unless they name others: a mistake, or its kernel's refusal.
bool is_own_error(ErrorCode code) {
  return code == ErrorCode::invalid_argument || code == ErrorCode::not_initialized ||
         code == ErrorCode::not_member || code == ErrorCode::forked ||
         code == ErrorCode::environment || code == ErrorCode::system;
}

bool is_loss(ErrorCode code) {
  return code == ErrorCode::peer_failed || code == ErrorCode::rendezvous ||
         code == ErrorCode::backend || code == ErrorCode::stopped;
}

std::string text_of(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::string() : value;
}

int rank_in_environment() {
  return std::max(whole_number<int>(text_of(env::kRank)).value_or(-1), -1);
}

class KeptErrno {
 public:
  KeptErrno() = default;
  ~KeptErrno() { errno = before_; }
  KeptErrno(KeptErrno&&) = delete;

 private:
  const int before_ = errno;
};

}  // namespace

int64_t new_failure_time() {
  static std::atomic<int64_t> last = 0;
  const int64_t now =
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  int64_t before = last.load();
  int64_t mine;
  do {
    mine = std::max(now, before + 1);
  } while (!last.compare_exchange_weak(before, mine));
  return mine;
}

FailureReports::FailureReports(std::string record_fd, int rank)
    : record_fd_(std::move(record_fd)), rank_(rank) {}

// Maps the ring on joining: later the kernel may refuse that, for the very failure to report.
void FailureReports::joins(int rank) noexcept try {
  const std::lock_guard lock(mutex_);
  joined_ = ::getpid();
  rank_ = rank;
  report();
} catch (const std::exception&) {
}

void FailureReports::joins_group(int rank) noexcept try {
  const std::lock_guard lock(mutex_);
  if (joined_ == ::getpid()) return;
  joined_ = ::getpid();
  if (rank_ < 0) rank_ = rank;
  report();
} catch (const std::exception&) {
}

ring::Report* FailureReports::report() {
  if (ring_ == nullptr) {
    const std::optional<ring::RecordFd> named = ring::parse_record_fd(record_fd_);
    std::string why;
    if (named) ring_ = ring::map_ring(*named, /*writable=*/true, why);
  }
  if (ring_ == nullptr) return nullptr;
  ring::Report& report = ring_->notes.report;
  const bool may_write =
      joined_ != 0 ? joined_ == ::getpid() : written_by_ == ::getpid() || report.time_ns == 0;
  return may_write ? &report : nullptr;
}

bool FailureReports::is_echo(const Failure& failure, int64_t now) const {
  if (!last_) return false;
  if (failure.known_ns != 0 && failure.known_ns == last_->time_ns) return true;
  return is_loss(failure.code) && now - told_ns_ < kEchoes.count();
}

void FailureReports::add(const Failure& failure) noexcept {
  const KeptErrno kept;
  // The lock may be held for ever by a thread that exists only in the parent.
  if (in_forked_child()) return;
  try {
    const std::lock_guard lock(mutex_);
    told_this_thread_ = true;
    const int64_t now = new_failure_time();
    if (is_echo(failure, now)) return;
    FailureRecord record{.time_ns = failure.known_ns != 0 ? failure.known_ns : now,
                         .code = static_cast<FailureCode>(failure.code),
                         .rank = rank_,
                         .message = failure.message};
    for (const GlobalRank rank : failure.ranks)
      record.origin.push_back(rank.value);
    std::ranges::sort(record.origin);
    const auto repeated = std::ranges::unique(record.origin);
    record.origin.erase(repeated.begin(), repeated.end());
    std::ranges::replace_if(
        record.message, [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
    if (record.origin.empty() && is_own_error(failure.code) && rank_ >= 0)
      record.origin.push_back(rank_);
    told_ns_ = now;
    told_to_ = std::this_thread::get_id();
    if (ring::Report* const written = report()) {
      put_report(*written, record);
      written_by_ = ::getpid();
    }
    last_ = std::move(record);
  } catch (const std::exception&) {  // Out of memory: no record is made.
  }
}

void FailureReports::withdraw() noexcept {
  const KeptErrno kept;
  if (in_forked_child() || std::uncaught_exceptions() > 0 || std::current_exception() != nullptr)
    return;
  told_this_thread_ = false;
  const std::lock_guard lock(mutex_);
  if (told_to_ != std::this_thread::get_id()) return;
  last_.reset();
  if (written_by_ == ::getpid()) take_back_report(ring_->notes.report);
}

std::optional<FailureRecord> FailureReports::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

FailureReports& failure_reports() {
  // Never destroyed: destructors report failures, too.
  static auto* const reports = new FailureReports(text_of(env::kRecordFd), rank_in_environment());
  return *reports;
}

namespace {
// Built at load time, usually on the only thread: later the program may change its environment.
[[maybe_unused]] const FailureReports& made_at_load = failure_reports();
}  // namespace

}  // namespace muster::worker

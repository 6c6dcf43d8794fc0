#include "agent/job/torch_timers.h"

#include <chrono>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "agent/report/text.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(200);

std::string temp_timer_path(const std::string& temp_dir) {
  return fmt::format("{}/watchdog_timer_{}_{}", temp_dir, getpid(),
                     std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

TorchTimers::TorchTimers(boost::asio::io_context& io, JobSeam& job, const Environment& environment,
                         WorkerProcesses& processes, JobRecorder& record)
    : io_(io),
      job_(job),
      environment_(environment),
      processes_(processes),
      record_(record),
      poll_timer_(io) {}

void TorchTimers::open(const std::string& temp_dir, std::function<void(const Result<void>&)> done) {
  if (server_ || lookup(environment_, env::kEnableFileTimer) != "1") return done({});
  std::string path = lookup(environment_, env::kTimerFile).value_or("");
  if (path.empty()) path = temp_timer_path(temp_dir);
  job_.on_disk([this, path, done = std::move(done)] {
    const Result<int> fifo = FileTimerServer::make_fifo(path);
    boost::asio::post(io_, [this, path, fifo, done] {
      if (!fifo) return done(tl::unexpected(fifo.error()));
      server_ = std::make_unique<FileTimerServer>(
          io_, path, *fifo, [this](const FileTimer& timer) { on_expired(timer); });
      done({});
    });
  });
}

void TorchTimers::cancel() {
  poll_timer_.cancel();
  if (!server_) return;
  server_->close();
  job_.on_disk([path = server_->path()] { unlink(path.c_str()); });
}

// Any process that can open the FIFO may write any pid there: only one of the job's is trusted.
void TorchTimers::on_expired(const FileTimer& timer) {
  for (const ProcessEntry& process : processes_.descendants()) {
    if (process.pid != timer.pid) continue;
    job_.say(fmt::format(
        "timer '{}' of process {} has expired: {}", timer.scope, timer.pid,
        timer.signal > 0 ? "sending " + signal_name(timer.signal) : "nothing was asked for"));
    record_.timer_expired(timer.pid, local_rank_of(timer.pid), timer.signal, timer.scope);
    if (timer.signal > 0) signal_process(process, timer.signal);
    return;
  }
}

// -1 if that process is not itself a worker.
int TorchTimers::local_rank_of(pid_t pid) const {
  for (int rank = 0; rank < job_.round().local_world_size; ++rank) {
    if (processes_.pid(rank) == pid) return rank;
  }
  return -1;
}

// Uninterruptible sleep has no notification, so it is polled, and only if the user asked for it.
void TorchTimers::watch_uninterruptible() {
  const std::string limit = lookup(environment_, env::kUninterruptibleTimeout).value_or("");
  const double limit_s = whole_number<double>(limit).value_or(0);
  if (limit_s > 0) call_after(poll_timer_, kPollEvery, [this, limit_s] { poll(limit_s); });
}

void TorchTimers::poll(double limit_s) {
  if (job_.is_ending()) return;
  for (const ProcessEntry& process : processes_.descendants()) {
    const int rank = local_rank_of(process.pid);
    if (rank < 0 || rank >= static_cast<int>(polls_.size())) continue;
    int& polls = polls_[static_cast<size_t>(rank)];
    polls = process.state == 'D' ? polls + 1 : 0;
    const double stuck_s = polls * to_seconds(kPollEvery);
    if (stuck_s < limit_s) continue;
    polls = 0;
    job_.post(group::FailWorker{job_.attempt(), rank,
                                fmt::format("in uninterruptible sleep for {:.1f} s", stuck_s),
                                false});
  }
  watch_uninterruptible();
}

}  // namespace muster

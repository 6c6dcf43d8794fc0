// Watches an attempt's ranks for hangs, prints findings on every node of the job, and fails a rank
// for a hang if --on-hang asks for that. Records the calls for --trace. Control loop only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "agent/hang/hang_watch.h"
#include "agent/hang/rings.h"
#include "agent/hang/trace.h"
#include "agent/job/bundles.h"
#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/job/lingering_ranks.h"
#include "agent/job/own_ranks.h"
#include "agent/launch_spec.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

class HangPart {
 public:
  // `settled` is called when is_settling() becomes false.
  HangPart(boost::asio::io_context& io, JobSeam& job, const LaunchSpec& spec, Rings& rings,
           JobRecorder& record, OwnRanks& own_ranks, Bundles& bundles,
           std::function<void()> settled)
      : io_(io),
        job_(job),
        spec_(spec),
        rings_(rings),
        record_(record),
        own_ranks_(own_ranks),
        bundles_(bundles),
        lingering_(job, spec, record, own_ranks),
        settled_(std::move(settled)) {}

  // Opens the file of --trace; with several nodes, only checks its folder before the first round.
  std::optional<Error> open_trace();

  // ---- an attempt; begin() comes before its rings are made
  void begin(membership::Epoch epoch);
  void started(int local_rank, pid_t pid, const std::string& device);
  void ended(int local_rank, int code);  // ExitStatus::signed_code()
  void stop() {
    has_stopped_ = true;
    end();
  }
  // The rings may be freed afterwards.
  void end() {
    if (watch_) watch_->end();
  }
  void suspended() {
    if (watch_) watch_->suspended();
  }
  void resumed() {
    if (watch_) watch_->resumed();
  }
  void was_held(int rank) {
    if (watch_) watch_->was_held(rank);
  }
  // Calls `then` once the last calls of this node's workers have been compared.
  void when_judged(std::function<void()> then);
  void hear(const membership::Delivered& datagram);
  void keys_awaited(std::vector<AwaitedKeys> waits) {
    if (watch_ && !spec_.hang.off) watch_->keys_awaited(std::move(waits));
  }

  // True while the first failure of the attempt is unexplained.
  bool is_settling() const { return watch_ && watch_->is_settling(); }
  // One line for people; empty: no rank waits.
  std::string status() const { return watch_ ? watch_->status() : std::string(); }
  std::string name_of_group(const std::string& id) const {
    return watch_ ? watch_->name_of_group(id) : id;
  }

  // Hands over the trace at the job's end: closing it may wait for a disk.
  std::unique_ptr<hang::Trace> take_trace() { return std::move(trace_); }

 private:
  void watch();
  int rank_to_fail(const hang::Finding& finding) const;
  void on_finding(const hang::Effect& effect);
  void fail_for_hang(const hang::Finding& finding);
  void fail_rank(const HangNews& order);
  void tell_all(const HangNews& news);
  void on_news(std::string_view bytes);
  void say_all(const std::string& text);

  boost::asio::io_context& io_;
  JobSeam& job_;
  const LaunchSpec& spec_;
  Rings& rings_;
  JobRecorder& record_;
  OwnRanks& own_ranks_;
  Bundles& bundles_;
  LingeringRanks lingering_;
  const std::function<void()> settled_;
  std::unique_ptr<hang::Trace> trace_;    // --trace
  std::optional<hang::HangWatch> watch_;  // Set if the job is watched.
  membership::Epoch epoch_ = 0;
  bool has_stopped_ = false;  // The workers of this attempt are being stopped.
};

}  // namespace muster

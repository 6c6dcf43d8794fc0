// Handles signals that an engine, a service manager or another process sends to every process of
// the job, so that each worker gets them once (agent/job/engine_signals.h). Control loop only.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/signalfd.h>

#include "agent/hang/rings.h"
#include "agent/job/engine_signals.h"
#include "agent/job/job_seam.h"
#include "agent/launch_spec.h"
#include "agent/process/signal_witness.h"
#include "agent/process/worker_processes.h"
#include "rendezvous/net/drive.h"

namespace muster {

class EnginePart {
 public:
  // `stop_comes` is called when a stop was asked for, which may then be delayed.
  EnginePart(boost::asio::io_context& io, JobSeam& job, const EngineSpec& engine,
             WorkerProcesses& processes, Rings& rings, std::unique_ptr<SignalWitness> witness,
             std::function<void()> stop_comes);
  ~EnginePart() { witness_fd_.release(); }  // Owned by the witness.

  void listen();
  void cancel() { held_stop_.cancel(); }

  // Sets this node's place in the newest round.
  void seat(int node_rank, int nodes) { drive_.post(EngineSignals::Seated{node_rank, nodes}); }

  void on_own_signal(const signalfd_siginfo& info);
  // The front, or this process, got a signal that ends the job.
  void on_stop_signal(int signal, Sender sender);
  // Takes a signal that the front got if it is a warning by the engine; else returns false.
  bool takes_warning(int signal, Sender sender);
  // Takes a message from another node, which was warned.
  void on_letter(int from, std::string_view content);
  void time_is_short(int signal) { drive_.post(EngineSignals::TimeIsShort{signal}); }
  // Another node leaves because of a signal to every process: calls `stop` once it is overdue here.
  void await_own_stop(std::function<void()> stop);

  pid_t witness() const { return witness_->pid(); }
  // True if the workers had the stop signal before muster sent one.
  bool workers_are_told() const { return workers_are_told_; }
  // True if the engine told this node to end, as it tells all nodes.
  bool is_told() const { return is_told_; }
  // True if a warning, by a signal or by --notice-before, announced the job's end.
  bool is_warned() const { return is_warned_; }

 private:
  bool is_of_engine(Sender sender) const { return sender == Sender::engine && engine_.signals_all; }
  bool was_sent(int signal);
  void perform(const EngineSignals::Effect& effect);
  void stop(const EngineSignals::Stop& stop);
  void warn(const EngineSignals::Warn& warning);

  JobSeam& job_;
  const EngineSpec& engine_;
  WorkerProcesses& processes_;
  Rings& rings_;
  const std::function<void()> stop_comes_;
  const std::unique_ptr<SignalWitness> witness_;
  boost::asio::posix::stream_descriptor witness_fd_;
  boost::asio::steady_timer held_stop_;  // Runs until this node's own stop is overdue.
  EngineSignals machine_;
  Drive<EngineSignals, EngineSignals::Tick> drive_;
  std::map<int, std::chrono::steady_clock::time_point> witnessed_;  // When each signal came.
  bool workers_are_told_ = false;
  bool is_told_ = false;
  bool is_warned_ = false;
};

}  // namespace muster

// Signals that an engine, a service manager or another process sends to every process of the job:
// who had them (agent/job/engine_signals.h), so that each worker gets them once.
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
  // `stop_comes`: a stop was asked for, and may have to wait.
  EnginePart(boost::asio::io_context& io, JobSeam& job, const EngineSpec& engine,
             WorkerProcesses& processes, Rings& rings, std::unique_ptr<SignalWitness> witness,
             std::function<void()> stop_comes);
  ~EnginePart() { witness_fd_.release(); }  // It is the witness's.

  void listen();
  void cancel() { held_stop_.cancel(); }

  // This node's place in the newest round.
  void seat(int node_rank, int nodes) { drive_.post(EngineSignals::Seated{node_rank, nodes}); }

  // This process got a signal; the front got one that ends the job.
  void on_own_signal(const signalfd_siginfo& info);
  void on_stop_signal(int signal, Sender sender);
  // The front got a signal; false: it is no warning of the engine's.
  bool takes_warning(int signal, Sender sender);
  // From another node, which was warned.
  void on_letter(int from, std::string_view content);
  // The job's end is near: a warning that no signal brought.
  void time_is_short(int signal) { drive_.post(EngineSignals::TimeIsShort{signal}); }
  // Another node leaves because of a signal that every process there got: it may be on its way to
  // the workers here as well. `stop` is called once it is late.
  void await_own_stop(std::function<void()> stop);

  pid_t witness() const { return witness_->pid(); }
  // The workers had the stop signal before muster sent one.
  bool workers_are_told() const { return workers_are_told_; }
  // By the engine, as all nodes are.
  bool is_told() const { return is_told_; }
  // The engine, or the time that it leaves, told of the job's end.
  bool is_warned() const { return is_warned_; }

 private:
  bool is_of_engine(Sender sender) const;
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
  boost::asio::steady_timer held_stop_;  // Until this node's own stop is here, or late.
  EngineSignals machine_;
  Drive<EngineSignals, EngineSignals::Tick> drive_;
  std::map<int, std::chrono::steady_clock::time_point> witnessed_;  // By signal.
  bool workers_are_told_ = false;
  bool is_told_ = false;
  bool is_warned_ = false;
};

}  // namespace muster

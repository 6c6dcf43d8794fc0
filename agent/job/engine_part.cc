#include "agent/job/engine_part.h"

#include <csignal>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "agent/letter.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/net/call_after.h"

namespace muster {

EnginePart::EnginePart(boost::asio::io_context& io, JobSeam& job, const EngineSpec& engine,
                       WorkerProcesses& processes, Rings& rings,
                       std::unique_ptr<SignalWitness> witness, std::function<void()> stop_comes)
    : job_(job),
      engine_(engine),
      processes_(processes),
      rings_(rings),
      stop_comes_(std::move(stop_comes)),
      witness_(std::move(witness)),
      witness_fd_(io),
      held_stop_(io),
      machine_([this](int signal) { return was_sent(signal); }),
      drive_(io, machine_, [this](const EngineSignals::Effect& effect) { perform(effect); }) {}

void EnginePart::listen() {
  if (witness_->fd() < 0) {
    witness_fd_.release();
    return;
  }
  if (!witness_fd_.is_open()) {
    processes_.add_helper(witness_->pid());
    witness_fd_.assign(witness_->fd());
  }
  witness_fd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this](boost::system::error_code error) {
                           if (error) return;
                           while (const auto seen = witness_->next()) {
                             witnessed_[seen->signal] = seen->when;
                             drive_.post(EngineSignals::WitnessGot{seen->signal});
                           }
                           listen();
                         });
}

bool EnginePart::was_sent(int signal) {
  bool is_there = witness_->was_sent(signal);
  if (is_there) witnessed_[signal] = std::chrono::steady_clock::now();
  // It may have told of it since this process last listened.
  while (const auto seen = witness_->next()) {
    witnessed_[seen->signal] = seen->when;
    is_there = is_there || seen->signal == signal;
  }
  return is_there;
}

void EnginePart::on_own_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  const Sender sender = sender_of(info);
  if (is_of_engine(sender)) return;  // The front and the witness get it, too.
  if (signal == SIGTERM || signal == SIGINT || signal == SIGQUIT) on_stop_signal(signal, sender);
}

void EnginePart::on_stop_signal(int signal, Sender sender) {
  stop_comes_();
  if (is_of_engine(sender) && job_.is_ending()) return;  // It kills later; muster is ending.
  if (job_.is_ending() || (!job_.has_workers() && job_.attempt() < 0)) {
    is_told_ = is_told_ || is_of_engine(sender);
    return job_.request_stop(signal);
  }
  Duration patience{0};
  // Workers that would only die of the signal need no wait: they may get it twice.
  if (is_of_engine(sender) || (sender != Sender::kernel && processes_.may_handle(signal)))
    patience = sender == Sender::process ? EngineSignals::kNextCall : EngineSignals::kNextDoor;
  drive_.post(EngineSignals::FrontGot{signal, true, patience});
}

bool EnginePart::takes_warning(int signal, Sender sender) {
  if (!is_of_engine(sender) || (signal != SIGUSR1 && signal != SIGUSR2)) return false;
  is_warned_ = true;
  drive_.post(EngineSignals::FrontGot{signal, false});
  return true;
}

void EnginePart::perform(const EngineSignals::Effect& effect) {
  if (const auto* const warning = std::get_if<EngineSignals::Warn>(&effect)) return warn(*warning);
  if (const auto* const news = std::get_if<EngineSignals::Stop>(&effect)) return stop(*news);
  const auto& tell = std::get<EngineSignals::Tell>(effect);
  const std::string content{static_cast<char>(tell.signal), tell.by_engine ? '\1' : '\0'};
  job_.send(tell.node, letter_of(Letter::warning, content));
}

void EnginePart::stop(const EngineSignals::Stop& stop) {
  if (job_.is_ending()) return;  // The end came first. A later signal cuts it short.
  workers_are_told_ = stop.told;
  is_told_ = workers_are_told_ && engine_.signals_all;
  if (workers_are_told_) processes_.have_signal(witnessed_[stop.signal]);
  job_.request_stop(stop.signal);
}

void EnginePart::warn(const EngineSignals::Warn& warning) {
  is_warned_ = true;
  rings_.warn();
  if (job_.is_ending()) return;
  if (job_.node_rank() == 0) {
    job_.say(fmt::format("the job's end is near: all workers {} {}, and should_stop() is true",
                         warning.told ? "had" : "get", signal_name(warning.signal)));
  }
  if (!warning.told) job_.post(group::Forward{warning.signal});
}

void EnginePart::on_letter(int from, std::string_view content) {
  if (content.size() != 2 || from == job_.node_rank()) return;
  const int signal = content[0];
  if (signal != SIGUSR1 && signal != SIGUSR2) return;
  is_warned_ = true;
  drive_.post(EngineSignals::Heard{signal, content[1] != 0});
}

void EnginePart::await_own_stop(std::function<void()> stop) {
  call_after(held_stop_, engine_.signals_all ? EngineSignals::kElsewhere : EngineSignals::kNextDoor,
             std::move(stop));
}

}  // namespace muster

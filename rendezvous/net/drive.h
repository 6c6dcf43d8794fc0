// Runs a machine on an Asio loop: reads the clock, steps the machine and passes its effects to
// `perform` in order. Events come in through post(), from any callback of the loop. The machine's
// next deadline becomes a timer that posts a TickEvent. `perform` may call post(): the event is
// queued, so a machine is never stepped within a step.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/time.h"
#include "rendezvous/net/call_after.h"

namespace muster {

template <typename Machine, typename TickEvent>
class Drive {
 public:
  using Event = typename Machine::Event;
  using Effect = typename Machine::Effect;

  // `machine` is borrowed and must outlive this object.
  Drive(boost::asio::io_context& io, Machine& machine, std::function<void(const Effect&)> perform)
      : machine_(machine), perform_(std::move(perform)), timer_(io) {}

  void post(Event event) {
    inbox_.push_back(std::move(event));
    if (pumping_) return;
    pumping_ = true;
    while (!inbox_.empty())
      step_once();
    pumping_ = false;
    arm();
  }

 private:
  void step_once() {
    const Event event = std::move(inbox_.front());
    inbox_.pop_front();
    std::vector<Effect> effects;
    machine_.step(steady_now(), event, effects);
    for (const Effect& effect : effects)
      perform_(effect);
  }

  void arm() {
    const Instant deadline = machine_.next_deadline();
    if (deadline == armed_for_) return;
    armed_for_ = deadline;
    if (deadline == kNever) {
      timer_.cancel();
      return;
    }
    // An expired wait cannot be cancelled; this object may be destroyed before the handler runs.
    const Deadline due(deadline.time_since_epoch());
    call_at(timer_, due, [this, alive = std::weak_ptr(alive_)] {
      if (alive.expired()) return;
      armed_for_ = kNever;
      post(TickEvent{});
    });
  }

  Machine& machine_;
  std::function<void(const Effect&)> perform_;
  boost::asio::steady_timer timer_;
  std::deque<Event> inbox_;
  Instant armed_for_ = kNever;
  bool pumping_ = false;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace muster

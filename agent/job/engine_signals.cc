#include "agent/job/engine_signals.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

bool is_within(Duration limit, Instant then, Instant now) {
  return then != kNever && now - then <= limit;
}

}  // namespace

void EngineSignals::step(Instant now, const Event& event, std::vector<Effect>& out) {
  out_ = &out;
  std::visit([&](const auto& one) { on(now, one); }, event);
  out_ = nullptr;
}

Instant EngineSignals::next_deadline() const {
  Instant next = kNever;
  for (const auto& [number, signal] : signals_)
    next = std::min(next, signal.decide_at);
  return next;
}

void EngineSignals::on(Instant, const Seated& event) {
  node_rank_ = event.node_rank;
  nodes_ = event.nodes;
}

void EngineSignals::on(Instant now, const FrontGot& event) {
  Signal& signal = signals_[event.signal];
  if (event.ends ? stopped_ : is_within(kSame, signal.warned, now)) return;
  if (signal.decide_at == kNever || event.ends) {
    signal.ends = event.ends;
    signal.is_ours = true;
    signal.decide_at = instant_after(now, event.patience);
  }
  const bool told = is_within(kElsewhere, signal.witness_got, now);
  if (told || event.patience == Duration{0}) decide(now, event.signal, told);
}

void EngineSignals::on(Instant now, const WitnessGot& event) {
  Signal& signal = signals_[event.signal];
  signal.witness_got = now;
  if (signal.decide_at != kNever) decide(now, event.signal, true);
}

void EngineSignals::on(Instant now, const Heard& event) {
  Signal& signal = signals_[event.signal];
  signal.heard = now;
  signal.by_engine = event.by_engine;
  if (node_rank_ == 0) tell_others(now, event.signal);
  if (is_within(kSame, signal.warned, now) || signal.decide_at != kNever) return;
  signal.ends = signal.is_ours = false;
  signal.decide_at = instant_after(now, event.by_engine ? kElsewhere : Duration{0});
  if (!event.by_engine) return decide(now, event.signal, false);
  if (is_within(kElsewhere, signal.witness_got, now)) decide(now, event.signal, true);
}

void EngineSignals::on(Instant now, const TimeIsShort& event) {
  Signal& signal = signals_[event.signal];
  if (is_within(kSame, signal.warned, now) || signal.decide_at != kNever) return;
  signal.ends = false;
  signal.is_ours = true;
  decide(now, event.signal, false);
}

void EngineSignals::on(Instant now, const Tick&) {
  for (auto& [number, signal] : signals_) {
    if (now >= signal.decide_at) decide(now, number, was_sent_ && was_sent_(number));
  }
}

void EngineSignals::decide(Instant now, int number, bool told) {
  Signal& signal = signals_[number];
  signal.decide_at = kNever;
  if (signal.ends) {
    if (!std::exchange(stopped_, true)) out_->push_back(Stop{number, told});
    return;
  }
  signal.warned = now;
  // Node 0 is told before the workers, which may end within milliseconds.
  if (signal.is_ours) {
    signal.by_engine = told;
    if (node_rank_ == 0) {
      tell_others(now, number);
    } else if (!is_within(kSame, signal.heard, now)) {
      out_->push_back(Tell{0, number, told});
    }
  }
  out_->push_back(Warn{number, told});
}

void EngineSignals::tell_others(Instant now, int number) {
  Signal& signal = signals_[number];
  if (nodes_ == 1 || is_within(kSame, signal.told_all, now)) return;
  signal.told_all = now;
  out_->push_back(Tell{-1, number, signal.by_engine});
}

}  // namespace muster

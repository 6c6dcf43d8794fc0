#include "agent/job/drain.h"

namespace muster {

void Drain::begin() {
  if (stage_ != Stage::open) return;
  stage_ = Stage::reading;
  callbacks_.read();
}

void Drain::finish(const AttemptRemains& remains) {
  if (stage_ == Stage::closed || stage_ == Stage::settling) return;
  if (callbacks_.is_settling()) {
    stage_ = Stage::settling;
    remains_ = remains;
    return;
  }
  stage_ = Stage::closed;
  callbacks_.take(remains);
  go_on();
}

void Drain::settled() {
  if (stage_ == Stage::settling) {
    stage_ = Stage::closed;
    callbacks_.take(*std::exchange(remains_, std::nullopt));
  }
  if (stage_ == Stage::closed) go_on();
}

void Drain::when_done(std::function<void()> next) {
  if (!is_open() && !callbacks_.is_settling()) return next();
  waiting_.push_back(std::move(next));
}

void Drain::go_on() {
  for (const auto& step : std::exchange(waiting_, {}))
    step();
}

}  // namespace muster

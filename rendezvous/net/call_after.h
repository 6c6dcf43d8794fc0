// A timer of an Asio loop that calls one function: the caller owns the timer, so that it can end
// the wait.
#pragma once

#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/time.h"

namespace muster {

// Calls `then` after `wait`, unless the timer is set anew, cancelled or destroyed before. A wait
// that has expired already still calls: guard `then` where that matters.
template <typename Then>
void call_after(boost::asio::steady_timer& timer, Duration wait, Then then) {
  timer.expires_after(wait);
  timer.async_wait([then = std::move(then)](boost::system::error_code error) {
    if (!error) then();
  });
}

}  // namespace muster

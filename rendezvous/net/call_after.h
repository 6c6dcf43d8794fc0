// Calls a function after a delay, by an Asio timer that the caller owns and so can cancel. One
// thread: the loop's.
#pragma once

#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/time.h"

namespace muster {

// Calls `then` after `wait`, unless the timer is reset, cancelled or destroyed first. If the wait
// has already expired, `then` is still called: guard it where that matters.
template <typename Then>
void call_after(boost::asio::steady_timer& timer, Duration wait, Then then) {
  timer.expires_after(wait);
  timer.async_wait([then = std::move(then)](boost::system::error_code error) {
    if (!error) then();
  });
}

}  // namespace muster

// Calls a function after a delay or at a time, by an Asio timer that the caller owns and so can
// cancel. One thread: the loop's.
#pragma once

#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/time.h"

namespace muster {

// The handler of a wait that calls `then` if the wait expires.
template <typename Then>
auto on_expiry(Then then) {
  return [then = std::move(then)](boost::system::error_code error) {
    if (!error) then();
  };
}

// Calls `then` after `wait`, unless the timer is reset, cancelled or destroyed first. If the wait
// has already expired, `then` is still called: guard it where that matters.
template <typename Then>
void call_after(boost::asio::steady_timer& timer, Duration wait, Then then) {
  timer.expires_after(wait);
  timer.async_wait(on_expiry(std::move(then)));
}

// The same at a time.
template <typename Then>
void call_at(boost::asio::steady_timer& timer, Deadline when, Then then) {
  timer.expires_at(when);
  timer.async_wait(on_expiry(std::move(then)));
}

}  // namespace muster

// The launcher's account of why it ends a job or a round: the host of the agents' store writes it
// there before any worker is told to stop. It covers what no rank can see by itself: a node that
// was lost without notice, a program that could not be started, the first of several failures.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "worker_lib/failure.h"

namespace muster::worker {

// Parses a notice (see kFailureNoticeKey in rendezvous/base/contract.h) into a failure of code
// peer_failed or stopped; nullopt: it is malformed.
std::optional<Failure> parse_failure_notice(std::string_view value);

// For Watch::Options::ask_cause. Any thread may call the function, since it opens its own
// connection; it takes twice `patience` at most (to connect, and to wait for the notice), and
// returns nullopt if there is none by then.
std::function<std::optional<Failure>()> ask_agents_store(
    std::string host, uint16_t port,
    std::chrono::milliseconds patience = std::chrono::milliseconds(100));

}  // namespace muster::worker

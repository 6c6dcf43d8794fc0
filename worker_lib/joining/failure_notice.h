// The launcher's own account of why a job or a round is being ended: the host of the agent's store
// writes it there before it lets any worker be told to stop. It speaks of what no rank can see by
// itself: a node that was lost without a word, a program that could not be started, the first
// failure where several followed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "worker_lib/failure.h"

namespace muster::worker {

// What a notice says (see kFailureNoticeKey in rendezvous/base/contract.h), with code peer_failed
// or stopped. Nothing: it is not one.
std::optional<Failure> parse_failure_notice(std::string_view value);

// For Watch::Options::ask_cause. The function makes a connection of its own, so any thread may call
// it; it takes twice `patience` at most (to connect, and to wait for the notice), and returns
// nothing where there is none by then.
std::function<std::optional<Failure>()> ask_agents_store(
    std::string host, uint16_t port,
    std::chrono::milliseconds patience = std::chrono::milliseconds(100));

}  // namespace muster::worker

// The launcher's reason for ending a job or a round: the host of the agents' store writes it there
// before it stops any worker. It covers what no rank can see by itself: a node lost without notice,
// a program that could not be started, the first of several failures.
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
// peer_failed or stopped; nullopt: malformed.
std::optional<Failure> parse_failure_notice(std::string_view value);

// Makes Watch::Options::ask_cause, for any thread: it opens its own connection, takes at most twice
// `patience` (to connect, and to wait), and returns nullopt if there is no notice by then.
std::function<std::optional<Failure>()> ask_agents_store(
    std::string host, uint16_t port,
    std::chrono::milliseconds patience = std::chrono::milliseconds(100));

}  // namespace muster::worker

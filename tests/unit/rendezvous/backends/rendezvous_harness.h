// Agents for tests of rendezvous: real ones with threads and sockets but without workers. All of a
// test's agents answer on the test's loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "rendezvous/backends/rendezvous.h"
#include "tests/fakes/free_port.h"

namespace muster {

// Far more than any step takes: only a failing test waits this long.
inline constexpr auto kTestPatience = std::chrono::seconds(60);

// Runs the loop until `condition` holds.
template <typename Condition>
bool run_until(boost::asio::io_context& loop, Condition condition) {
  const auto work = boost::asio::make_work_guard(loop);  // Otherwise it would spin while idle.
  const auto give_up = std::chrono::steady_clock::now() + kTestPatience;
  while (!condition() && std::chrono::steady_clock::now() < give_up) {
    loop.restart();
    loop.run_for(std::chrono::milliseconds(1));
  }
  return condition();
}

inline RendezvousOptions endpoint_options(int port, int nodes_min, int nodes_max) {
  RendezvousOptions options;
  options.way = RendezvousOptions::Way::endpoint;
  options.job_id = "job";
  options.host = "127.0.0.1";
  options.port = port;
  options.join.host_name = "node";
  options.join.nodes_min = nodes_min;
  options.join.nodes_max = nodes_max;
  options.join.max_restarts = 3;
  options.join.last_call = std::chrono::seconds(100);
  options.join.join_timeout = std::chrono::seconds(120);
  options.join.lease = std::chrono::seconds(30);
  return options;
}

class TestAgent {
 public:
  TestAgent(boost::asio::io_context& loop, const RendezvousOptions& options) : loop_(loop) {
    Rendezvous::Handlers on;
    on.round = [this](const membership::Round& round) { rounds.push_back(round); };
    on.stop = [this](const member::StopWorkers& stop) { stops.push_back(stop); };
    on.leave_announced = [this] { ++leaves_announced; };
    on.ended = [this](const membership::End& end) { ends.push_back(end); };
    on.failed = [this](const Error& error) { errors.push_back(error); };
    on.say = [this](const std::string& text) { said.push_back(text); };
    on.datagram = [this](const membership::Delivered& one) { datagrams.push_back(one); };
    Result<std::unique_ptr<Rendezvous>> made = make_rendezvous(loop, options, std::move(on));
    if (made) {
      rendezvous_ = std::move(*made);
    } else {
      errors.push_back(made.error());
    }
  }

  Rendezvous& meeting() { return *rendezvous_; }
  bool was_made() const { return rendezvous_ != nullptr; }
  // Acts as if the process were killed: sends nothing.
  void kill() { rendezvous_.reset(); }

  bool wait_rounds(size_t count) {
    return run_until(loop_, [&] { return rounds.size() >= count || !errors.empty(); }) &&
           errors.empty();
  }
  bool wait_stops(size_t count) {
    return run_until(loop_, [&] { return stops.size() >= count; });
  }
  bool wait_end() {
    return run_until(loop_, [&] { return !ends.empty(); });
  }
  bool wait_error() {
    return run_until(loop_, [&] { return !errors.empty(); });
  }
  bool has_said(const std::string& part) const {
    for (const std::string& line : said) {
      if (line.find(part) != std::string::npos) return true;
    }
    return false;
  }
  // Says goodbye like an agent whose job is over.
  bool close_and_wait() {
    bool closed = false;
    rendezvous_->close([&] { closed = true; });
    return run_until(loop_, [&] { return closed; });
  }

  std::vector<membership::Round> rounds;
  std::vector<member::StopWorkers> stops;
  std::vector<membership::End> ends;
  std::vector<Error> errors;
  std::vector<std::string> said;
  std::vector<membership::Delivered> datagrams;
  int leaves_announced = 0;

 private:
  boost::asio::io_context& loop_;
  std::unique_ptr<Rendezvous> rendezvous_;
};

using Agents = std::vector<std::unique_ptr<TestAgent>>;

inline bool all_have_rounds(boost::asio::io_context& loop, const Agents& agents, size_t count) {
  return run_until(loop, [&] {
    for (const auto& agent : agents) {
      if (agent->was_made() && agent->rounds.size() < count) return false;
    }
    return true;
  });
}

}  // namespace muster

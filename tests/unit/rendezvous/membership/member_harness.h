// Drives a Member machine by hand, with its own clock in milliseconds; each step returns its
// effects as values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/membership/member.h"

namespace muster {

using MemberEffects = std::vector<Member::Effect>;

inline Member::Options member_options() {
  Member::Options options;
  options.join.agent = {1, 2};
  options.join.host_name = "node1";
  options.join.nodes_min = options.join.nodes_max = 2;
  options.join.join_timeout = std::chrono::seconds{60};
  options.endpoint = "node0:29400";
  return options;
}

inline membership::Round round_of(membership::Epoch epoch) {
  membership::Round round;
  round.epoch = epoch;
  round.node_rank = 1;
  round.nodes = 2;
  round.base_rank = 4;
  round.world_size = 8;
  round.master_addr = "10.0.0.1";
  round.master_port = 29400;
  return round;
}

inline member::ConnectionFailed connection_lost(std::string why) {
  return {{ExitCode::rendezvous, std::move(why)}};
}

inline membership::NodeFailure a_failure(Instant at = {}) {
  membership::NodeFailure failure;
  failure.rank = 5;
  failure.exit_code = 3;
  failure.sentence = "exited with 3";
  failure.at = at;
  return failure;
}

inline membership::Evidence evidence_with(std::string detail) {
  membership::Evidence evidence;
  evidence.detail = std::move(detail);
  return evidence;
}

// A failure or evidence as reported before the host's clock is known.
inline membership::NodeFailure without_clock(membership::NodeFailure failure) {
  failure.at = Instant{};
  failure.at_error = std::chrono::hours{24 * 365};
  return failure;
}
inline membership::Evidence without_clock(membership::Evidence evidence) {
  evidence.since = Instant{};
  evidence.since_error = std::chrono::hours{24 * 365};
  return evidence;
}

class MemberDriver {
 public:
  static constexpr uint64_t kHost = 77;  // The instance of the first host.

  explicit MemberDriver(const Member::Options& options = member_options()) : machine_(options) {}

  MemberEffects step(const Member::Event& event) {
    MemberEffects effects;
    machine_.step(now(), event, effects);
    return effects;
  }
  MemberEffects hear(membership::HostMessage message) {
    return step(member::Received{std::move(message)});
  }
  template <typename What>
  MemberEffects order(What what) {
    return hear(membership::Order{++orders_, std::move(what)});
  }
  MemberEffects welcome(uint64_t host = kHost) {
    if (host != host_) orders_ = 0;
    host_ = host;
    return hear(membership::Welcome{.host_instance = host,
                                    .lease = std::chrono::seconds{3},
                                    .heartbeat = std::chrono::seconds{1}});
  }
  MemberEffects alive(uint64_t report) { return hear(membership::Alive{report, 0, {}}); }
  // Answers a report with the reading of the host's clock.
  MemberEffects answer(uint64_t report, Instant clock) {
    return hear(membership::Alive{report, report, clock});
  }

  void pass(Duration duration) { now_ms_ += duration / std::chrono::milliseconds{1}; }
  Duration until_deadline() const { return machine_.next_deadline() - now(); }
  bool waits_for_ever() const { return machine_.next_deadline() == kNever; }
  // Lets time pass until the deadline, and ticks. REQUIRES: there is a deadline.
  MemberEffects tick_at_deadline() {
    const auto deadline = machine_.next_deadline().time_since_epoch();
    now_ms_ = std::max(now_ms_, std::chrono::ceil<std::chrono::milliseconds>(deadline).count());
    return step(member::Tick{});
  }

  // Brings the connection up, without a welcome.
  void come_up() { step(member::ConnectionUp{"10.0.0.1", "10.0.0.2"}); }
  void dial() {
    step(member::Begin{});
    come_up();
  }
  void redial() {
    tick_at_deadline();
    come_up();
  }
  void reconnect(uint64_t host = kHost) {
    for (int tries = 0; tries < 10; ++tries) {
      const MemberEffects effects = tick_at_deadline();
      if (!effects.empty() && std::holds_alternative<member::Connect>(effects.back())) break;
    }
    come_up();
    welcome(host);
  }
  void join() {
    dial();
    welcome();
  }
  void run(membership::Epoch epoch) {
    join();
    order(round_of(epoch));
  }

  Instant now() const { return Instant{std::chrono::milliseconds{now_ms_}}; }
  std::string status() const { return machine_.status(now()); }
  Member& machine() { return machine_; }
  uint64_t orders() const { return orders_; }

 private:
  Member machine_;
  int64_t now_ms_ = 1000;
  uint64_t orders_ = 0;
  uint64_t host_ = kHost;
};

// Returns the report in the last effect; fails the test if there is none.
inline membership::Report report_in(const MemberEffects& effects) {
  const auto* send = effects.empty() ? nullptr : std::get_if<member::Send>(&effects.back());
  const auto* report = send == nullptr ? nullptr : std::get_if<membership::Report>(&send->message);
  EXPECT_NE(report, nullptr) << "no report is sent";
  return report == nullptr ? membership::Report{} : *report;
}

// Returns the kinds of the effects, as in "StopWorkers Report".
inline std::string names_of(const MemberEffects& effects) {
  static constexpr std::string_view kNames[] = {"Connect",     "Disconnect",  "Send",
                                                "RoundFormed", "StopWorkers", "LeaveAnnounced",
                                                "JobEnded",    "GaveUp",      "Say"};
  std::string names;
  for (const Member::Effect& effect : effects) {
    std::string_view name = kNames[effect.index()];
    if (const auto* send = std::get_if<member::Send>(&effect)) {
      name = std::holds_alternative<membership::Report>(send->message) ? "Report" : "Goodbye";
    }
    names += names.empty() ? "" : " ";
    names += name;
  }
  return names;
}

}  // namespace muster

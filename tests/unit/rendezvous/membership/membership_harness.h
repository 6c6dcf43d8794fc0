// Drives a membership machine by hand: agents have names, connections are numbered automatically,
// orders are acknowledged as they come, and each step's effects are transcript text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "rendezvous/membership/membership.h"
#include "tests/transcripts/agent_protocol_transcript.h"

namespace muster {

namespace membership {

// The order alone, without the sequence: "Stop{epoch 1, lost, ...}".
inline std::string what_text(const Order& order) {
  const std::string text = to_text(HostMessage{order});
  const size_t begin = text.find(", ") + 2;
  return text.substr(begin, text.size() - begin - 1);
}

inline NodeFailure boom(int rank, bool final = false) {
  NodeFailure failure;
  failure.rank = rank;
  failure.exit_code = 3;
  failure.final = final;
  failure.sentence = "exited with 3: boom";
  return failure;
}

}  // namespace membership

class MembershipDriver {
 public:
  using Event = Membership::Event;
  using Effect = Membership::Effect;

  // A round begins at once, although a node has left on a signal.
  static Membership::Options at_once() {
    Membership::Options options;
    options.signals_apart = {};
    return options;
  }

  // Later joins have nodes_min:nodes_max and the other fields of `job`.
  MembershipDriver(int nodes_min, int nodes_max, const Membership::Options& options = at_once())
      : machine_(options) {
    job.nodes_min = nodes_min;
    job.nodes_max = nodes_max;
    job.lease = std::chrono::seconds{3};
    job.last_call = std::chrono::seconds{30};
    job.join_timeout = std::chrono::seconds{600};
    job.role = "default";
    job.dialled = "10.0.0.1";
  }
  MembershipDriver(const MembershipDriver&) = delete;
  MembershipDriver& operator=(const MembershipDriver&) = delete;

  // Template of the next joins.
  membership::Join job;

  std::vector<Effect> step(const Event& event) {
    std::vector<Effect> effects;
    machine_.step(now_, event, effects);
    for (const Effect& effect : effects)
      note(effect);
    return effects;
  }

  // Returns the effects except Alive, Welcome and Notes, joined by " | ".
  std::string hear(const Event& event) {
    std::vector<std::string> texts;
    for (const Effect& effect : step(event)) {
      if (std::string text = text_of(effect); !text.empty()) texts.push_back(std::move(text));
    }
    return fmt::format("{}", fmt::join(texts, " | "));
  }

  static membership::AgentId id_of(const std::string& name) {
    uint64_t low = 0;
    for (const char c : name)
      low = low * 256 + static_cast<unsigned char>(c);
    return {1, low};
  }

  // Joins on a new connection. The host name is the part before a dot, so "b.2" is a restarted "b".
  std::string join(const std::string& name) {
    membership::Join join = job;
    join.agent = id_of(name);
    join.host_name = name.substr(0, name.find('.'));
    join.advertised = "10.0.1." + join.host_name;
    connections_[name] = ++last_connection_;
    names_[last_connection_] = name;
    return hear(membership::Joined{last_connection_, join});
  }

  // Reports on the newest connection, acknowledging every order so far.
  std::string report(const std::string& name, membership::Report report) {
    remember(name, report);
    report.sequence = ++sequences_[name];
    if (report.order == 0) report.order = taken_in_[name];
    return hear(membership::Reported{connections_.at(name), report});
  }
  std::string ready(const std::string& name, membership::Epoch epoch = 0) {
    return report(name, phase(epoch, membership::Phase::ready));
  }
  std::string running(const std::string& name, membership::Epoch epoch) {
    return report(name, phase(epoch, membership::Phase::running));
  }
  std::string testified(const std::string& name, membership::Epoch epoch) {
    return report(name, phase(epoch, membership::Phase::testified));
  }
  std::string stopping(const std::string& name, membership::Epoch epoch) {
    return report(name, phase(epoch, membership::Phase::stopping));
  }
  std::string done(const std::string& name, membership::Epoch epoch) {
    membership::Report report_ = phase(epoch, membership::Phase::done);
    report_.reaped = true;
    return report(name, report_);
  }
  std::string fail(const std::string& name, membership::Epoch epoch,
                   membership::NodeFailure failure) {
    membership::Report report_ = phase(epoch, membership::Phase::running);
    report_.failure = std::move(failure);
    return report(name, report_);
  }
  // Ready after the epoch, with the evidence that its workers left.
  std::string ready_with(const std::string& name, membership::Epoch epoch, std::string evidence) {
    membership::Report report_ = phase(epoch, membership::Phase::ready);
    report_.evidence = membership::Evidence{now_, {}, std::move(evidence)};
    return report(name, report_);
  }
  // Reports, without having been in a round, that the program is missing.
  std::string cannot_start(const std::string& name) {
    membership::Report report_ = phase(0, membership::Phase::ready);
    report_.failure.emplace();
    report_.failure->final = true;
    report_.failure->exit_code = 127;
    report_.failure->sentence = "cannot run x.py: no such file";
    return report(name, report_);
  }
  std::string leaving(const std::string& name, membership::Epoch epoch, int signal, bool reaped,
                      bool to_all = false) {
    membership::Report report_ = phase(epoch, membership::Phase::leaving);
    report_.signal = signal;
    report_.to_all = to_all;
    report_.reaped = reaped;
    return report(name, report_);
  }
  std::string goodbye(const std::string& name) {
    return hear(membership::Parted{connections_.at(name)});
  }
  std::string disconnect(const std::string& name) {
    return hear(membership::Disconnected{connections_.at(name)});
  }
  std::string open_store(membership::Epoch epoch) {
    return hear(membership::StoreOpened{epoch, 4000 + static_cast<int>(epoch)});
  }

  // Makes all nodes join, get ready and run epoch 1.
  void run(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      join(name);
    for (const std::string& name : names)
      ready(name);
    open_store(1);
    for (const std::string& name : names)
      running(name, 1);
  }

  // pass() lets time pass without a Tick; live() ticks when due while `beating` agents send
  // heartbeats.
  void pass(Duration duration) { now_ += duration; }
  std::string tick() { return hear(membership::Tick{}); }
  std::string live(Duration duration, const std::vector<std::string>& beating) {
    const Instant end = now_ + duration;
    std::string heard;
    Instant beat = now_ + std::chrono::milliseconds{900};
    while (now_ < end) {
      now_ = std::min({end, beat, std::max(now_, machine_.next_deadline())});
      std::string text = machine_.next_deadline() <= now_ ? tick() : "";
      if (beat <= now_) {
        for (const std::string& name : beating)
          text += again(name);
        beat = now_ + std::chrono::milliseconds{900};
      }
      heard += text.empty() ? "" : (heard.empty() ? "" : " | ") + text;
    }
    return heard;
  }
  // A heartbeat: repeats the last report.
  std::string again(const std::string& name) {
    return said_.contains(name) ? report(name, said_[name]) : "";
  }

  std::optional<membership::Order> order(const std::string& name) const {
    const auto found = orders_.find(name);
    return found == orders_.end() ? std::nullopt : std::optional(found->second);
  }
  // REQUIRES: the newest order is of that kind.
  membership::Round round(const std::string& name) const {
    return std::get<membership::Round>(orders_.at(name).what);
  }
  membership::End end(const std::string& name) const {
    return std::get<membership::End>(orders_.at(name).what);
  }
  void forget_orders() { orders_.clear(); }
  // As if this order had not arrived.
  void lose_order(const std::string& name) { taken_in_[name] = 0; }

  bool has_joined(const std::string& name) const { return connections_.contains(name); }
  membership::ConnectionId connection(const std::string& name) const {
    return connections_.at(name);
  }
  std::vector<std::string> notes() { return std::exchange(notes_, {}); }
  std::string status() const { return machine_.status(now_); }
  Instant now() const { return now_; }
  Membership& machine() { return machine_; }

 private:
  void remember(const std::string& name, membership::Report report) {
    report.order = 0;
    said_[name] = std::move(report);
  }
  static membership::Report phase(membership::Epoch epoch, membership::Phase phase) {
    membership::Report report;
    report.epoch = epoch;
    report.phase = phase;
    report.reaped = phase == membership::Phase::ready || phase == membership::Phase::testified;
    return report;
  }

  void note(const Effect& effect) {
    if (const auto* said = std::get_if<membership::Note>(&effect)) notes_.push_back(said->text);
    const auto* sent = std::get_if<membership::Send>(&effect);
    if (!sent) return;
    const auto* order = std::get_if<membership::Order>(&sent->message);
    if (!order) return;
    const std::string& name = names_.at(sent->connection);
    taken_in_[name] = std::max(taken_in_[name], order->sequence);
    orders_[name] = *order;
  }

  std::string text_of(const Effect& effect) {
    using namespace membership;  // NOLINT: the words of the protocol
    if (const auto* sent = std::get_if<Send>(&effect)) {
      if (std::holds_alternative<Alive>(sent->message)) return "";
      if (std::holds_alternative<Welcome>(sent->message)) return "";
      const auto* order = std::get_if<Order>(&sent->message);
      return names_.at(sent->connection) + ": " +
             (order ? what_text(*order) : to_text(sent->message));
    }
    if (const auto* hangup = std::get_if<Hangup>(&effect))
      return names_.at(hangup->connection) + ": Hangup";
    if (const auto* open = std::get_if<OpenStore>(&effect))
      return fmt::format("OpenStore{{{}, {}}}", open->epoch, fmt::join(open->addresses, " "));
    if (const auto* close = std::get_if<CloseStore>(&effect))
      return fmt::format("CloseStore{{{}}}", close->epoch);
    if (const auto* said = std::get_if<Say>(&effect)) return "Say{" + said->text + "}";
    return std::holds_alternative<Finished>(effect) ? "Finished" : "";
  }

  Membership machine_;
  Instant now_{};
  membership::ConnectionId last_connection_ = 0;
  std::map<std::string, membership::ConnectionId> connections_;
  std::map<membership::ConnectionId, std::string> names_;
  std::map<std::string, uint64_t> sequences_;
  std::map<std::string, uint64_t> taken_in_;
  std::map<std::string, membership::Report> said_;
  std::map<std::string, membership::Order> orders_;
  std::vector<std::string> notes_;
};

}  // namespace muster

#include "rendezvous/membership/owner_questions.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/membership/membership_text.h"

namespace muster {

using membership::ConnectionId;
using membership::quiet_name;

namespace {

std::string client_refusal(const IpAddress& address, std::string_view why) {
  const std::string from = address.to_string();
  return fmt::format(
      "refused a connection from {} to the job's store: {}; --store-allow {} admits every user of "
      "that machine",
      from, why, from);
}

}  // namespace

void OwnerQuestions::step(Instant now, const Event& event, std::vector<Effect>& out) {
  out_ = &out;
  std::visit([&](const auto& one) { on(now, one); }, event);
  out_ = nullptr;
}

void OwnerQuestions::on(Instant now, const ClientCame& event) {
  const IpAddress& address = event.from.ip;
  const auto waiting = waiting_.find(address);
  if (waiting != waiting_.end() && waiting->second >= kOpenMax) {
    out_->push_back(
        Decided{event.client, false,
                client_refusal(address, fmt::format("{} others from there wait until it is "
                                                    "known whose they are",
                                                    kOpenMax))});
    return;
  }
  const auto question =
      open_.insert_or_assign(event.client, Open{now, {}, event.from, event.store, {}}).first;
  wait_until(question, now + kReturnLimit);
  ++waiting_[address];
  const Agents agents = agents_at(address);
  const auto cannot_tell =
      std::ranges::find_if(agents, [](const auto* agent) { return agent->sight != Sight::clear; });
  if (cannot_tell != agents.end()) return ask(question, **cannot_tell);
  for (const AgentCame* const agent : agents)
    ask(question, *agent);
}

void OwnerQuestions::on(Instant /*now*/, const AgentCame& event) {
  agents_.insert_or_assign(event.connection, event);
  at_.emplace(event.seen, event.connection);
  if (event.advertised && *event.advertised != event.seen)
    at_.emplace(*event.advertised, event.connection);
  for (auto question = open_.begin(); question != open_.end();) {
    const auto one = question++;
    const Agents agents = agents_at(one->second.from.ip);
    const auto found = std::ranges::find(agents, event.connection, &AgentCame::connection);
    if (found != agents.end()) ask(one, **found);
  }
}

void OwnerQuestions::on(Instant /*now*/, const AgentGone& event) {
  agents_.erase(event.connection);
  std::erase_if(at_, [&](const auto& one) { return one.second == event.connection; });
  for (auto& [client, question] : open_)
    question.has_lost_one |= question.asked.erase(event.connection) != 0;
}

void OwnerQuestions::on(Instant /*now*/, const Answered& event) {
  const auto question = open_.find(event.answer.id);
  if (question == open_.end() || question->second.asked.erase(event.connection) == 0) return;
  if (event.answer.to_job) return decide(question, true);
  Open& open = question->second;
  open.was_denied = true;
  if (open.asked.empty() && !open.has_lost_one) refuse(question);
}

void OwnerQuestions::on(Instant now, const Tick& /*event*/) {
  while (next_deadline() <= now)
    refuse(open_.find(limits_.begin()->second));
}

void OwnerQuestions::wait_until(Questions::iterator question, Instant until) {
  Open& open = question->second;
  limits_.erase({open.until, question->first});
  open.until = until;
  limits_.insert({until, question->first});
}

// Returns the round's agents that are seen at the address, or else those that advertise it.
OwnerQuestions::Agents OwnerQuestions::agents_at(const IpAddress& address) const {
  Agents agents;
  const auto [begin, end] = at_.equal_range(address);
  for (auto one = begin; one != end; ++one) {
    if (is_member_(one->second)) agents.push_back(&agents_.at(one->second));
  }
  const auto seen =
      std::ranges::partition(agents, [&](const auto* agent) { return agent->seen == address; });
  if (seen.begin() != agents.begin()) agents.erase(seen.begin(), seen.end());
  return agents;
}

void OwnerQuestions::ask(Questions::iterator question, const AgentCame& agent) {
  if (agent.sight != Sight::clear) {
    say_unchecked(agent);
    return decide(question, true);
  }
  Open& open = question->second;
  if (!open.asked.insert(agent.connection).second) return;
  wait_until(question, open.since + kAnswerLimit);
  out_->push_back(
      Ask{agent.connection, {question->first, open.from.to_string(), open.store.to_string()}});
}

void OwnerQuestions::decide(Questions::iterator question, bool may_come, std::string text) {
  out_->push_back(Decided{question->first, may_come, std::move(text)});
  const auto waiting = waiting_.find(question->second.from.ip);
  if (--waiting->second == 0) waiting_.erase(waiting);
  limits_.erase({question->second.until, question->first});
  open_.erase(question);
}

void OwnerQuestions::refuse(Questions::iterator question) {
  const Open& open = question->second;
  const Agents agents = agents_at(open.from.ip);
  std::string why = "none of the round's agents is there to say who owns it";
  if (!agents.empty()) {
    const std::string host = quiet_name(agents.front()->host);
    why = open.was_denied
              ? fmt::format("the agent of {} says that it is of no user of the job there", host)
              : fmt::format("the agent of {} did not say within {} who owns it", host,
                            membership::whole_seconds(kAnswerLimit));
  }
  decide(question, false, client_refusal(open.from.ip, why));
}

void OwnerQuestions::say_unchecked(const AgentCame& agent) {
  if (!said_.insert(agent.sight).second) return;
  const std::string_view why = agent.sight == Sight::translated
                                   ? "from which addresses are translated on the way"
                                   : "whose kernel does not show the owner of a connection";
  out_->push_back(Say{fmt::format(
      "every user of {} ({}) can use the job's store, as can those of any other node {}",
      quiet_name(agent.host), agent.seen.to_string(), why)});
}

}  // namespace muster

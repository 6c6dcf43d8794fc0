#include "agent/job/meeting_facts.h"

#include <chrono>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "agent/meeting/launch_traces.h"
#include "agent/meeting/pmi_child.h"
#include "agent/meeting/reachable.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/membership/job_token.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

constexpr int kNodeTries = 20;
constexpr auto kNodePause = std::chrono::milliseconds(100);

// A silent name server delays nothing longer: naming the interface is correct in any case.
constexpr auto kOwnNamePatience = std::chrono::seconds(1);

}  // namespace

void MeetingFacts::find(const NodeFacts& node, Done done) {
  NodeFacts found = node;
  found.token = spec_.token.value_or("");
  if (!spec_.token_file || !is_coordinated(spec_)) return ask_launch(std::move(found), done);
  job_.on_disk([this, path = *spec_.token_file, found, done = std::move(done)] {
    boost::asio::post(io_,
                      [this, found, done, token = membership::read_token_file(path)]() mutable {
                        if (job_.is_ending()) return;
                        if (!token) return done(tl::unexpected<Error>(token.error()));
                        found.token = *token;
                        ask_launch(std::move(found), done);
                      });
  });
}

void MeetingFacts::ask_launch(NodeFacts node, const Done& done) {
  if (!spec_.ask_pmi) return done(std::move(node));
  const std::string reached = spec_.local_addr.value_or(reachable_text(read_interfaces()));
  ask_pmi(helper_, environment_, reached, kPmiPatience,
          [this, found = std::move(node), done](const Result<PmiAnswer>& answer) mutable {
            if (job_.is_ending()) return;
            if (!answer) return done(tl::unexpected<Error>(answer.error()));
            if (answer->rank != spec_.node_rank) {
              return done(fail(
                  ExitCode::rendezvous,
                  fmt::format("PMI says that this is rank {}, the variables say {}: is this a "
                              "launch within another one? Give --engine none and the flags about "
                              "nodes",
                              answer->rank, spec_.node_rank.value_or(0))));
            }
            found.pmi_host = answer->host;
            found.pmi_job = answer->job;
            if (spec_.id.empty()) found.run_id = answer->job;
            done(std::move(found));
          });
}

void OwnTask::find(const membership::Round& round, std::function<void(Result<void>)> next) {
  if (!task_ || task_->nodes > 0) return next({});
  ask(round, kNodeTries, next);
}

void OwnTask::ask(const membership::Round& round, int tries_left,
                  const std::function<void(Result<void>)>& next) {
  if (!job_.has_workers()) return;
  if (tries_left == 0) {
    return next(
        fail(ExitCode::rendezvous,
             "the host of the job does not say which tasks share this node: their machines' "
             "host names have to differ; start one task on each node"));
  }
  job_.find_nodes([this, round, tries_left, next](const std::vector<membership::NodeLine>& lines) {
    if (job_.is_ending()) return;
    if (const auto place = place_on_nodes(lines, round.node_rank, round.nodes);
        place && place->sharing == task_->local_size) {
      task_->node = place->node;
      task_->nodes = place->nodes;
      return next({});
    }
    call_after(pause_, kNodePause,
               [this, round, tries_left, next] { ask(round, tries_left - 1, next); });
  });
}

RoundView OwnTask::told(RoundView view) const {
  if (!task_) return view;
  view.node_rank = task_->node;
  view.nodes = task_->nodes;
  view.local_world_size = task_->local_size;
  return view;
}

void OwnInterface::look_up_own_name() {
  if (!spec_.export_iface || is_set(env::kGlooSocketIfname)) return;
  is_known_ = false;
  names_.resolve(own_hostname(), 0, std::chrono::steady_clock::now() + kOwnNamePatience,
                 [this](const NetResult<std::vector<SocketAddress>>& answer) {
                   std::vector<IpAddress> leads_to;
                   for (const SocketAddress& one : answer ? *answer : std::vector<SocketAddress>())
                     leads_to.push_back(one.ip);
                   own_name_fault_ = own_name_fault(own_hostname(), leads_to, read_interfaces());
                   is_known_ = true;
                   if (const auto next = std::exchange(next_, nullptr)) next();
                 });
}

void OwnInterface::when_own_name_is_known(std::function<void()> next) {
  if (is_known_) return next();
  next_ = std::move(next);
}

std::string OwnInterface::choose(const std::string& towards_peers) {
  const auto address = IpAddress::parse(towards_peers);
  if (!spec_.export_iface || choice_ || !address) return "";
  InterfaceQuestion question;
  question.interfaces = read_interfaces();
  question.towards_peers = *address;
  question.wanted = spec_.iface;
  question.gloo_is_set = is_set(env::kGlooSocketIfname);
  question.nccl_is_set = is_set(env::kNcclSocketIfname);
  question.own_name_fault = own_name_fault_;
  choice_ = choose_interface_export(question);
  return choice_ ? choice_->note : "";
}

}  // namespace muster

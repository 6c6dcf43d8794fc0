// The records and stacks of all ranks of the job, and the variables of its nodes: this node's own,
// and what other nodes answer. A question from another node is answered for this node alone.
#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "agent/job/agent_loop.h"
#include "agent/report/text.h"

namespace muster {
namespace {

Error no_worker_yet() {
  return {ExitCode::environment, "no worker is running yet; try again when the job has begun"};
}

// Without its newline.
std::string line_to_peer(const auto& message) {
  std::string line = control::encode(message);
  line.pop_back();
  return line;
}

std::string question_for(const NodeAnswer& node,
                         const std::function<control::Request(control::RankRanges)>& request) {
  const std::string line = line_to_peer(request(ranges_of(node.ranks)));
  if (line.size() <= Peers::kQuestionBytesMax) return line;
  // Ranks that were not asked for are left out of the answer.
  return line_to_peer(request({{node.ranks.front(), node.ranks.back()}}));
}

// Rather the main threads alone than nothing.
bool cut_to_main_threads(control::Reply& reply) {
  auto* const stacks = std::get_if<control::Stacks>(&reply);
  if (stacks == nullptr) return false;
  for (RankStacks& rank : stacks->ranks) {
    if (rank.threads.size() < 2) continue;
    rank.threads.resize(1);
    if (rank.missing.empty()) rank.missing = "without its other threads, which would not fit";
  }
  return true;
}

std::string reply_for_peer(control::Reply reply) {
  std::string line = line_to_peer(reply);
  if (line.size() <= Peers::kAnswerBytesMax) return line;
  if (cut_to_main_threads(reply)) line = line_to_peer(reply);
  if (line.size() <= Peers::kAnswerBytesMax) return line;
  return line_to_peer(control::Reply(
      Error{ExitCode::environment,
            fmt::format("its answer has {}, and a node sends another at most {}; ask for fewer "
                        "ranks, or ask on that node",
                        bytes_text(static_cast<int64_t>(line.size())),
                        bytes_text(static_cast<int64_t>(Peers::kAnswerBytesMax)))}));
}

}  // namespace

Result<std::vector<int>> AgentLoop::wanted_ranks(const control::RankRanges& ranges) const {
  if (attempt_ < 0) return tl::unexpected(no_worker_yet());
  return selected_ranks(ranges, round_.world_size);
}

std::vector<int> AgentLoop::local_ranks_of(const control::RankRanges& ranges) const {
  std::vector<int> local_ranks;
  for (int local_rank = 0; local_rank < setup_.workers; ++local_rank) {
    if (control::selects(ranges, round_.base_rank + local_rank)) local_ranks.push_back(local_rank);
  }
  return local_ranks;
}

// `ranks`: sorted.
void AgentLoop::ask_job(const std::vector<int>& ranks, const AskedFor& request, Duration limit,
                        AnswersDone done) {
  struct Joined {
    std::vector<NodeAnswer> answers;
    int missing = 2;
  };
  const auto take = [joined = std::make_shared<Joined>(),
                     done = std::move(done)](std::vector<NodeAnswer> answers) {
    std::ranges::move(answers, std::back_inserter(joined->answers));
    if (--joined->missing == 0) done(std::move(joined->answers));
  };
  const int base = round_.base_rank;
  NodeAnswer own{.node_rank = round_.group_rank, .node = {}, .ranks = {}};
  if (round_.world_size > setup_.workers)
    own.node = node_with_ranks("this node", base, setup_.workers);
  std::vector<int> others;
  for (const int rank : ranks)
    (rank >= base && rank < base + setup_.workers ? own.ranks : others).push_back(rank);
  if (others.empty()) {
    take({});
  } else {
    find_nodes([this, others, request, limit, take](const NodeLines& nodes) {
      ask_others(nodes_to_ask(others, nodes), request, limit, take);
    });
  }
  if (own.ranks.empty()) return take({});
  answer_here(request(ranges_of(own.ranks)), [own, take](control::Reply reply) mutable {
    own.reply = std::move(reply);
    take({std::move(own)});
  });
}

// The host may not answer, and answers no agent that asks often. A round's nodes stay as they are.
void AgentLoop::find_nodes(std::function<void(const NodeLines&)> next) {
  if (!job_nodes_.empty()) return next(job_nodes_);
  rendezvous_->nodes([this, epoch = job_round_.epoch, next = std::move(next)](NodeLines nodes) {
    const auto own =
        std::ranges::find(nodes, job_round_.node_rank, &membership::NodeLine::node_rank);
    if (epoch == job_round_.epoch && own != nodes.end() && own->first_rank == job_round_.base_rank)
      job_nodes_ = nodes;
    next(nodes);
  });
}

void AgentLoop::ask_others(std::vector<NodeAnswer> asked, const AskedFor& request, Duration limit,
                           AnswersDone done) {
  Peers::Ask ask;
  for (const NodeAnswer& node : asked) {
    if (node.node_rank >= 0) ask.questions.emplace(node.node_rank, question_for(node, request));
  }
  ask.limit = limit;
  ask.done = [asked = std::move(asked),
              done = std::move(done)](const Peers::Answers& answers) mutable {
    for (NodeAnswer& node : asked) {
      if (const auto found = answers.find(node.node_rank); found != answers.end())
        node.reply = found->second.and_then(control::decode_reply);
    }
    done(std::move(asked));
  };
  peers_drive_.post(std::move(ask));
}

// For ranks of this node.
void AgentLoop::answer_here(const control::Request& request, ReplyDone done) {
  if (attempt_ < 0) return done(no_worker_yet());
  if (const auto* const records = std::get_if<control::RecordsRequest>(&request))
    return records_here(*records, std::move(done));
  if (const auto* const stacks = std::get_if<control::StacksRequest>(&request))
    return stacks_here(*stacks, std::move(done));
  if (std::holds_alternative<control::VariablesRequest>(request))
    return done(shown_variables(worker_environment(environment_, round_, worker_variables(0))));
  done(Error{ExitCode::usage, "nodes ask each other for records, stacks and variables alone"});
}

void AgentLoop::on_peers(const Peers::Effect& effect) {
  if (const auto* const message = std::get_if<Peers::Send>(&effect))
    return send(message->to, message->payload);
  if (const auto* const serve = std::get_if<Peers::Serve>(&effect)) return serve_peer(*serve);
  const auto& finished = std::get<Peers::Finished>(effect);
  finished.done(finished.answers);
}

void AgentLoop::serve_peer(const Peers::Serve& serve) {
  const auto answer = [this, key = serve.key](const control::Reply& reply) {
    peers_drive_.post(Peers::Answer{key, reply_for_peer(reply)});
  };
  const Result<control::Request> request = control::decode_request(serve.question);
  if (!request) return answer(request.error());
  answer_here(*request, answer);
}

}  // namespace muster

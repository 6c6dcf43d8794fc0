#include "agent/job/job_answers.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "agent/report/text.h"

namespace muster {
namespace {

// Other nodes answer from memory. One that stands still is lost soon after.
constexpr auto kRecordsLimit = std::chrono::seconds(2);
// The StackReader of another node takes 8 s at most.
constexpr auto kStacksLimit = std::chrono::seconds(10);

// Asks the same about some of its ranks.
JobAnswers::AskedFor question_of(const auto& request) {
  return [request](control::RankRanges ranges) {
    auto part = request;
    part.ranks = std::move(ranges);
    return part;
  };
}

Error no_worker_yet() {
  return {ExitCode::environment, "no worker is running yet; try again when the job has begun"};
}

std::string line_to_peer(const auto& message) {
  std::string line = control::encode(message);
  line.pop_back();
  return line;
}

std::string question_for(const NodeAnswer& node, const JobAnswers::AskedFor& request) {
  const std::string line = line_to_peer(request(ranges_of(node.ranks)));
  if (line.size() <= Peers::kQuestionBytesMax) return line;
  // One range instead: ranks that were not asked for are left out when answers are joined.
  return line_to_peer(request({{node.ranks.front(), node.ranks.back()}}));
}

// Better than nothing. False if these are no stacks.
bool cut_to_telling_threads(control::Reply& reply) {
  auto* const stacks = std::get_if<control::Stacks>(&reply);
  if (stacks == nullptr) return false;
  for (RankStacks& rank : stacks->ranks) {
    const size_t before = rank.threads.size();
    keep_telling_threads(rank);
    if (rank.threads.size() < before && rank.missing.empty())
      rank.missing = "without its other threads, which would not fit";
  }
  return true;
}

std::string reply_for_peer(control::Reply reply) {
  std::string line = line_to_peer(reply);
  if (line.size() <= Peers::kAnswerBytesMax) return line;
  if (cut_to_telling_threads(reply)) line = line_to_peer(reply);
  if (line.size() <= Peers::kAnswerBytesMax) return line;
  return line_to_peer(control::Reply(
      Error{ExitCode::environment,
            fmt::format("its answer has {}, and a node sends another at most {}; ask for fewer "
                        "ranks, or ask on that node",
                        bytes_text(static_cast<int64_t>(line.size())),
                        bytes_text(static_cast<int64_t>(Peers::kAnswerBytesMax)))}));
}

}  // namespace

JobAnswers::JobAnswers(boost::asio::io_context& io, JobSeam& job, OwnRanks& own,
                       std::function<control::Reply()> variables)
    : job_(job),
      own_(own),
      variables_(std::move(variables)),
      drive_(io, peers_, [this](const Peers::Effect& effect) { perform(effect); }) {}

void JobAnswers::begin(const membership::Round& round) {
  drive_.post(Peers::RoundEnded{});
  nodes_.clear();
  round_ = round;
}

void JobAnswers::on_letter(int from, const std::string& payload) {
  drive_.post(Peers::Arrived{from, payload});
}

Result<std::vector<int>> JobAnswers::wanted(const control::RankRanges& ranges) const {
  if (job_.attempt() < 0) return tl::unexpected(no_worker_yet());
  return selected_ranks(ranges, job_.round().world_size);
}

void JobAnswers::ask(const std::vector<int>& ranks, const AskedFor& request, Duration limit,
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
  const int base = job_.round().base_rank;
  NodeAnswer own{.node_rank = job_.round().node_rank, .node = {}, .ranks = {}};
  if (job_.round().world_size > job_.round().local_world_size)
    own.node = node_with_ranks("this node", base, job_.round().local_world_size);
  std::vector<int> others;
  for (const int rank : ranks)
    (rank >= base && rank < base + job_.round().local_world_size ? own.ranks : others)
        .push_back(rank);
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

// Keeps the round's nodes, which do not change: the host may be silent, or refuse frequent queries.
void JobAnswers::find_nodes(std::function<void(const NodeLines&)> next) {
  if (!nodes_.empty()) return next(nodes_);
  job_.find_nodes([this, epoch = round_.epoch, next = std::move(next)](NodeLines nodes) {
    const auto own = std::ranges::find(nodes, round_.node_rank, &membership::NodeLine::node_rank);
    if (epoch == round_.epoch && own != nodes.end() && own->first_rank == round_.base_rank)
      nodes_ = nodes;
    next(nodes);
  });
}

void JobAnswers::ask_others(std::vector<NodeAnswer> asked, const AskedFor& request, Duration limit,
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
  drive_.post(std::move(ask));
}

void JobAnswers::answer_here(const control::Request& request, ReplyDone done) {
  if (job_.attempt() < 0) return done(no_worker_yet());
  if (const auto* const records = std::get_if<control::RecordsRequest>(&request))
    return own_.records(*records, std::move(done));
  if (const auto* const stacks = std::get_if<control::StacksRequest>(&request))
    return own_.stacks(*stacks, std::move(done));
  if (std::holds_alternative<control::VariablesRequest>(request)) return done(variables_());
  done(Error{ExitCode::usage, "nodes ask each other for records, stacks and variables alone"});
}

void JobAnswers::perform(const Peers::Effect& effect) {
  if (const auto* const message = std::get_if<Peers::Send>(&effect))
    return job_.send(message->to, message->payload);
  if (const auto* const question = std::get_if<Peers::Serve>(&effect)) return serve(*question);
  const auto& finished = std::get<Peers::Finished>(effect);
  finished.done(finished.answers);
}

void JobAnswers::serve(const Peers::Serve& serve) {
  const auto answer = [this, key = serve.key](const control::Reply& reply) {
    drive_.post(Peers::Answer{key, reply_for_peer(reply)});
  };
  const Result<control::Request> request = control::decode_request(serve.question);
  if (!request) return answer(request.error());
  answer_here(*request, answer);
}

void JobAnswers::records(const control::RecordsRequest& request, RecordsDone done) {
  const Result<std::vector<int>> ranks = wanted(request.ranks);
  if (!ranks) return done(tl::unexpected(ranks.error()));
  if (const auto error = too_many_calls(ranks->size(), request.lines))
    return done(tl::unexpected(*error));
  ask(*ranks, question_of(request), kRecordsLimit,
      [done = std::move(done), strangers = strangers_text(request.ranks, job_.round().world_size)](
          const std::vector<NodeAnswer>& answers) { done(joined_records(answers, strangers)); });
}

void JobAnswers::stacks(const control::StacksRequest& request, StacksDone done) {
  const Result<std::vector<int>> ranks = wanted(request.ranks);
  if (!ranks) return done(tl::unexpected(ranks.error()));
  ask(*ranks, question_of(request), kStacksLimit,
      [done = std::move(done), strangers = strangers_text(request.ranks, job_.round().world_size)](
          const std::vector<NodeAnswer>& answers) { done(joined_stacks(answers, strangers)); });
}

}  // namespace muster

#include "agent/job/node_answers.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <tuple>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr size_t kCallsMax = 32'768;  // Per answer.
constexpr const char* kUnknownNode = "the job's host has not said which node has them; try again";

bool runs(const membership::NodeLine& node, int rank) {
  const int64_t local_rank = int64_t{rank} - node.first_rank;
  return node.node_rank >= 0 && local_rank >= 0 && local_rank < node.workers;
}

std::string complaint(const NodeAnswer& answer, const std::string& why) {
  return answer.node.empty() ? why : fmt::format("{}: {}", answer.node, why);
}

// What the node answered; nullptr: something else or nothing, about which `unanswered` gets a line.
template <typename Said>
const Said* said_by(const NodeAnswer& answer, std::vector<std::string>& unanswered) {
  std::string why = "it sent an unexpected answer; does it run another version of muster?";
  if (!answer.reply) {
    why = clean_line(answer.reply.error().message);
  } else if (const auto* const said = std::get_if<Said>(&*answer.reply)) {
    return said;
  } else if (const auto* const error = std::get_if<Error>(&*answer.reply)) {
    why = clean_line(error->message);
  }
  unanswered.push_back(complaint(answer, why));
  return nullptr;
}

// Takes what the node answered for the ranks that it was asked for, and adds a line about the rest.
template <typename Rank>
void take_answer(const NodeAnswer& answer, control::OfRanks<Rank>& whole) {
  const auto* const said = said_by<control::OfRanks<Rank>>(answer, whole.unanswered);
  if (said == nullptr) return;
  std::vector<int> missing = answer.ranks;
  for (const Rank& rank : said->ranks) {
    if (std::erase(missing, rank.rank) > 0) whole.ranks.push_back(rank);
  }
  if (!missing.empty()) {
    whole.unanswered.push_back(complaint(answer, "it has not answered for " + ranks_text(missing)));
  }
}

template <typename Rank>
Result<control::OfRanks<Rank>> joined_answers(const std::vector<NodeAnswer>& answers,
                                              const std::string& strangers) {
  control::OfRanks<Rank> whole;
  for (const NodeAnswer& answer : answers)
    take_answer(answer, whole);
  if (!strangers.empty()) whole.unanswered.push_back(strangers);
  if (whole.ranks.empty() && whole.unanswered.size() == 1)
    return fail(ExitCode::environment, whole.unanswered.front());
  return whole;
}

}  // namespace

std::optional<Error> too_many_calls(size_t ranks, int lines) {
  if (ranks * static_cast<size_t>(lines) <= kCallsMax) return std::nullopt;
  return Error{ExitCode::environment,
               fmt::format("{} with {} each are too many for one answer, which holds {}; ask for "
                           "fewer",
                           counted(ranks, "rank"), counted(lines, "call"), kCallsMax)};
}

std::vector<int> selected_ranks(const control::RankRanges& ranges, int world_size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    if (control::selects(ranges, rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::string strangers_text(const control::RankRanges& ranges, int world_size) {
  std::string strangers;
  bool is_one = true;
  for (const auto& [first, last] : ranges) {
    if (last < world_size) continue;
    const int from = std::max(first, world_size);
    is_one = is_one && strangers.empty() && from == last;
    strangers += strangers.empty() ? "" : ",";
    strangers += from == last ? fmt::format("{}", last) : fmt::format("{}-{}", from, last);
  }
  if (strangers.empty()) return {};
  return fmt::format(
      "rank{} not of this job, whose {}",
      is_one ? " " + strangers + " is" : "s " + clean_line(strangers) + " are",
      world_size == 1 ? "only rank is 0" : fmt::format("ranks are 0-{}", world_size - 1));
}

std::string node_with_ranks(std::string_view node, int first_rank, int workers) {
  return workers == 1
             ? fmt::format("{} (rank {})", node, first_rank)
             : fmt::format("{} (ranks {}-{})", node, first_rank, int64_t{first_rank} + workers - 1);
}

std::vector<NodeAnswer> nodes_to_ask(const std::vector<int>& ranks,
                                     const std::vector<membership::NodeLine>& nodes) {
  std::vector<NodeAnswer> asked;
  std::vector<int> rest = ranks;
  for (const membership::NodeLine& node : nodes) {
    std::vector<int> own;
    const auto runs_there = [&](int rank) { return runs(node, rank); };
    std::ranges::copy_if(rest, std::back_inserter(own), runs_there);
    if (own.empty()) continue;
    std::erase_if(rest, runs_there);
    NodeAnswer& answer = asked.emplace_back();
    answer.node_rank = node.node_rank;
    answer.node = node_with_ranks(clean_line(node.host), node.first_rank, node.workers);
    answer.ranks = std::move(own);
  }
  if (!rest.empty())
    asked.push_back({-1, ranks_text(rest), rest, fail(ExitCode::environment, kUnknownNode)});
  return asked;
}

Result<control::Records> joined_records(const std::vector<NodeAnswer>& answers,
                                        const std::string& strangers) {
  Result<control::Records> whole = joined_answers<RankRecords>(answers, strangers);
  if (whole) std::ranges::sort(whole->ranks, {}, &RankRecords::rank);
  return whole;
}

Result<control::Stacks> joined_stacks(const std::vector<NodeAnswer>& answers,
                                      const std::string& strangers) {
  Result<control::Stacks> whole = joined_answers<RankStacks>(answers, strangers);
  if (whole) {
    std::ranges::sort(whole->ranks, {}, [](const RankStacks& stacks) {
      return std::tuple(stacks.in_call, stacks.rank);
    });
  }
  return whole;
}

std::vector<NodeVariables> joined_variables(const std::vector<NodeAnswer>& answers,
                                            std::vector<std::string>& unanswered) {
  std::vector<NodeVariables> nodes;
  for (const NodeAnswer& answer : answers) {
    if (const auto* const variables = said_by<control::Variables>(answer, unanswered))
      nodes.push_back({answer.node_rank, *variables});
  }
  return nodes;
}

}  // namespace muster

#include "agent/output/stream_plan.h"

#include <algorithm>

namespace muster {

namespace {

bool asks_for(const StreamsByRank& flag, const StreamFacts& facts) {
  return (static_cast<int>(flag.of(facts.local_rank)) & static_cast<int>(facts.stream)) != 0;
}

bool passes_filters(const LogSpec& log, const StreamFacts& facts) {
  const auto& local = log.local_ranks_filter;
  if (facts.files && local && !local->empty() &&
      std::find(local->begin(), local->end(), facts.local_rank) == local->end()) {
    return false;
  }
  return log.ranks.empty() ||
         std::any_of(log.ranks.begin(), log.ranks.end(), [&](const std::pair<int, int>& range) {
           return range.first <= facts.rank && facts.rank <= range.second;
         });
}

}  // namespace

StreamPlan plan_stream(const LogSpec& log, const StreamFacts& facts) {
  const bool tee = facts.files && asks_for(log.tee, facts);
  const auto& needles =
      facts.stream == Streams::out ? log.duplicate_stdout_filters : log.duplicate_stderr_filters;
  StreamPlan plan;
  plan.to_file = tee || (facts.files && asks_for(log.redirects, facts));
  plan.to_console = passes_filters(log, facts) && (tee || !plan.to_file);
  plan.terminal = plan.to_console && !plan.to_file && facts.console_is_terminal;
  plan.filtered = plan.to_console && tee && !needles.empty();
  if (plan.to_console && !log.prefix.empty()) {
    plan.prefix = ConsolePrefix::log_prefix;
  } else if (plan.to_console && tee) {
    plan.prefix = ConsolePrefix::tee;
  }
  return plan;
}

}  // namespace muster

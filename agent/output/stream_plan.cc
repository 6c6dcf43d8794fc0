#include "agent/output/stream_plan.h"

#include <algorithm>

namespace muster {
namespace {

bool asks_for(const StreamsByRank& flag, const StreamFacts& facts) {
  return (static_cast<int>(flag.of(facts.local_rank)) & static_cast<int>(facts.stream)) != 0;
}

bool passes_filters(const LogSpec& log, const StreamFacts& facts) {
  const auto& local = log.local_ranks_filter;
  if (log.wants_files() && local && !local->empty() &&
      std::ranges::count(*local, facts.local_rank) == 0) {
    return false;
  }
  return log.ranks.empty() || std::ranges::any_of(log.ranks, [&](const auto& range) {
           return range.first <= facts.rank && facts.rank <= range.second;
         });
}

}  // namespace

StreamPlan plan_stream(const LogSpec& log, const StreamFacts& facts) {
  const bool tee = log.wants_files() && asks_for(log.tee, facts);
  StreamPlan plan;
  plan.to_file = tee || (log.wants_files() && asks_for(log.redirects, facts));
  plan.to_console = passes_filters(log, facts) && (tee || !plan.to_file);
  plan.terminal = plan.to_console && !plan.to_file && facts.console_is_terminal;
  plan.filtered = plan.to_console && tee && !log.filters(facts.stream).empty();
  if (plan.to_console && !log.prefix.empty()) {
    plan.prefix = ConsolePrefix::log_prefix;
  } else if (plan.to_console && tee) {
    plan.prefix = ConsolePrefix::tee;
  }
  return plan;
}

}  // namespace muster

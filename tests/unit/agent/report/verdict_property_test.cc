// Whatever a program wrote and however its job ended, the verdict exists, is short, and is harmless
// to the terminal, and the machine-readable files are valid JSON.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/report/cause.h"
#include "agent/report/error_file.h"
#include "agent/report/event_log.h"
#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/torch_events.h"
#include "agent/report/verdict.h"
#include "tests/unit/agent/report/report_generators.h"

namespace muster {
namespace {

RC_GTEST_PROP(AnyVerdict, IsOneHarmlessScreen, ()) {
  const JobReport report = any_failed_job();
  const std::string text = render_end(report, RenderOptions{});
  RC_ASSERT(is_printable(text));
  RC_ASSERT(std::count(text.begin(), text.end(), '\n') <= 50);
  RC_ASSERT(text.starts_with(std::string(80, '=') + "\n"));
  RC_ASSERT(text.ends_with(std::string(80, '=') + "\n"));
  RC_ASSERT(text.find("Root Cause (first observed failure)") != std::string::npos);
  RC_ASSERT(text.find("exitcode  : ") != std::string::npos);
  RC_ASSERT(text.find("failed (exitcode: ") != std::string::npos);
}

RC_GTEST_PROP(AnyVerdict, NeverBlamesAStoppedWorkerIfThereIsAnother, ()) {
  const JobReport report = any_failed_job();
  const bool all_stopped =
      std::all_of(report.failures.begin(), report.failures.end(),
                  [](const WorkerFailure& failure) { return failure.stopped_by_muster; });
  RC_ASSERT(all_stopped || !report.failures[*report.culprit].stopped_by_muster);
}

RC_GTEST_PROP(AnyVerdict, HasAnExitCodeThatMeansFailure, ()) {
  const JobReport report = any_failed_job();
  const int code = exit_code_of(report, ExitCodePolicy::culprit);
  RC_ASSERT(code >= 1 && code <= 255);
  RC_ASSERT(exit_code_of(report, ExitCodePolicy::torchrun) == 1);
}

RC_GTEST_PROP(AnyVerdict, HasTheSameCulpritAndCodeInItsResultFile, ()) {
  const JobReport report = any_failed_job();
  const auto json = nlohmann::json::parse(result_json(report, ExitCodePolicy::culprit));
  RC_ASSERT(json.at("culprit").at("rank") == report.failures[*report.culprit].rank);
  RC_ASSERT(json.at("others").size() == report.failures.size() - 1);
  RC_ASSERT(json.at("exit_code") == exit_code_of(report, ExitCodePolicy::culprit));
}

RC_GTEST_PROP(AnyRestartLine, IsOneHarmlessLine, ()) {
  const WorkerFailure failure = any_failure(3);
  const std::string line =
      render_restart(failure, cause_of(failure, any_evidence()), 1, 2, Duration{1});
  RC_ASSERT(is_printable(line));
  RC_ASSERT(line.find('\n') == std::string::npos);
}

RC_GTEST_PROP(AnyTorchEvent, IsOneLineOfAsciiJson, ()) {
  const WorkerFailure failure = any_failure(3);
  TorchEventContext context;
  context.run_id = *any_output();
  const std::string line = torch_worker_event(context, TorchWorker{}, "FAILED", &failure);
  RC_ASSERT(std::count(line.begin(), line.end(), '\n') == 1);
  RC_ASSERT(std::all_of(line.begin(), line.end(), [](char c) { return c > 0; }));
  const auto metadata = nlohmann::json::parse(line).at("metadata");
  RC_ASSERT(nlohmann::json::accept(metadata.at("raw_error").get<std::string>()));
  RC_ASSERT(nlohmann::json::accept(metadata.at("metadata").get<std::string>()));
}

RC_GTEST_PROP(AnyJobEvent, IsOneLineOfJson, ()) {
  JobEvent event;
  event.text = *any_output();
  event.hang = sample_hang();
  event.hang->group = event.hang->text = *any_output();
  const std::string line = event_line(event);
  RC_ASSERT(std::count(line.begin(), line.end(), '\n') == 1);
  RC_ASSERT(nlohmann::json::accept(line));
}

RC_GTEST_PROP(AnyErrorFile, IsReadAsTheSameErrorOnceItIsCopied, ()) {
  WorkerFailure culprit = any_failure(0);
  nlohmann::json json;
  json["message"]["message"] = "KeyError: 'x'";
  json["message"]["extraInfo"]["py_callstack"] = "tb";
  json["message"]["extraInfo"]["timestamp"] = std::to_string(*rc::gen::inRange(0, 1 << 30));
  culprit.error_file_content = json.dump();
  const std::optional<std::string> handed_on = launcher_error_file(culprit);
  RC_ASSERT(handed_on.has_value());
  RC_ASSERT(parse_error_file(*handed_on) == parse_error_file(*culprit.error_file_content));
}

// Parses "0-3,7".
std::vector<int> ranks_in(const std::string& ranges) {
  std::vector<int> ranks;
  for (size_t at = 0; at < ranges.size();) {
    const size_t end = std::min(ranges.find(',', at), ranges.size());
    const std::string range = ranges.substr(at, end - at);
    const size_t dash = range.find('-');
    const int first = std::stoi(range);
    const int last = dash == std::string::npos ? first : std::stoi(range.substr(dash + 1));
    for (int rank = first; rank <= last; ++rank)
      ranks.push_back(rank);
    at = end + 1;
  }
  return ranks;
}

RC_GTEST_PROP(RankRanges, LoseNoRank, ()) {
  const auto set = *rc::gen::container<std::set<int>>(rc::gen::inRange(0, 64));
  const std::vector<int> ranks(set.begin(), set.end());
  RC_ASSERT(ranks_in(rank_ranges(ranks, 64)) == ranks);
}

}  // namespace
}  // namespace muster

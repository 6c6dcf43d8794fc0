// The findings of the hang detector as events, lines and a part of the report.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "agent/job/job_recorder.h"
#include "agent/report/text.h"
#include "rendezvous/base/enum_name.h"
#include "rendezvous/base/steady_now.h"

namespace muster {
namespace {

// More would help no user, and the evidence of a node has a size limit.
constexpr size_t kDetectedMax = 16;
constexpr size_t kAwaitedMax = 4;
constexpr size_t kWaitingMax = 1024;
// Limit from the end of a failed wait to the end of the rank that waited, if it makes calls
// meanwhile, as its handlers may. There is no limit if it makes none.
constexpr Duration kGiveUpToEnd = std::chrono::seconds(10);

bool is_mismatch(hang::Class what) {
  return what == hang::Class::signature || what == hang::Class::order;
}

HangReport report_of(const hang::Finding& finding, std::string line) {
  HangReport report;
  for (const hang::Suspect& suspect : finding.ranks)
    report.ranks.push_back(suspect.rank);
  report.what = name_of(finding.what);
  report.by = name_in<hang::By::time>({"proof", "time"}, finding.by);
  report.group = finding.operation.group.text;
  report.operation = operation_text(finding);
  report.ordinal = finding.operation.ordinal;
  report.waiting = finding.waiting;
  // Rounded, so that it is the same on all nodes, which get milliseconds.
  report.seconds = std::round(to_seconds(finding.waited) * 1e3) / 1e3;
  report.confidence =
      name_in<hang::Confidence::high>({"low", "medium", "high"}, finding.confidence);
  report.text = std::move(line);
  report.is_mismatch = is_mismatch(finding.what);
  return report;
}

}  // namespace

hang::RankPlace JobRecorder::place_of(int rank) const {
  const int local_rank = rank - round_.base_rank;
  if (local_rank < 0 || local_rank >= static_cast<int>(workers_.size()))
    return places_ ? places_(rank) : hang::RankPlace{};
  const WorkerFailure& worker = workers_[static_cast<size_t>(local_rank)].failure;
  return {report_.nnodes > 1 ? worker.host : "", worker.pid, worker.device};
}

void JobRecorder::take(const HangNews& news) {
  JobEvent told = event(news.kind);
  if (news.kind == JobEventKind::note) {
    told.text = news.text;
  } else if (news.kind == JobEventKind::straggler) {
    if (!news.report.ranks.empty()) told.rank = news.report.ranks.front();
    told.seconds = news.report.seconds;
    told.text = news.text;
  } else {
    told.hang = news.report;
  }
  emit(told);
  if (news.kind == JobEventKind::hang || news.kind == JobEventKind::mismatch) {
    verdicts_.push_back({news.number, news.report});
    verdicts_.back().report.attempt = attempt_;
  } else if (news.kind == JobEventKind::withdrawn) {
    std::erase_if(verdicts_, [&](const Standing& one) { return one.number == news.number; });
  }
}

HangNews JobRecorder::tell(JobEventKind kind, const hang::Finding& finding, const std::string& line,
                           std::string text) {
  HangNews news{kind, finding.number, report_of(finding, line), std::move(text)};
  take(news);
  return news;
}

HangNews JobRecorder::hang_notice(const hang::Notice& notice) {
  const hang::Finding& finding = findings_[notice.finding.number] = notice.finding;
  noticed_since_[finding.number] = steady_now() - finding.waited;
  const std::string line = notice_text(finding, [this](int rank) { return place_of(rank); });
  return tell(JobEventKind::waiting, finding, line, line);
}

HangNews JobRecorder::wait_ended(const hang::WaitEnded& ended) {
  HangNews news;
  const auto found = findings_.find(ended.number);
  if (found == findings_.end()) return news;
  news.text = wait_ended_text(ended, found->second);
  if (!ended.have_come && found->second.doubt.why != hang::Doubt::Why::unknown_setter) {
    given_up_ = std::move(found->second);
    given_up_->waited = ended.waited;
    given_up_at_ = steady_now();
    // Nothing tells whether a rank that has given up a key goes on.
    went_on_ = given_up_->operation.kind == hang::Operation::Kind::store_key;
  }
  findings_.erase(found);
  take(news);
  return news;
}

void JobRecorder::went_on(const hang::WentOn& news) {
  if (given_up_ && given_up_->number == news.number) went_on_ = true;
}

HangNews JobRecorder::stragglers(const hang::Stragglers& stragglers) {
  HangNews news{.kind = JobEventKind::straggler, .report = {}, .text = {}};
  news.text = stragglers_text(stragglers, [this](int rank) { return place_of(rank); });
  for (const hang::Straggler& one : stragglers.ranks)
    news.report.ranks.push_back(one.rank);
  const auto seconds = to_seconds(stragglers.time);
  news.report.seconds = std::round(stragglers.ranks.front().share * seconds * 1e3) / 1e3;
  take(news);
  return news;
}

HangNews JobRecorder::hang_verdict(const hang::Verdict& verdict, bool goes_on) {
  const hang::Finding& finding = findings_[verdict.finding.number] = verdict.finding;
  const auto place = [this](int rank) { return place_of(rank); };
  return tell(is_mismatch(finding.what) ? JobEventKind::mismatch : JobEventKind::hang, finding,
              verdict_line(finding, place), verdict_text(finding, place, report_.run_id, goes_on));
}

void JobRecorder::hang_explained(uint64_t number) {
  const auto found = findings_.find(number);
  if (found == findings_.end()) return;
  explanation_ = found->second;
  evidence_.detected = detected();  // The workers may have ended long ago.
}

bool JobRecorder::stands(uint64_t number) const {
  return findings_.contains(number) &&
         std::ranges::find(verdicts_, number, &Standing::number) != verdicts_.end();
}

// Culprits for the judge, which knows the workers of all nodes.
std::vector<DetectedCulprit> JobRecorder::detected() const {
  std::vector<DetectedCulprit> culprits;
  if (!explanation_) return awaited();
  for (size_t i = 0; i < std::min(explanation_->ranks.size(), kDetectedMax); ++i) {
    const hang::Suspect& suspect = explanation_->ranks[i];
    DetectedCulprit& one = culprits.emplace_back();
    one.rank = suspect.rank;
    one.is_mismatch = is_mismatch(explanation_->what);
    one.failed = failed_for_hang_;
    if (!one.is_mismatch) {
      one.sentence = hang_cause(*explanation_, suspect.rank);
      continue;
    }
    one.sentence = mismatch_cause(*explanation_, suspect.rank);
    one.remedy = "all ranks must make the same collective calls, with the same sizes and types" +
                 (suspect.site.empty() ? ""
                                       : fmt::format(": rank {} made this one at {}", suspect.rank,
                                                     clean_line(suspect.site)));
  }
  return culprits;
}

// Ranks for which others wait: a rank that times out does not say for which rank it waited.
std::vector<DetectedCulprit> JobRecorder::awaited() const {
  std::vector<DetectedCulprit> culprits;
  const auto add = [&](const hang::Finding& finding) {
    if (!hang::is_late(finding.what) || finding.doubt.why == hang::Doubt::Why::unknown_setter)
      return;
    for (const hang::Suspect& suspect : finding.ranks) {
      if (culprits.size() == kAwaitedMax) return;
      culprits.push_back({.rank = suspect.rank,
                          .sentence = hang_cause(finding, suspect.rank),
                          .waiting = finding.waiting});
      std::vector<int>& waiting = culprits.back().waiting;
      waiting.resize(std::min(waiting.size(), kWaitingMax));
    }
  };
  const auto is_of_the_end = [this] {
    const Instant end = stop_ ? stop_->at : steady_now();
    return !went_on_ || end - given_up_at_ < kGiveUpToEnd;
  };
  if (given_up_ && is_of_the_end()) add(*given_up_);
  // Verdicts are skipped: they do not show when the waiting ranks gave up.
  for (auto [number, finding] : findings_) {
    if (stands(number)) continue;
    const auto since = noticed_since_.find(number);
    if (since != noticed_since_.end()) finding.waited = steady_now() - since->second;
    add(finding);
  }
  return culprits;
}

// The newest verdict that stands. An attempt that succeeded came out of its hangs, seen or not.
std::optional<HangReport> JobRecorder::standing_verdict() const {
  for (size_t i = verdicts_.size(); i > 0; --i) {
    const HangReport& report = verdicts_[i - 1].report;
    const bool is_over = report_.end == JobEnd::success && report.attempt == attempt_;
    if (!is_over || report.is_mismatch) return report;
  }
  return std::nullopt;
}

HangNews JobRecorder::hang_withdrawn(const hang::Withdrawn& withdrawn) {
  const auto found = findings_.find(withdrawn.number);
  if (found == findings_.end()) return {};
  const hang::Finding finding = std::move(found->second);
  findings_.erase(found);
  const std::string line = withdrawn_text(withdrawn, finding);
  return tell(JobEventKind::withdrawn, finding, line, line);
}

}  // namespace muster

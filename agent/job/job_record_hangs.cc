// What the hang detector finds, as events, lines and a part of the report.
#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "agent/job/job_record.h"
#include "agent/report/text.h"
#include "rendezvous/base/enum_name.h"

namespace muster {
namespace {

bool is_mismatch(hang::Class what) {
  return what == hang::Class::signature || what == hang::Class::order;
}

HangReport report_of(const hang::Finding& finding, std::string line) {
  HangReport report;
  for (const hang::Suspect& suspect : finding.ranks)
    report.ranks.push_back(suspect.rank);
  report.what = name_of(finding.what);
  report.by = name_in<hang::By::time>({"proof", "time"}, finding.by);
  report.group = finding.group;
  report.operation = finding.operation;
  report.ordinal = finding.ordinal;
  report.waiting = finding.waiting;
  report.seconds = std::chrono::duration<double>(finding.waited).count();
  report.confidence =
      name_in<hang::Confidence::high>({"low", "medium", "high"}, finding.confidence);
  report.text = std::move(line);
  report.is_mismatch = is_mismatch(finding.what);
  return report;
}

}  // namespace

hang::RankPlace JobRecord::place_of(int rank) const {
  const int local_rank = rank - round_.base_rank;
  if (local_rank < 0 || local_rank >= static_cast<int>(workers_.size())) return {};
  const WorkerFailure& worker = workers_[static_cast<size_t>(local_rank)].failure;
  return {report_.nnodes > 1 ? worker.host : "", worker.pid, worker.device};
}

std::string JobRecord::tell_hang(JobEventKind kind, const hang::Finding& finding,
                                 std::string line) {
  JobEvent told = event(kind);
  told.hang = report_of(finding, line);
  emit(told);
  return line;
}

std::string JobRecord::hang_notice(const hang::Notice& notice) {
  const hang::Finding& finding = findings_[notice.finding.number] = notice.finding;
  return tell_hang(JobEventKind::waiting, finding,
                   notice_text(finding, [this](int rank) { return place_of(rank); }));
}

std::string JobRecord::wait_ended(const hang::WaitEnded& ended) {
  const auto found = findings_.find(ended.number);
  if (found == findings_.end()) return {};
  std::string line = wait_ended_text(ended, found->second);
  findings_.erase(found);
  note(JobEventKind::note, line);
  return line;
}

std::string JobRecord::hang_verdict(const hang::Verdict& verdict) {
  const hang::Finding& finding = findings_[verdict.finding.number] = verdict.finding;
  const auto place = [this](int rank) { return place_of(rank); };
  const std::string line = verdict_line(finding, place);
  tell_hang(is_mismatch(finding.what) ? JobEventKind::mismatch : JobEventKind::hang, finding, line);
  verdicts_.push_back({finding.number, report_of(finding, line)});
  verdicts_.back().report.attempt = attempt_;
  return verdict_text(finding, place, report_.run_id);
}

void JobRecord::hang_explained(const hang::Explained& explained) {
  const auto found = findings_.find(explained.number);
  if (found != findings_.end()) explanation_ = found->second;
}

// What the worker library has found itself comes first.
void JobRecord::blame_mismatch() {
  const auto has_spoken = [](const WorkerRecord& worker) { return worker.library.has_value(); };
  if (!explanation_ || std::ranges::any_of(workers_, has_spoken)) return;
  for (const hang::Suspect& suspect : explanation_->ranks) {
    const auto worker = std::ranges::find(evidence_.workers, suspect.rank,
                                          [](const auto& one) { return one.signs.rank; });
    if (worker == evidence_.workers.end()) continue;
    worker->signs.mismatched = true;
    worker->cause.kind = FailureClass::user;
    worker->cause.sentence = mismatch_cause(*explanation_, suspect.rank);
    worker->cause.remedy =
        "all ranks must make the same collective calls, with the same sizes and types" +
        (suspect.site.empty() ? ""
                              : fmt::format(": rank {} made this one at {}", suspect.rank,
                                            clean_line(suspect.site)));
  }
}

// The newest one. An attempt that has succeeded has come out of its hangs, though it may have ended
// before that was seen.
std::optional<HangReport> JobRecord::standing_verdict() const {
  for (size_t i = verdicts_.size(); i > 0; --i) {
    const HangReport& report = verdicts_[i - 1].report;
    const bool is_over = report_.end == JobEnd::success && report.attempt == attempt_;
    if (!is_over || report.is_mismatch) return report;
  }
  return std::nullopt;
}

std::string JobRecord::hang_withdrawn(const hang::Withdrawn& withdrawn) {
  std::erase_if(verdicts_,
                [&](const Standing& verdict) { return verdict.number == withdrawn.number; });
  const auto found = findings_.find(withdrawn.number);
  if (found == findings_.end()) return {};
  return tell_hang(JobEventKind::withdrawn, found->second,
                   withdrawn_text(withdrawn, found->second));
}

}  // namespace muster

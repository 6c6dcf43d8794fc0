#include "agent/report/others.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// True if it failed by itself but did not exit until muster stopped it.
bool failed_and_hung(const WorkerFailure& failure) {
  return failure.stopped_by_muster &&
         (failure.part == Part::victim || failure.part == Part::failed_later ||
          failure.part == Part::simultaneous);
}

std::string end_in_words(const WorkerFailure& failure) {
  const bool crashed = failure.part == Part::crashed && !failure.stopped_by_muster;
  if ((crashed || failed_and_hung(failure)) && !failure.sentence.empty())
    return clean_line(failure.sentence);
  return failure.declared.empty() ? describe(failure.status) : clean_line(failure.declared);
}

using SameEnd = std::pair<std::string, std::vector<int>>;  // The end in words, and its ranks.

// Groups ranks by how they ended; the most frequent end first, then by lowest rank.
std::vector<SameEnd> group_by_end(const std::vector<const WorkerFailure*>& failures) {
  std::map<std::string, std::vector<int>> ranks_by_end;
  for (const WorkerFailure* failure : failures)
    ranks_by_end[end_in_words(*failure)].push_back(failure->rank);
  for (auto& [words, ranks] : ranks_by_end)
    std::ranges::sort(ranks);
  std::vector<SameEnd> groups(ranks_by_end.begin(), ranks_by_end.end());
  std::ranges::sort(groups, {}, [](const SameEnd& group) {
    return std::pair(-std::ssize(group.second), group.second.front());
  });
  return groups;
}

std::string ends_text(const std::vector<const WorkerFailure*>& failures) {
  constexpr size_t kGroupsMax = 6;
  size_t untold = failures.size();
  std::vector<std::string> texts;
  for (const auto& [words, ranks] : group_by_end(failures)) {
    if (texts.size() == kGroupsMax) break;
    texts.push_back(ranks_text(ranks) + " " + words);
    untold -= ranks.size();
  }
  if (untold > 0) texts.push_back(fmt::format("{} more", untold));
  return fmt::format("{}", fmt::join(texts, "; "));
}

// Ranks that were in one place, or waited in one call.
struct Place {
  bool waits = false;
  std::string words;
  std::vector<int> ranks;
};

// "for it in barrier #7", if one rank is missing in a call of all.
std::string place_text(const LeftRank& rank, std::ptrdiff_t missing) {
  if (rank.call.empty())
    return rank.where.empty() ? "an unknown place: " + rank.missing : rank.where;
  if (rank.group != "world") return fmt::format("in {} of {}", rank.call, group_title(rank.group));
  return (missing == 0 ? "in " : missing == 1 ? "for it in " : "for them in ") + rank.call;
}

// A rank that muster stopped before it raised anything has no error.
bool failed_alike(const WorkerFailure& other, const WorkerFailure& culprit) {
  return !other.exception.empty() && other.exception == culprit.exception &&
         is_one_of(other.part, {Part::failed_later, Part::simultaneous, Part::crashed});
}

std::string alike_line(std::vector<int> alike, int culprit, int world_size) {
  if (alike.empty()) return {};
  alike.push_back(culprit);
  std::ranges::sort(alike);
  return fmt::format("{}{} ranks raised the same error: {}\n", alike.size(),
                     world_size > 0 ? fmt::format(" of {}", world_size) : "", ranks_text(alike));
}

struct OthersWords {
  const char* one;
  const char* many;
};

std::string others_line(const std::vector<const WorkerFailure*>& failures, const OthersWords& words,
                        const std::vector<int>& elsewhere = {}) {
  const size_t count = failures.size() + elsewhere.size();
  if (count == 0) return {};
  std::string ends = ends_text(failures);
  if (!elsewhere.empty()) {
    if (!ends.empty()) ends += "; ";
    ends += ranks_text(elsewhere);
  }
  return fmt::format("{} {} {}: {}\n", count, count == 1 ? "other" : "others",
                     count == 1 ? words.one : words.many, ends);
}

}  // namespace

std::string others_text(const std::vector<WorkerFailure>& failures, size_t culprit,
                        const std::vector<int>& elsewhere, int world_size) {
  std::vector<int> alike;
  std::vector<const WorkerFailure*> at_once;
  std::vector<const WorkerFailure*> failed;
  std::vector<const WorkerFailure*> hung;
  std::vector<const WorkerFailure*> crashed;
  std::vector<const WorkerFailure*> stopped;
  for (size_t i = 0; i < failures.size(); ++i) {
    if (i == culprit) continue;
    const WorkerFailure& other = failures[i];
    if (failed_alike(other, failures[culprit])) {
      alike.push_back(other.rank);
      continue;
    }
    auto& group = failed_and_hung(other)             ? hung
                  : other.stopped_by_muster          ? stopped
                  : other.part == Part::simultaneous ? at_once
                  : other.part == Part::crashed      ? crashed
                                                     : failed;
    group.push_back(&other);
  }
  return alike_line(std::move(alike), failures[culprit].rank, world_size) +
         others_line(at_once, {"failed at the same moment", "failed at the same moment"}) +
         others_line(failed, {"failed afterwards", "failed afterwards"}) +
         others_line(hung, {"failed as well", "failed as well"}) +
         others_line(crashed,
                     {"failed while muster stopped it", "failed while muster stopped them"}) +
         others_line(stopped, {"was stopped by muster", "were stopped by muster"}, elsewhere);
}

std::string ends_text(const std::vector<WorkerFailure>& failures) {
  std::vector<const WorkerFailure*> all;
  for (const WorkerFailure& failure : failures)
    all.push_back(&failure);
  return ends_text(all);
}

std::string left_text(std::vector<LeftRank> left) {
  constexpr size_t kPlacesMax = 6;
  // Rounded, so that a grace of 30 s does not read 29.9 s.
  using Tenths = std::chrono::duration<int64_t, std::deci>;
  const auto waits = [](const LeftRank& rank) { return !rank.call.empty(); };
  const auto missing = std::ranges::count(left, false, waits);
  std::ranges::sort(left, {},
                    [&](const LeftRank& rank) { return std::pair(waits(rank), rank.rank); });
  std::vector<Place> places;
  for (const LeftRank& rank : left) {
    const std::string words = place_text(rank, missing);
    auto same = std::ranges::find(places, words, &Place::words);
    if (same == places.end()) same = places.insert(same, {waits(rank), words, {}});
    same->ranks.push_back(rank.rank);
  }
  std::string text;
  for (size_t i = 0; i < std::min(places.size(), kPlacesMax); ++i) {
    const auto& [is_wait, words, ranks] = places[i];
    text += (i == 0 ? "" : "; ") + ranks_text(ranks) + " ";
    if (i == 0)
      text +=
          fmt::format("had {} and ", duration_text(std::chrono::round<Tenths>(left.front().had)));
    text += is_wait ? "waited " : ranks.size() == 1 ? "was in " : "were in ";
    text += clean_line(words);
  }
  return places.size() <= kPlacesMax ? text : text + "; the others were elsewhere";
}

std::string failed_line(const WorkerFailure& failure) {
  const std::string& binary = failure.binary.empty() ? failure.program : failure.binary;
  return fmt::format("failed (exitcode: {}) local_rank: {} (pid: {}) of binary: {}",
                     failure.status.signed_code(), failure.local_rank, pid_text(failure),
                     clean_line(binary));
}

std::string pid_text(const WorkerFailure& failure) {
  return failure.pid > 0 ? fmt::format("{}", failure.pid) : "unknown";
}

}  // namespace muster

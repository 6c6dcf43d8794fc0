// The screen of musterctl top: what a job's ranks do between two samples of their records. Ranks
// that do the same share a row, and ranks that are behind come first. Pure; musterctl.cc samples.
//
//   RANKS    CALLS/S  BEHIND       FOR     DOING
//   5        0        1 ('world')  12.4 s  after all_reduce #1041 of group 'world' at train.py:80
//   0-4,6-7  0        -            12.4 s  in all_reduce #1042 of group 'world' at train.py:80
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/control/control_protocol.h"

namespace muster {

struct TopRank {
  int rank = 0;
  pid_t pid = 0;
  std::optional<double> calls_per_s;  // Not set: the same process was not seen before.
  // Calls that a group's most advanced member had made by the previous sample and this rank has not
  // made yet, and the group that has most. So a rank is behind only if it lags by a whole interval.
  int64_t behind = 0;
  std::string behind_in;
  std::optional<double> for_s;  // How long it has been in this state; not set: it makes calls.
  std::string doing;
  std::string current;  // "all_reduce of group 'world'"; empty: it makes no calls.
};

// `before` and `now` are `seconds` apart; nullptr: there is no previous sample.
std::vector<TopRank> top_ranks(const control::Records* before, const control::Records& now,
                               double seconds);

// Limits of the text; 0: no limit.
struct Screen {
  size_t rows = 0;
  size_t columns = 0;
};
std::string top_text(const control::JobStatus& status, const std::vector<TopRank>& ranks,
                     const std::vector<std::string>& unanswered, const Screen& screen);

std::string top_json(const control::JobStatus& status, const std::vector<TopRank>& ranks,
                     const std::vector<std::string>& unanswered);

}  // namespace muster

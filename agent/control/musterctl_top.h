// What musterctl top shows: how the ranks of a job move between two looks at their records. Ranks
// that do the same share a row, those that the others are ahead of come first. Pure; musterctl.cc
// looks.
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
  // Calls of a group that its most advanced member had made by the look before and this rank has
  // not made yet, and the group's name, where they are most. So a rank is behind only if it is so
  // by the time between two looks.
  int64_t behind = 0;
  std::string behind_in;
  std::optional<double> for_s;  // How long it has been in this state; not set: it makes calls.
  std::string doing;
  std::string current;  // "all_reduce of group 'world'", of one that makes calls.
};

// `before` and `now` are `seconds` apart; nullptr: there was no look before.
std::vector<TopRank> top_ranks(const control::Records* before, const control::Records& now,
                               double seconds);

// Lines that are no longer than `columns` and no more than `rows`; 0: as many as it takes.
struct Screen {
  size_t rows = 0;
  size_t columns = 0;
};
std::string top_text(const control::JobStatus& status, const std::vector<TopRank>& ranks,
                     const std::vector<std::string>& unanswered, const Screen& screen);

// One line.
std::string top_json(const control::JobStatus& status, const std::vector<TopRank>& ranks,
                     const std::vector<std::string>& unanswered);

}  // namespace muster

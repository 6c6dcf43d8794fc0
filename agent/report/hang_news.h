// What the hang detector has found, as the nodes of a job tell each other: the line or lines for
// people, and the event for programs. Pure; decoding treats its input as hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/report/event_log.h"
#include "agent/report/job_report.h"

namespace muster {

struct HangNews {
  JobEventKind kind = JobEventKind::note;  // note, waiting, hang, mismatch, withdrawn or straggler.
  uint64_t number = 0;                     // Of the finding; of a note: 0.
  HangReport report;                       // Of a note: empty; of a straggler: ranks and seconds.
  std::string text;                        // What is said, without the prefix; empty: nothing.
  int failed_rank = -1;                    // It counts as failed from now on; -1: none.
  bool is_final = false;                   // Without a restart.

  friend bool operator==(const HangNews&, const HangNews&) = default;
};

// At most kHangNewsBytesMax; what is too long is cut.
inline constexpr size_t kHangNewsBytesMax = 12288;
std::string encode_hang_news(const HangNews& news);
std::optional<HangNews> decode_hang_news(std::string_view bytes);

}  // namespace muster

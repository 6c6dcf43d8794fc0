// The hang detector's findings as the nodes of a job send them to each other: the lines for people
// and the event for programs. Pure; decoding treats its input as hostile.
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
  uint64_t number = 0;                     // The finding's; 0 for a note.
  HangReport report;                       // Empty for a note; a straggler has ranks and seconds.
  std::string text;       // The lines for people, without the prefix; may be empty.
  int failed_rank = -1;   // Rank that counts as failed from now on; -1: none.
  bool is_final = false;  // True if that failure permits no restart.

  friend bool operator==(const HangNews&, const HangNews&) = default;
};

// Encodes to at most kHangNewsBytesMax; longer texts are cut.
inline constexpr size_t kHangNewsBytesMax = 12288;
std::string encode_hang_news(const HangNews& news);
std::optional<HangNews> decode_hang_news(std::string_view bytes);

}  // namespace muster

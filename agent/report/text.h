// Makes text for a terminal from a program's bytes: no output of these functions can move the
// cursor, change colours or the title, or reorder the text that follows. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/report/job_report.h"

namespace muster {

// Cleans one line, without its newline: removes escape sequences and control characters, keeps only
// a progress bar's ('\r') last state, and turns bytes that are not UTF-8 into U+FFFD. Cuts after
// `characters_max` characters, with a note of how many are missing.
inline constexpr size_t kLineCharactersMax = 400;
std::string clean_line(std::string_view raw, size_t characters_max = kLineCharactersMax);

// Cleans each line of a message, which may have words of another node or program in it. Keeps the
// newlines, and up to 8,192 characters of each line.
std::string clean_message(std::string_view raw);

// The last `lines_max` cleaned lines of a tail, without blank lines at its end.
std::vector<std::string> last_lines(std::string_view raw, size_t lines_max,
                                    size_t characters_max = kLineCharactersMax);

// The same text with U+FFFD for every byte that is not UTF-8.
std::string valid_utf8(std::string_view raw);

// The last bytes of valid UTF-8, at most `bytes_max`, cut at a character boundary.
std::string_view utf8_suffix(std::string_view text, size_t bytes_max);

// The first and last rank of each run. REQUIRES: sorted.
std::vector<std::pair<int, int>> ranges_of(const std::vector<int>& ranks);

// "0-3,7,9-10"; at most `ranges_max` ranges, then ",... (12 more)". REQUIRES: sorted, no repeats.
std::string rank_ranges(const std::vector<int>& ranks, size_t ranges_max = 12);

// "rank 3" or "ranks 0-3,7".
std::string ranks_text(const std::vector<int>& ranks);

// "group 'mesh_tp' of ranks 0-3"; "group of ranks 0-3" for one whose name says them. `ranks`: the
// text of rank_ranges().
std::string group_title(std::string_view name, std::string_view ranks = {});

// "node-b (node rank 1)"; without the rank if it is negative. Cleaned.
std::string node_text(std::string_view host, int node_rank);

// "450 ms", "2.1 s", "3 min 5 s", "2 h 7 min".
std::string duration_text(Duration duration);

// "512 KiB", "64 MiB", "7.6 GiB".
std::string bytes_text(int64_t bytes);

// Pads columns to their widest cell plus two spaces, but not the last. No wide characters.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

// "2026-11-20_22:56:48", torchrun's form.
std::string wall_time_text(WallTime time, std::chrono::seconds utc_offset);

// "2026-11-20T22:56:48.123Z".
std::string wall_time_iso(WallTime time);

}  // namespace muster

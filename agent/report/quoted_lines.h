// The last lines of a worker's output as the verdict quotes them. In Python's tracebacks the frames
// of libraries are folded into one line, so that those of the program are within the quote, and the
// lines of carets below the code are left out. An exception whose traceback stands there twice is
// quoted once. Pure; quoting a quote changes nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "agent/report/text.h"

namespace muster {

// At most `lines_max` cleaned lines of at most `characters_max`, without blank ones at the end. If
// the program's innermost frame is above these, within 100 lines, it comes first.
std::vector<std::string> quoted_lines(std::string_view raw, size_t lines_max,
                                      size_t characters_max = kLineCharactersMax);

// The library that a file of Python belongs to: "torch" for ".../site-packages/torch/nn/linear.py",
// "Python" for its standard library; empty: the program's own file.
std::string library_of(std::string_view path);

}  // namespace muster

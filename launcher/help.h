// The text of --help: usage, three examples, then every flag under its heading with value, default
// and unit, wrapped to 80 columns. Written from the option table. Pure.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// Ends with a newline.
std::string help_text();

// `text` in lines of at most `width` columns, each indented by `indent` spaces; words stay whole.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

}  // namespace muster

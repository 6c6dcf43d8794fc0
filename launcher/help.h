// What is written from the option table: the text of --help, the manual page, and what lets a shell
// complete muster's command line. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

// Usage, three examples, then every flag under its heading with value, default and unit, wrapped to
// 80 columns. Ends with a newline.
std::string help_text();

// `text` in lines of at most `width` columns, each indented by `indent` spaces; words stay whole.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

// muster(1), in roff's man macros, with the exit codes (manpage.cc).
std::string man_page();

// A script for "bash", "zsh" or "tcsh" that completes flags, the words a flag takes, folders and
// files; from the program on, files (completion.cc). nullopt for any other shell.
std::optional<std::string> completion_script(std::string_view shell);

}  // namespace muster

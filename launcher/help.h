// Texts generated from the option table: --help, the manual page, and the scripts by which shells
// complete muster's command line. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

// The text of --help, wrapped to 80 columns: usage, examples, then every flag under its heading.
std::string help_text();

// Wraps `text` into lines of at most `width` columns, each indented by `indent`; words stay whole.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

// muster(1), in roff's man macros, with the exit codes (manpage.cc).
std::string man_page();

// A script for "bash", "zsh" or "tcsh" that completes flags and their words, folders and files, and
// from the program on files (completion.cc). nullopt for any other shell.
std::optional<std::string> completion_script(std::string_view shell);

}  // namespace muster

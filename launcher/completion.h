// Scripts that let a shell complete muster's command line, written from the option table: flags,
// the words a flag takes, folders and files; from the program on, files. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

// For "bash", "zsh" or "tcsh"; nullopt for any other shell.
std::optional<std::string> completion_script(std::string_view shell);

}  // namespace muster

// Turns the command line and its environment overrides into a LaunchSpec, a step to start or a text
// to print. Pure: arguments and environment are passed in, nothing is opened or looked up. Every
// complaint is one line that names the flag or variable, its value and the remedy. torchrun's flags
// mean what they mean in torchrun; option_table.h lists all flags.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/launch_spec.h"
#include "agent/process/worker_environment.h"
#include "launcher/engine_settings.h"
#include "rendezvous/base/error.h"

namespace muster {

// Text for stdout, followed by exit 0: --help, --version, --print-completion, --print-man.
struct TextToPrint {
  std::string text;

  friend bool operator==(const TextToPrint&, const TextToPrint&) = default;
};

// A flag of ours that was given to a Python script as its first argument, and not to muster. Causes
// a warning unless the script's text has that name (names_flag(), program_file.h).
struct MisplacedFlag {
  std::string name;  // "nproc-per-node", without dashes.
  std::string hint;

  friend bool operator==(const MisplacedFlag&, const MisplacedFlag&) = default;
};

struct ParsedCommandLine {
  std::variant<LaunchSpec, TextToPrint, StepToStart> what;
  std::vector<std::string> warnings;  // One line each for stderr, without the program's name.
  std::optional<MisplacedFlag> misplaced = {};

  friend bool operator==(const ParsedCommandLine&, const ParsedCommandLine&) = default;
};

// `args`: without argv[0]. `version`: the text of --version. Fails with ExitCode::usage only.
Result<ParsedCommandLine> parse_command_line(std::span<const std::string> args,
                                             const Environment& environment,
                                             std::string_view version, const TextOfFile& text_of);

}  // namespace muster

// Turns the command line and its environment overrides into a LaunchSpec (or into a text to print).
// Pure: the arguments and the environment are passed in, nothing is opened or looked up, and every
// complaint is one line that names the flag or variable, its value and the remedy. The flags mean
// what they mean in torchrun wherever torchrun has them; option_table.h lists them all.
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

// --help, --version, --print-completion, --print-man: printed on stdout unchanged, then exit 0.
struct TextToPrint {
  std::string text;

  friend bool operator==(const TextToPrint&, const TextToPrint&) = default;
};

// A flag of ours that a Python script gets as its first argument, while muster was not given it.
// Causes a warning unless the script has a flag of that name (names_flag(), program_file.h).
struct MisplacedFlag {
  std::string name;  // Without dashes: "nproc-per-node".
  std::string hint;

  friend bool operator==(const MisplacedFlag&, const MisplacedFlag&) = default;
};

struct ParsedCommandLine {
  std::variant<LaunchSpec, TextToPrint, StepToStart> what;
  std::vector<std::string> warnings;  // For stderr, one line each, without the program's name.
  std::optional<MisplacedFlag> misplaced = {};

  friend bool operator==(const ParsedCommandLine&, const ParsedCommandLine&) = default;
};

// `args` are the arguments after the program's own name; `version` is the line that --version
// prints (without newline). Fails with ExitCode::usage only.
Result<ParsedCommandLine> parse_command_line(std::span<const std::string> args,
                                             const Environment& environment,
                                             std::string_view version, const TextOfFile& text_of);

}  // namespace muster

// Finds where the flags end and the program begins. A library such as CLI11 does not fit: it has no
// abbreviations, refuses empty values, rewrites values like "[1,2]", and would parse the program's
// arguments. The walk follows argparse's rules: both spellings (--a-b, --a_b), unambiguous
// prefixes, clusters (-mt 3), the last value wins, a negative number is a value, and everything
// from the program on is verbatim, except one "--" directly after the program. Pure.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster {

struct WalkedArguments {
  std::map<std::string, std::string> values;  // Keyed by name without dashes; flags have "1".
  std::vector<std::string> rest;              // Program and its arguments; empty: no program.
  // The flag that requests a text (help, version, print-completion, print-man) and ends the walk.
  std::string information;
  bool separated = false;  // True if a "--" before or directly after the program was dropped.

  friend bool operator==(const WalkedArguments&, const WalkedArguments&) = default;
};

Result<WalkedArguments> walk_arguments(std::span<const std::string> args);

}  // namespace muster

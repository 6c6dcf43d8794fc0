// Every flag of muster in one table: names, value, default, heading, help and special traits. The
// argument walk, the settings, the help, the completions and the man page all read it, so none of
// them can become outdated. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// How a flag differs from most. `own`: torchrun has no such flag, so a prefix selects it only if
// the prefix matches none of torchrun's flags ("--re" stays --redirects). `information`: requests a
// text and ends the walk over the arguments. `launchers_only`: programs hardly ever have a flag of
// this name, so after the program it is most likely misplaced.
struct OptionTraits {
  bool own = false;
  bool reads_variable = true;
  bool information = false;
  bool launchers_only = false;
};

struct OptionRow {
  std::string_view name;   // Without dashes: "nproc-per-node".
  std::string_view group;  // Heading in the help. Empty: not shown.
  // "N|cpu|gpu|auto"; lower-case alternatives are words to type. Empty: a flag. "[=MAX]": a flag
  // that may have a value, attached.
  std::string_view value;
  std::string_view default_text;
  std::string_view help;
  OptionTraits traits = {};
  char letter = 0;  // 'r' for -r; 0: none.

  bool may_have_value() const { return value.starts_with("[="); }
  bool takes_value() const { return !value.empty() && !may_have_value(); }
  std::string variable() const;  // "PET_NPROC_PER_NODE"
};

// In the order of the help, groups together.
std::span<const OptionRow> option_rows();

// The row with this name; null: there is none.
const OptionRow* find_option(std::string_view name);
// REQUIRES: there is one.
const OptionRow& option_row(std::string_view name);

// The literal words among the alternatives of `value`: "N|cpu|gpu" has "cpu" and "gpu".
std::vector<std::string_view> words_to_type(const OptionRow& row);

}  // namespace muster

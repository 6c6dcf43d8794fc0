// Every flag of muster in one table: name, value, default, heading, help and traits. The argument
// walk, the settings, the help, the completions and the man page all read it, so none of them can
// become outdated. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct OptionTraits {
  // True if torchrun has no such flag: a prefix selects it only if it matches none of torchrun's
  // ("--re" stays --redirects).
  bool own = false;
  bool reads_variable = true;
  bool information = false;  // True if it requests a text and ends the walk over the arguments.
  // True if hardly any program has such a flag; behind PROGRAM it causes a warning.
  bool launchers_only = false;
};

struct OptionRow {
  std::string_view name;   // "nproc-per-node", without dashes.
  std::string_view group;  // Heading in the help; empty: not shown.
  // "N|cpu|gpu|auto", where lower-case alternatives are words to type; empty: no value; "[=MAX]":
  // an optional value, attached.
  std::string_view value;
  std::string_view default_text;
  std::string_view help;
  OptionTraits traits = {};
  char letter = 0;  // 'r' for -r; 0: none.

  bool may_have_value() const { return value.starts_with("[="); }
  bool takes_value() const { return !value.empty() && !may_have_value(); }
  std::string variable() const;  // "PET_NPROC_PER_NODE"
};

// The rows in the order of the help, groups together.
std::span<const OptionRow> option_rows();

const OptionRow* find_option(std::string_view name);
// REQUIRES: the name exists.
const OptionRow& option_row(std::string_view name);

// The words to type among the alternatives of `value`: "cpu" and "gpu" of "N|cpu|gpu".
std::vector<std::string_view> words_to_type(const OptionRow& row);

}  // namespace muster

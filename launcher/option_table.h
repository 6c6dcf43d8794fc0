// Every flag of muster in one table: names, value, default, heading, help, variable and special
// traits. CLI11 holds it and rejects names that are malformed or taken; option_table.cc is the only
// file of muster that includes CLI11 (musterctl.cc does as well). The argument walk, the help, the
// completions and the man page all read the plain rows, so none of them can become outdated.
#pragma once

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
  std::string name;   // Without dashes: "nproc-per-node".
  char letter = 0;    // 'r' for -r; 0: none.
  std::string value;  // "N|cpu|gpu|auto"; lower-case alternatives are words to type. Empty: a flag.
  std::string default_text;
  std::string group;  // Heading in the help. Empty: not shown.
  std::string help;
  std::string variable;  // "PET_NPROC_PER_NODE"
  OptionTraits traits;

  bool takes_value() const { return !value.empty(); }
};

// In the order of the help, groups together.
const std::vector<OptionRow>& option_rows();

// The row with this name. REQUIRES: there is one.
const OptionRow& option_row(std::string_view name);

// The literal words among the alternatives of `value`: "N|cpu|gpu" has "cpu" and "gpu".
std::vector<std::string_view> words_to_type(const OptionRow& row);

}  // namespace muster

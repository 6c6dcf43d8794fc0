#include <algorithm>

#include <fmt/format.h>

#include "launcher/help.h"
#include "launcher/option_table.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

enum class ValueKind { none, words, folder, file, free };

ValueKind value_kind(const OptionRow& row) {
  if (!row.takes_value()) return ValueKind::none;
  if (row.value == "DIR") return ValueKind::folder;
  if (row.value == "PATH") return ValueKind::file;
  return words_to_type(row).empty() ? ValueKind::free : ValueKind::words;
}

bool is_listed(const OptionRow& row) {
  return !row.group.empty();
}

// A pattern that matches every spelling: "--tee|-t", "--log-dir|--log_dir".
std::string spellings(const OptionRow& row) {
  std::string text = fmt::format("--{}", row.name);
  if (contains(row.name, "-")) {
    std::string underscored(row.name);
    std::ranges::replace(underscored, '-', '_');
    text += fmt::format("|--{}", underscored);
  }
  if (row.letter != 0) text += fmt::format("|-{}", row.letter);
  return text;
}

std::string all_flags() {
  std::string flags;
  for (const OptionRow& row : option_rows()) {
    if (is_listed(row)) flags += fmt::format("{}--{}", flags.empty() ? "" : " ", row.name);
  }
  return flags;
}

std::string flags_with_value() {
  std::string flags;
  for (const OptionRow& row : option_rows()) {
    if (row.takes_value()) flags += (flags.empty() ? "" : "|") + spellings(row);
  }
  return flags;
}

// Offers commands for the first word too (compopt's default does not): PROGRAM may be on PATH.
constexpr std::string_view kBash = R"(# bash completion for muster
_muster() {{
    local cur prev word i program=0
    cur="${{COMP_WORDS[COMP_CWORD]}}"
    prev="${{COMP_WORDS[COMP_CWORD-1]}}"
    [[ $cur == "=" ]] && cur=""
    [[ $prev == "=" ]] && prev="${{COMP_WORDS[COMP_CWORD-2]}}"
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${{COMP_WORDS[i]}}"
        case "$word" in
            {with_value})
                [[ ${{COMP_WORDS[i+1]}} == "=" ]] && ((i++))
                ((i++)) ;;
            --) ((i + 1 < COMP_CWORD)) && program=1; break ;;
            -*) ;;
            *) program=1; break ;;
        esac
    done
    if ((program)); then
        COMPREPLY=($(compgen -f -- "$cur"))
        return
    fi
    case "$prev" in
{cases}    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "{flags}" -- "$cur"))
    else
        COMPREPLY=($(compgen -f -- "$cur") $(compgen -c -- "$cur"))
    fi
}}
complete -o filenames -F _muster muster
)";

std::string bash_case(const OptionRow& row) {
  switch (value_kind(row)) {
    case ValueKind::none:
      return {};
    case ValueKind::words:
      return fmt::format("        {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n",
                         spellings(row), fmt::join(words_to_type(row), " "));
    case ValueKind::folder:
    case ValueKind::file:
      return fmt::format("        {}) COMPREPLY=($(compgen -{} -- \"$cur\")); return ;;\n",
                         spellings(row), value_kind(row) == ValueKind::file ? 'f' : 'd');
    case ValueKind::free:
      return fmt::format("        {}) COMPREPLY=(); return ;;\n", spellings(row));
  }
  return {};
}

std::string bash_script() {
  std::string cases;
  for (const OptionRow& row : option_rows())
    cases += bash_case(row);
  return fmt::format(kBash, fmt::arg("with_value", flags_with_value()), fmt::arg("cases", cases),
                     fmt::arg("flags", all_flags()));
}

// Escapes brackets and colons, special in _arguments' specs, and quotes, for single quotes.
std::string zsh_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\'') {
      escaped += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      escaped += '\\';
      escaped += c;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string zsh_action(const OptionRow& row) {
  switch (value_kind(row)) {
    case ValueKind::words:
      return fmt::format("({})", fmt::join(words_to_type(row), " "));
    case ValueKind::folder:
      return "_files -/";
    case ValueKind::file:
      return "_files";
    default:
      return " ";
  }
}

std::string zsh_spec(std::string_view flag, const OptionRow& row) {
  if (!row.takes_value()) return fmt::format("    '{}[{}]' \\\n", flag, zsh_text(row.help));
  return fmt::format("    '{}{}[{}]:{}:{}' \\\n", flag, flag.starts_with("--") ? "=" : "+",
                     zsh_text(row.help), zsh_text(row.value), zsh_action(row));
}

std::string zsh_script() {
  std::string script = "#compdef muster\n\n_muster() {\n  _arguments -S -A '-*' \\\n";
  for (const OptionRow& row : option_rows()) {
    if (!is_listed(row)) continue;
    script += zsh_spec(fmt::format("--{}", row.name), row);
    if (row.letter != 0) script += zsh_spec(fmt::format("-{}", row.letter), row);
  }
  script += "    '1:program:_muster_program' \\\n    '*::arguments:_default'\n}\n\n";
  script +=
      "_muster_program() {\n  _alternative 'files:file:_files' "
      "'commands:command:_command_names -e'\n}\n\n";
  return script +
         "if [ \"$funcstack[1]\" = \"_muster\" ]; then\n  _muster \"$@\"\nelse\n"
         "  compdef _muster muster\nfi\n";
}

std::string tcsh_words_after(std::string_view flag, const OptionRow& row) {
  switch (value_kind(row)) {
    case ValueKind::words:
      return fmt::format(" \\\n  'n/{}/({})/'", flag, fmt::join(words_to_type(row), " "));
    case ValueKind::folder:
      return fmt::format(" \\\n  'n/{}/d/'", flag);
    case ValueKind::file:
      return fmt::format(" \\\n  'n/{}/f/'", flag);
    case ValueKind::free:
      return fmt::format(" \\\n  'n/{}/x:{}/'", flag, row.name);
    case ValueKind::none:
      break;
  }
  return {};
}

std::string tcsh_script() {
  std::string flags;
  std::string values;
  for (const OptionRow& row : option_rows()) {
    if (!is_listed(row)) continue;
    flags += fmt::format("{}{}", flags.empty() ? "" : " ", row.name);
    values += tcsh_words_after(fmt::format("--{}", row.name), row);
    if (row.letter != 0) values += tcsh_words_after(fmt::format("-{}", row.letter), row);
  }
  return fmt::format("complete muster{} \\\n  'c/--/({})/' \\\n  'p/*/f/'\n", values, flags);
}

}  // namespace

std::optional<std::string> completion_script(std::string_view shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "tcsh") return tcsh_script();
  return std::nullopt;
}

}  // namespace muster

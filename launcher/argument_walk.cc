#include "launcher/argument_walk.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "launcher/option_table.h"
#include "launcher/values/values.h"

namespace muster {
namespace {

// True for -1, -1.5, -.5, as in argparse.
bool is_negative_number(std::string_view token) {
  if (token.size() < 2 || token.front() != '-') return false;
  const std::string_view body = token.substr(1);
  const std::size_t dot = body.find('.');
  return body.find_first_not_of("0123456789.") == std::string_view::npos && body.back() != '.' &&
         (dot == std::string_view::npos || body.find('.', dot + 1) == std::string_view::npos);
}

bool looks_like_flag(std::string_view token) {
  return token.size() > 1 && token.front() == '-';
}

bool can_be_value(std::string_view token) {
  return !looks_like_flag(token) || is_negative_number(token) ||
         token.find(' ') != std::string_view::npos;
}

// Our name for a flag of other launchers, or empty.
std::string_view habit(std::string_view name) {
  return name == "n" || name == "np" || name == "nproc_per_host" ? "nproc-per-node" : "";
}

// True up to two edits per five characters; a more distant guess would not help.
bool is_close(const Nearest& guess, std::string_view name) {
  return guess.distance * 5 <= std::max(name.size(), guess.word.size()) * 2;
}

tl::unexpected<Error> unknown_flag(std::string_view token) {
  std::string_view name = token.substr(0, token.find('='));
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string normalised(name);
  std::replace(normalised.begin(), normalised.end(), '_', '-');
  std::vector<std::string_view> names;
  for (const OptionRow& row : option_rows())
    names.push_back(row.name);
  std::string_view guess = habit(name);
  if (guess.empty()) {
    const Nearest found = nearest(normalised, names);
    if (is_close(found, normalised)) guess = found.word;
  }
  const std::string hint =
      guess.empty() ? "" : fmt::format(" the nearest known one is --{},", guess);
  return fail(ExitCode::usage, fmt::format("unknown flag {};{} muster --help lists all",
                                           shown(token.substr(0, token.find('='))), hint));
}

std::vector<const OptionRow*> rows_beginning_with(std::string_view prefix, bool own) {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : option_rows()) {
    if (row.name.starts_with(prefix) && row.traits.own == own) rows.push_back(&row);
  }
  return rows;
}

Result<const OptionRow*> resolve_long(std::string_view token) {
  std::string name(token.substr(
      2, token.find('=') == std::string_view::npos ? std::string_view::npos : token.find('=') - 2));
  std::replace(name.begin(), name.end(), '_', '-');
  if (const OptionRow* const row = find_option(name)) return row;
  if (name.empty()) return unknown_flag(token);
  std::vector<const OptionRow*> rows = rows_beginning_with(name, false);
  if (rows.empty()) rows = rows_beginning_with(name, true);
  if (rows.empty()) return unknown_flag(token);
  if (rows.size() == 1) return rows.front();
  std::string names;
  for (const OptionRow* row : rows)
    names += fmt::format("{}--{}", names.empty() ? "" : ", ", row->name);
  return fail(ExitCode::usage, fmt::format("--{} is ambiguous; it could be {}", name, names));
}

const OptionRow* row_with_letter(char letter) {
  const auto rows = option_rows();
  const auto found = std::ranges::find(rows, letter, &OptionRow::letter);
  return found == rows.end() ? nullptr : &*found;
}

// The length in bytes of a dash other than '-' at the start of `token`, or 0: word processors and
// web pages replace one or two '-' (by U+2010 to U+2015 or the minus sign U+2212).
std::size_t foreign_dash(std::string_view token) {
  if (token.size() < 3 || token.front() != '\xe2') return 0;
  const bool dash = token[1] == '\x80' && token[2] >= '\x90' && token[2] <= '\x95';
  return dash || token.substr(1, 2) == "\x88\x92" ? 3 : 0;
}

tl::unexpected<Error> foreign_flag(const std::string& token) {
  std::string_view rest = token;
  while (const std::size_t size = rest.starts_with('-') ? 1 : foreign_dash(rest))
    rest.remove_prefix(size);
  const bool letter =
      rest.size() < 2 || rest[1] == '=' ||
      (row_with_letter(rest.front()) != nullptr && !resolve_long("--" + std::string(rest)));
  return fail(ExitCode::usage,
              fmt::format("{} begins with a dash character that is not '-'; type {}", shown(token),
                          shown((letter ? "-" : "--") + std::string(rest))));
}

// Makes one pass from left to right; position_ is the token after the current one.
class ArgumentWalk {
 public:
  explicit ArgumentWalk(std::span<const std::string> args) : args_(args) {}

  Result<WalkedArguments> run() {
    while (position_ < args_.size() && walked_.information.empty()) {
      const std::string& token = args_[position_];
      if (foreign_dash(token) != 0) return foreign_flag(token);
      if (token == "--" || !looks_like_flag(token)) break;
      ++position_;
      const Result<void> taken = token.starts_with("--") ? take_long(token) : take_cluster(token);
      if (!taken) return tl::unexpected(taken.error());
    }
    if (walked_.information.empty()) take_rest();
    return std::move(walked_);
  }

 private:
  Result<void> take_long(std::string_view token) {
    const Result<const OptionRow*> row = resolve_long(token);
    if (!row) return tl::unexpected(row.error());
    const std::size_t equals = token.find('=');
    if (equals == std::string_view::npos) return take(**row, std::nullopt);
    return take(**row, token.substr(equals + 1));
  }

  // Takes "-mt3": flags without a value, then perhaps one whose value is the rest or next token.
  Result<void> take_cluster(std::string_view token) {
    for (std::size_t i = 1; i < token.size(); ++i) {
      const OptionRow* row = row_with_letter(token[i]);
      if (row == nullptr) return unknown_flag(token);
      std::string_view attached = token.substr(i + 1);
      if (row->takes_value() || attached.starts_with('=')) {
        const bool equals = attached.starts_with('=');
        if (equals) attached.remove_prefix(1);
        return take(*row, equals || !attached.empty() ? std::optional(attached) : std::nullopt);
      }
      if (const Result<void> taken = take(*row, std::nullopt); !taken) return taken;
    }
    return {};
  }

  Result<void> take(const OptionRow& row, std::optional<std::string_view> attached) {
    if (!row.takes_value() && !row.may_have_value() && attached) {
      return fail(ExitCode::usage,
                  fmt::format("--{} takes no value, but got {}; leave out the value", row.name,
                              shown(*attached)));
    }
    if (row.takes_value() && !attached) {
      if (position_ == args_.size() || !can_be_value(args_[position_])) return missing_value(row);
      attached = args_[position_++];
    }
    const std::string_view without = row.may_have_value() ? "" : "1";
    walked_.values[std::string(row.name)] = attached.value_or(without);
    if (row.traits.information) walked_.information = row.name;
    return {};
  }

  Result<void> missing_value(const OptionRow& row) const {
    if (position_ == args_.size()) {
      return fail(ExitCode::usage,
                  fmt::format("--{} needs a value: --{} {}", row.name, row.name, row.value));
    }
    return fail(ExitCode::usage,
                fmt::format("--{} needs a value, but {} follows; write --{}=VALUE for a value that "
                            "begins with a dash",
                            row.name, shown(args_[position_]), row.name));
  }

  void drop_separator() {
    walked_.separated = position_ < args_.size() && args_[position_] == "--";
    if (walked_.separated) ++position_;
  }

  void take_rest() {
    drop_separator();
    if (position_ == args_.size()) return;
    walked_.rest.push_back(args_[position_++]);
    if (!walked_.separated) drop_separator();
    const auto tail = args_.subspan(position_);
    walked_.rest.insert(walked_.rest.end(), tail.begin(), tail.end());
  }

  std::span<const std::string> args_;
  std::size_t position_ = 0;
  WalkedArguments walked_;
};

}  // namespace

Result<WalkedArguments> walk_arguments(std::span<const std::string> args) {
  return ArgumentWalk(args).run();
}

}  // namespace muster

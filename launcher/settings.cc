#include "launcher/settings.h"

#include <algorithm>
#include <limits>

#include "launcher/option_table.h"

namespace muster {
namespace {

// The largest edit distance of a misspelled variable; others belong to other software.
constexpr std::size_t kMisspelledDistance = 2;

}  // namespace

Settings::Settings(const std::map<std::string, std::string>& values,
                   const std::map<std::string, std::string>& environment)
    : values_(values), environment_(environment) {
  warn_of_unknown_variables();
}

std::optional<Setting> Settings::find(std::string_view name) const {
  if (const auto given = values_.find(std::string(name)); given != values_.end()) {
    return Setting{given->second, fmt::format("--{} {}", name, shown(given->second)), true};
  }
  const OptionRow& row = option_row(name);
  const std::optional<std::string> value =
      row.traits.reads_variable ? variable(row.variable()) : std::nullopt;
  if (value) return Setting{*value, fmt::format("{}={}", row.variable(), shown(*value)), false};
  const auto fact = facts_.find(name);
  return fact == facts_.end() ? std::nullopt : std::optional(fact->second);
}

bool Settings::on_command_line(std::string_view name) const {
  return values_.contains(std::string(name));
}

bool Settings::on(std::string_view name) {
  const OptionRow& row = option_row(name);
  const std::optional<std::string> value =
      row.traits.reads_variable ? variable(row.variable()) : std::nullopt;
  if (!value) return on_command_line(name);
  const Parsed<int> number = parse_int(*value, std::numeric_limits<int>::min());
  if (!number) {
    refuse(fmt::format("{}={}: not a whole number; give 1 (on) or 0 (off), or unset it",
                       row.variable(), shown(*value)));
    return false;
  }
  return on_command_line(name) || *number != 0;
}

std::string Settings::text(std::string_view name, std::string fallback) const {
  const std::optional<Setting> setting = find(name);
  return setting ? setting->value : std::move(fallback);
}

std::optional<std::string> Settings::non_blank(std::string_view name) const {
  const std::optional<Setting> setting = find(name);
  if (!setting || trim(setting->value).empty()) return std::nullopt;
  return setting->value;
}

std::string Settings::choice(std::string_view name) {
  std::string word;
  read(name, word, [&](const std::string& text) {
    return parse_choice(text, words_to_type(option_row(name)));
  });
  return word;
}

std::optional<std::string> Settings::variable(std::string_view name) const {
  return lookup(environment_, name);
}

void Settings::add_fact(std::string_view name, int value, std::string shown) {
  facts_.insert_or_assign(std::string(name),
                          Setting{std::to_string(value), std::move(shown), false});
}

void Settings::refuse(std::string message) {
  if (!error_) error_ = Error{ExitCode::usage, std::move(message)};
}

std::string Settings::shown_as(std::string_view name) const {
  const std::optional<Setting> setting = find(name);
  return setting ? setting->shown : fmt::format("--{}", name);
}

void Settings::refuse_value(std::string_view name, std::string_view phrase) {
  refuse(fmt::format("{}: {}", shown_as(name), phrase));
}

void Settings::warn_of_value(std::string_view name, std::string_view phrase) {
  warn(fmt::format("{}: {}", shown_as(name), phrase));
}

void Settings::warn_without_effect(std::string_view name, std::string_view why) {
  if (non_blank(name)) warn(fmt::format("{} has no effect {}", shown_as(name), why));
}

void Settings::warn_of_unknown_variables() {
  std::vector<std::string> variables;
  for (const OptionRow& row : option_rows())
    variables.push_back(row.variable());
  const std::vector<std::string_view> known(variables.begin(), variables.end());
  for (auto it = environment_.lower_bound("PET_");
       it != environment_.end() && it->first.starts_with("PET_"); ++it) {
    const std::string& name = it->first;
    const auto row = std::ranges::find(option_rows(), name, &OptionRow::variable);
    const Nearest guess = nearest(name, known);
    if (row != option_rows().end()) {
      if (row->traits.reads_variable) continue;
      warn(fmt::format("{} is ignored: --{} is read from the command line only", name, row->name));
    } else if (guess.distance <= kMisspelledDistance) {
      warn(fmt::format("{} belongs to no flag and is ignored; did you mean {}?", name, guess.word));
    }
  }
}

}  // namespace muster

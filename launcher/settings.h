// The value of every flag: from the command line, else its PET_* variable, else an engine's fact
// (engine_settings.h). An empty variable counts as set. The variable of a flag without value, a
// whole number, is checked even if the flag is given; that of any other flag is then ignored.
// Keeps the first complaint, which ends the parse, so that the code that reads single flags needs
// no branches. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/values/values.h"
#include "rendezvous/base/error.h"

namespace muster {

struct Setting {
  std::string value;
  std::string shown;  // "--nnodes 2:x" or "PET_NNODES=2:x", for messages.
  bool from_command_line = false;
};

class Settings {
 public:
  // `values`: by name without dashes. REQUIRES: both outlive this object.
  Settings(const std::map<std::string, std::string>& values,
           const std::map<std::string, std::string>& environment);

  std::optional<Setting> find(std::string_view name) const;
  bool given(std::string_view name) const { return find(name).has_value(); }
  bool on_command_line(std::string_view name) const;

  // True if this flag, which takes no value, is set.
  bool on(std::string_view name);

  // The value as typed, or `fallback`.
  std::string text(std::string_view name, std::string fallback) const;

  std::optional<std::string> non_blank(std::string_view name) const;

  // If the flag is set, stores parse(value) in `target`, or its problem as a complaint.
  template <typename T, typename Parser>
  void read(std::string_view name, T& target, Parser parse) {
    const std::optional<Setting> setting = find(name);
    if (!setting) return;
    auto parsed = parse(setting->value);
    if (!parsed) {
      refuse_value(name, parsed.error());
    } else {
      target = *std::move(parsed);
    }
  }

  // The value, which must be one of the words in the option table; empty: not set.
  std::string choice(std::string_view name);

  // The environment variable with this full name.
  std::optional<std::string> variable(std::string_view name) const;

  // Adds an engine's value for a flag. `shown`: "SLURM_NNODES=2", for messages.
  void add_fact(std::string_view name, int value, std::string shown);

  void refuse(std::string message);
  void warn(std::string message) { warnings_.push_back(std::move(message)); }
  // "--nnodes 2:x", or "--nnodes" for a flag that is not set.
  std::string shown_as(std::string_view name) const;
  // "--nnodes 2:x: PHRASE"
  void refuse_value(std::string_view name, std::string_view phrase);
  void warn_of_value(std::string_view name, std::string_view phrase);
  // No-op if the value is blank.
  void warn_without_effect(std::string_view name, std::string_view why);

  const std::optional<Error>& error() const { return error_; }
  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  void warn_of_unknown_variables();

  const std::map<std::string, std::string>& values_;
  const std::map<std::string, std::string>& environment_;
  std::map<std::string, Setting, std::less<>> facts_;
  std::optional<Error> error_;  // The first complaint.
  std::vector<std::string> warnings_;
};

}  // namespace muster

// Helpers for the tests of the command line: they parse flags with a made-up environment and return
// the spec, the complaint or the warnings.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "launcher/options.h"

namespace muster {

using Words = std::vector<std::string>;

// Parses with no readable files.
inline Result<ParsedCommandLine> outcome_of(const Words& args, const Environment& environment) {
  return parse_command_line(args, environment, "muster 1.2.3 (abc)",
                            [](std::string_view /*path*/) { return std::string(); });
}

inline ParsedCommandLine parsed(const Words& args, const Environment& environment = {}) {
  Result<ParsedCommandLine> result = outcome_of(args, environment);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result.value_or(ParsedCommandLine{});
}

inline Words with_program(Words flags) {
  flags.push_back("x.py");
  return flags;
}

// Returns the spec of these flags and the program x.py; any warning fails the test.
inline LaunchSpec spec_of(const Words& flags, const Environment& environment = {}) {
  const ParsedCommandLine line = parsed(with_program(flags), environment);
  EXPECT_EQ(line.warnings, Words{});
  EXPECT_TRUE(std::holds_alternative<LaunchSpec>(line.what));
  return std::holds_alternative<LaunchSpec>(line.what) ? std::get<LaunchSpec>(line.what)
                                                       : LaunchSpec{};
}

inline LaunchSpec spec_despite_warnings(const Words& flags, const Environment& environment = {}) {
  return std::get<LaunchSpec>(parsed(with_program(flags), environment).what);
}

inline Words warnings_of(const Words& flags, const Environment& environment = {}) {
  return parsed(with_program(flags), environment).warnings;
}

inline std::string complaint_about_line(const Words& args, const Environment& environment = {}) {
  const Result<ParsedCommandLine> result = outcome_of(args, environment);
  if (result) return "no complaint";
  EXPECT_EQ(result.error().code, ExitCode::usage);
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().message;
}

inline std::string complaint_about(const Words& flags, const Environment& environment = {}) {
  return complaint_about_line(with_program(flags), environment);
}

}  // namespace muster

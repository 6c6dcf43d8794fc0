// The version of muster, made at build time from the project's version and the git commit
// (cmake/version.cmake).
#pragma once

#include <string_view>

namespace muster {

// "muster 0.1.0 (1a2b3c4d5e6f)", with "-dirty" after the hash for uncommitted changes.
std::string_view version_line();

}  // namespace muster

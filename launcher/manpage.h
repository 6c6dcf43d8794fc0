// The manual page muster(1), in roff's man macros, written from the option table and the list of
// exit codes. Pure.
#pragma once

#include <string>

namespace muster {

std::string man_page();

}  // namespace muster

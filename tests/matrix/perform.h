// Performs one case on a group through the public calls, as a program would, and reports what was
// wrong. Owns the memory of the case until it is compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "muster/process_group.h"
#include "tests/matrix/case.h"

namespace muster::matrix {

// Collective over the group, which has what.members members. Returns nullopt if all results on this
// rank are as computed. Throws what the operations throw.
std::optional<std::string> fault_of(ProcessGroup group, const Case& what, uint64_t seed,
                                    const Setting& setting);

}  // namespace muster::matrix

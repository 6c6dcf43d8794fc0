// A rank's digest from what its ring says: the step between the reader, which trusts nothing in a
// ring, and the detector, which may run on another node and never sees one. Pure.
#pragma once

#include <vector>

#include "agent/hang/digest.h"
#include "agent/hang/ring_reader.h"

namespace muster::hang {

// `calls`: the last ones that were recorded, in order.
RankDigest digest_of(int rank, const RecordedState& state, const std::vector<RecordedCall>& calls,
                     Instant now);

}  // namespace muster::hang

// Makes a rank's digest from its ring: the step between the reader, which trusts nothing in a ring,
// and the detector, which may run on another node. Pure.
#pragma once

#include <vector>

#include "agent/hang/digest.h"
#include "agent/hang/ring_reader.h"

namespace muster::hang {

// `calls`: the last recorded ones, in order.
RankDigest digest_of(int rank, const RecordedState& state, const std::vector<RecordedCall>& calls,
                     Instant now);

}  // namespace muster::hang

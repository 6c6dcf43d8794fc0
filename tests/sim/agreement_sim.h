// Ranks of a simulated job agree, in the world and in a group, while ranks are killed and
// connections between nodes break at random moments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::agreesim {

struct Tally {
  uint64_t decisions = 0;  // Verdicts that ranks got.
  uint64_t deaths = 0;     // Ranks killed.
};

// Runs the world of this seed. Returns the promise that was broken: two ranks, one of which may
// have died since, got different verdicts; a verdict is not that of its voters' values; a rank that
// lives is no voter; ranks wait for ever.
std::optional<std::string> broken_promise(uint64_t seed, Tally& tally);

}  // namespace muster::agreesim

// Another node may send any bytes. Checked: decoded arrivals are within their bounds and survive
// another round trip, and stragglers found from them have sensible values.
#include <cmath>

#include "agent/hang/arrivals.h"
#include "agent/hang/stragglers.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

const Instant kTold{std::chrono::seconds(100'000'000)};

void check_arrivals(std::string_view input) {
  const auto arrivals = hang::decode_arrivals(input, kTold);
  if (!arrivals) return;
  hang::StragglerTable table;
  int node_rank = 0;
  for (const hang::Arrivals& one : *arrivals) {
    CHECK(one.ranks >= 1 && one.ranks <= one.size && one.mean <= one.last && one.last <= kTold);
    table.take(++node_rank % 3, one, std::chrono::milliseconds(1));
  }
  const std::string again = hang::encode_arrivals(*arrivals, kTold, input.size());
  CHECK(hang::decode_arrivals(again, kTold) == arrivals);
  const auto found = table.report(kTold + std::chrono::seconds(60));
  for (const hang::Straggler& one : found ? found->ranks : std::vector<hang::Straggler>())
    CHECK(std::isfinite(one.share) && one.waited >= Duration(0) && one.rank >= 0);
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::check_arrivals(muster::fuzz::as_text(data, size));
  return 0;
}

// Any peer may connect to the rendezvous' port. Checked: more bytes do not change a caller's class,
// except from store client to unknown; an unknown peer's description is one short printable line.
#include <cctype>
#include <string>

#include "rendezvous/net/first_bytes.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

constexpr std::string_view kAgentMagic = "MSTR";
constexpr size_t kDescriptionMax = 400;

void run(std::string_view input) {
  Caller known = Caller::unknown_yet;
  for (size_t size = 0; size <= input.size() && size <= 64; ++size) {
    const Caller caller = who_calls(input.substr(0, size), kAgentMagic);
    const bool feigned = known == Caller::store_client && caller == Caller::stranger;
    CHECK(known == Caller::unknown_yet || caller == known || feigned);
    known = caller;
  }
  const std::string description = describe_stranger(input);
  CHECK(!description.empty() && description.size() <= kDescriptionMax);
  for (const char c : description)
    CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::run(muster::fuzz::as_text(data, size));
  return 0;
}

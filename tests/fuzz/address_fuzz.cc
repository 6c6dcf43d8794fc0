// Addresses and networks as users and agents write them. Checked: parsed values survive another
// round trip as text, and a network contains the address in its name.
#include <optional>

#include "rendezvous/net/address.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

void run(std::string_view input) {
  if (const auto address = IpAddress::parse(input)) {
    CHECK(IpAddress::parse(address->to_string()) == address);
    const std::optional<Network> alone = Network::parse(input);
    CHECK(!alone || alone->contains(*address));
  }
  if (const auto address = SocketAddress::parse(input))
    CHECK(SocketAddress::parse(address->to_string()) == address);
  if (const auto network = Network::parse(input))
    CHECK(Network::parse(network->to_string()) == network);
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::run(muster::fuzz::as_text(data, size));
  return 0;
}

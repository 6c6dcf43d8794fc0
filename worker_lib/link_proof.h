// Mutual authentication of two connected ranks: each proves that it knows the job's secret by a MAC
// over its role, the purpose of the connection, and a nonce from either side. The secret is never
// sent, and a proof is useless on another connection, for another rank or purpose, or in the other
// role. Later data is only as safe as the network: an attacker who can change packets can change
// it. Pure.
//
// Messages: nonce and purpose (dialler), nonce and proof (listener), proof (dialler).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/mac.h"

namespace muster::worker {

using LinkNonce = std::array<uint8_t, 16>;

struct LinkTerms {
  std::string purpose;  // Includes which ranks; equal at both ends.
  LinkNonce dialler{};
  LinkNonce listener{};
};

inline Mac dialler_proof(std::string_view secret, const LinkTerms& terms) {
  return mac_of(secret, {"muster link dialler 1", terms.purpose, raw_bytes(terms.dialler),
                         raw_bytes(terms.listener)});
}

inline Mac listener_proof(std::string_view secret, const LinkTerms& terms) {
  return mac_of(secret, {"muster link listener 1", terms.purpose, raw_bytes(terms.dialler),
                         raw_bytes(terms.listener)});
}

}  // namespace muster::worker

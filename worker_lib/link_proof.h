// How two ranks show each other, where one connects to the other, that both belong to the job: each
// proves that it knows the job's secret, by a MAC over its end, what the connection is for, and a
// nonce of either side. The secret is never sent, and a proof is useless on another connection, for
// another rank or purpose, and for the other end. What follows on the connection is as safe as the
// network: who can change packets on their way can change it. Pure.
//
// The dialler sends a nonce and what it wants, the listener a nonce and its proof, the dialler its
// own proof.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/mac.h"

namespace muster::worker {

using LinkNonce = std::array<uint8_t, 16>;

struct LinkTerms {
  std::string purpose;  // Also between whom; the same at both ends.
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

// The messages between the agents of one job: datagrams that the rendezvous carries unread.
// The first byte is the kind. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

enum class Letter : uint8_t {
  digest = 1,       // hang/node_digest.h, to the node that runs the hang detector.
  watch = 2,        // The ranks whose processes the detector wants sampled.
  finding = 3,      // A finding of the detector, for all nodes.
  question = 4,     // job/peers.h
  answer = 5,       // job/peers.h
  last_digest = 6,  // A node's digest as it begins to stop its workers, or when all have ended.
  arrivals = 7,     // hang/arrivals.h, to the node that runs the hang detector.
  clock = 8,        // The wall clock of that node: nanoseconds since 1970.
  heard = 9,        // The answer to a last digest: ranks whose last calls have been compared.
  warning = 10,     // The job's end is near: a signal's number, and whether an engine sends it.
  keys = 11,        // What the store's clients wait for, from its host to the detector's node.
};

inline std::string letter_of(Letter kind, std::string_view content) {
  std::string payload(1, static_cast<char>(kind));
  payload += content;
  return payload;
}

}  // namespace muster

// What agents of one job say to each other, as datagrams over the rendezvous, which it does not
// read: the first byte of each tells the kind. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

enum class Letter : uint8_t {
  digest = 1,       // hang/node_digest.h, to the node that runs the hang detector.
  watch = 2,        // The ranks whose processes the detector wants looked at.
  finding = 3,      // What the detector has found, for all nodes.
  question = 4,     // job/peers.h
  answer = 5,       // Likewise.
  last_digest = 6,  // A digest that a node sends as it begins to stop its workers.
  arrivals = 7,     // hang/arrivals.h, to the node that runs the hang detector.
  clock = 8,        // What that node's wall clock shows: nanoseconds since 1970.
  heard = 9,        // The answer to a last digest: the ranks whose last calls are compared.
  warning = 10,     // The job's end is near: a signal's number, and whether an engine sends it.
};

inline std::string letter_of(Letter kind, std::string_view content) {
  std::string payload(1, static_cast<char>(kind));
  payload += content;
  return payload;
}

}  // namespace muster

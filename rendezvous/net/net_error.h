// Why a look-up or a connection failed, in the few kinds that callers treat differently, with the
// sentence for people. A name that does not exist yet (a pod that is still being made) and a peer
// that does not listen yet are worth another try until the join time-out; the rest may be too, but
// never is news.
#pragma once

#include <string>

#include <tl/expected.hpp>

#include "rendezvous/base/error.h"

namespace muster {

enum class NetFailure {
  name_unknown,  // the resolver says that there is no such name, or none with an address
  resolver,      // the resolver failed or did not answer in time
  refused,       // every address answered, and at least one refused the connection
  timed_out,     // the deadline came before any answer
  exhausted,     // this process, or its machine, has no descriptor left
  unreachable,   // everything else: no route, no such family, not permitted
};

struct NetError {
  NetFailure failure = NetFailure::unreachable;
  std::string message;  // as Error's: what was tried, on what, and what became of each address

  bool name_is_missing() const {
    return failure == NetFailure::name_unknown || failure == NetFailure::resolver;
  }
  Error error() const { return {ExitCode::rendezvous, message}; }

  friend bool operator==(const NetError&, const NetError&) = default;
};

template <typename T>
using NetResult = tl::expected<T, NetError>;

}  // namespace muster

// The failure of a look-up or a connection: the kinds that callers treat differently, and a message
// for people. A name that does not exist yet (a pod that is being created) and a peer that does not
// listen yet are worth retrying until the join time-out. The others may be, but must be reported.
#pragma once

#include <string>

#include <tl/expected.hpp>

#include "rendezvous/base/error.h"

namespace muster {

enum class NetFailure {
  name_unknown,  // the resolver says that there is no such name, or none with an address
  resolver,      // the resolver failed or did not answer in time
  refused,       // at least one address refused the connection
  timed_out,     // no address refused, and at least one did not answer before the deadline
  exhausted,     // this process or its machine has no descriptor left
  unreachable,   // all else: no route, no such family, not permitted
};

struct NetError {
  NetFailure failure = NetFailure::unreachable;
  std::string message;  // as in Error: the action, its target, and the outcome for each address
  bool refused_by_all = false;  // every address refused

  bool name_is_missing() const {
    return failure == NetFailure::name_unknown || failure == NetFailure::resolver;
  }
  Error error() const { return {ExitCode::rendezvous, message}; }

  friend bool operator==(const NetError&, const NetError&) = default;
};

template <typename T>
using NetResult = tl::expected<T, NetError>;

}  // namespace muster

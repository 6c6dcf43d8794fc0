#include <gtest/gtest.h>

#include "rendezvous/net/resolve.h"

namespace muster {
namespace {

// A missing name may appear at any time; even a node that must not host waits for it.
TEST(NetError, MeansAMissingNameOnlyIfTheLookUpFails) {
  for (const NetFailure failure : {NetFailure::name_unknown, NetFailure::resolver})
    EXPECT_TRUE((NetError{failure, "x"}.name_is_missing())) << static_cast<int>(failure);
  for (const NetFailure failure :
       {NetFailure::refused, NetFailure::timed_out, NetFailure::exhausted, NetFailure::unreachable})
    EXPECT_FALSE((NetError{failure, "x"}.name_is_missing())) << static_cast<int>(failure);
}

TEST(NetError, MapsEveryKindToTheRendezvousExitCode) {
  for (const NetFailure failure : {NetFailure::name_unknown, NetFailure::exhausted})
    EXPECT_EQ((NetError{failure, "cannot reach node1"}.error()),
              (Error{ExitCode::rendezvous, "cannot reach node1"}));
}

}  // namespace
}  // namespace muster

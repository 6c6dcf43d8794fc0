// In place of the Gloo backend where this library was built without it.
#ifndef MUSTER_HAVE_GLOO

#include "muster/init.h"
#include "worker_lib/backends/backend.h"

namespace muster {

namespace {

constexpr const char* kNoGloo =
    "this build of muster has no Gloo; install libgloo-dev and configure with "
    "-DMUSTER_WITH_GLOO=ON, "
    "or use the cpu backend";

}  // namespace

namespace worker {

Outcome<std::unique_ptr<GroupBackend>> make_gloo_backend(GroupSetup) {
  return failed(ErrorCode::backend, kNoGloo);
}

}  // namespace worker

bool is_gloo_available(std::string* why) {
  if (why != nullptr) *why = kNoGloo;
  return false;
}

}  // namespace muster

#endif

// The Gloo backend's shared library, libmuster_gloo.so, loaded when a group asks for it, so that
// libmuster.so depends neither on Gloo nor on its dependencies (hiredis, ibverbs). It is installed
// beside libmuster.so. Both must come from one build, since they exchange C++ objects.
#pragma once

#include <memory>
#include <string>

#include "worker_lib/backends/backend.h"

namespace muster::worker {

using GlooBackendMaker = Outcome<std::unique_ptr<GroupBackend>>(GroupSetup setup);

// Sets `*why` if not.
bool can_open_gloo(std::string* why);

inline constexpr const char* kGlooModuleEntry = "muster_gloo_module";

}  // namespace muster::worker

// The only symbol that libmuster_gloo.so exports.
extern "C" __attribute__((visibility("default"))) muster::worker::GlooBackendMaker*
muster_gloo_module();

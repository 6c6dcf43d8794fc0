// The Gloo backend is a shared library of its own, libmuster_gloo.so, which is opened when a group
// asks for it: libmuster.so needs neither Gloo nor what Gloo needs (hiredis, ibverbs). It is
// installed beside libmuster.so. Both must be of one build, since they exchange C++ objects.
#pragma once

#include <memory>

#include "worker_lib/backends/backend.h"

namespace muster::worker {

using GlooBackendMaker = Outcome<std::unique_ptr<GroupBackend>>(GroupSetup setup);

inline constexpr const char* kGlooModuleEntry = "muster_gloo_module";

}  // namespace muster::worker

// What libmuster_gloo.so exports.
extern "C" __attribute__((visibility("default"))) muster::worker::GlooBackendMaker*
muster_gloo_module();

// A backend in a library of its own (backend_module.h). Its calls are compared here, before each
// collective, and each message that has been begun has a thread that waits for it in the module.
#pragma once

#include <memory>
#include <string>

#include "worker_lib/backends/backend.h"
#include "worker_lib/backends/backend_module.h"

namespace muster::worker {

// Returns why the table cannot be used: "it was built for version 2 of ..."; empty: it can.
std::string refusal_of(const muster_module_head& head);

// `topic`: the backend's name, for the keys in the store. REQUIRES: the head is not refused.
Outcome<std::unique_ptr<GroupBackend>> make_module_backend(const muster_module& module,
                                                           const std::string& topic,
                                                           GroupSetup setup);

}  // namespace muster::worker

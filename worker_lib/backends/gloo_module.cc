#include "worker_lib/backends/gloo_module.h"

#include <fmt/format.h>

#include "worker_lib/backends/module_backend.h"
#include "worker_lib/backends/opened_library.h"

namespace muster::worker {
namespace {

Outcome<const muster_module*> open_gloo_module() {
  const Outcome<OpenedLibrary> library = OpenedLibrary::open(
      {.symbol = MUSTER_GLOO_ENTRY, .variable = "MUSTER_GLOO_LIBRARY", .file = MUSTER_GLOO_FILE});
  if (!library) {
    return failed(ErrorCode::backend,
                  fmt::format("the gloo backend cannot be opened: {}; install libgloo-dev, build "
                              "muster with -DMUSTER_WITH_GLOO=ON and install {} beside "
                              "libmuster.so, or use the cpu backend",
                              library.error().message, MUSTER_GLOO_FILE));
  }
  const decltype(&muster_gloo_module) entry = library->find(MUSTER_GLOO_ENTRY);
  const muster_module* const module = entry();
  const std::string refusal = refusal_of(module->head);
  if (refusal.empty()) return module;
  return failed(ErrorCode::backend,
                fmt::format("the gloo backend cannot be opened: {} {}; install the {} of this "
                            "muster, or use the cpu backend",
                            library->path(), refusal, MUSTER_GLOO_FILE));
}

}  // namespace

Outcome<std::unique_ptr<GroupBackend>> make_gloo_backend(GroupSetup setup) {
  return open_gloo_module().and_then([&](const muster_module* module) {
    return make_module_backend(*module, "gloo", std::move(setup));
  });
}

bool can_open_gloo(std::string* why) {
  const auto gloo = open_gloo_module();
  if (!gloo) *why = gloo.error().message;
  return gloo.has_value();
}

}  // namespace muster::worker

#include "worker_lib/backends/gloo_module.h"

#include <fmt/format.h>

#include "muster/init.h"
#include "worker_lib/backends/opened_library.h"

namespace muster {

namespace worker {
namespace {

Outcome<GlooBackendMaker*> open_gloo_module() {
  const Outcome<OpenedLibrary> library = OpenedLibrary::open(
      {.symbol = kGlooModuleEntry, .variable = "MUSTER_GLOO_LIBRARY", .file = MUSTER_GLOO_FILE});
  if (!library) {
    return failed(ErrorCode::backend,
                  fmt::format("the gloo backend cannot be opened: {}; install libgloo-dev, build "
                              "muster with -DMUSTER_WITH_GLOO=ON and install {} beside "
                              "libmuster.so, or use the cpu backend",
                              library.error().message, MUSTER_GLOO_FILE));
  }
  const decltype(&muster_gloo_module) entry = library->find(kGlooModuleEntry);
  return entry();
}

}  // namespace

Outcome<std::unique_ptr<GroupBackend>> make_gloo_backend(GroupSetup setup) {
  const Outcome<GlooBackendMaker*> make = open_gloo_module();
  if (!make) return tl::unexpected(make.error());
  return (*make)(std::move(setup));
}

bool can_open_gloo(std::string* why) {
  const auto gloo = open_gloo_module();
  if (!gloo) *why = gloo.error().message;
  return gloo.has_value();
}

}  // namespace worker

}  // namespace muster

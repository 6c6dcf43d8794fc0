#include "worker_lib/backends/opened_library.h"

#include <cstdlib>

#include <dlfcn.h>
#include <fmt/format.h>

namespace muster::worker {

OpenedLibrary::OpenedLibrary(void* handle, const char* symbol) : Symbols(handle) {
  Dl_info info{};
  void* const address = find(symbol).address;
  if (address != nullptr && ::dladdr(address, &info) != 0 && info.dli_fname != nullptr)
    path_ = info.dli_fname;
}

Outcome<OpenedLibrary> OpenedLibrary::open(const Names& names) {
  if (::dlsym(RTLD_DEFAULT, names.symbol) != nullptr)
    return OpenedLibrary(RTLD_DEFAULT, names.symbol);
  // Finds a copy loaded outside the global scope, as Python loads its extensions.
  if (void* handle = ::dlopen(names.file, RTLD_NOW | RTLD_NOLOAD))
    return OpenedLibrary(handle, names.symbol);
  const char* const named = std::getenv(names.variable);
  const bool is_named = named != nullptr && *named != '\0';
  const char* const file = is_named ? named : names.file;
  void* const handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    return failed(ErrorCode::backend,
                  fmt::format("{}{}", is_named ? fmt::format("{}: ", names.variable) : "",
                              reason != nullptr ? reason : "it cannot be opened"));
  }
  if (::dlsym(handle, names.symbol) == nullptr) {
    return failed(ErrorCode::backend,
                  fmt::format("{} has no {}: it is another library", file, names.symbol));
  }
  return OpenedLibrary(handle, names.symbol);
}

}  // namespace muster::worker

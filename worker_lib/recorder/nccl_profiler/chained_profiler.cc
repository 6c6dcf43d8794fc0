#include "worker_lib/recorder/nccl_profiler/chained_profiler.h"

#include <cstring>

#include <dlfcn.h>
#include <fmt/format.h>
#include <strings.h>

namespace muster::nccl {
namespace {

constexpr int kEventsOf[] = {0, 0, 0, 0xff, 0xff, 0xfff, 0x7fff, 0xffff};  // Indexed by version.
constexpr int kOldestAlike = 4;

// Opens a path, a library's name, or the NAME of libnccl-profiler-NAME.so.
void* open_library(const std::string& name) {
  const bool is_program = strncasecmp(name.c_str(), "STATIC_PLUGIN", name.size()) == 0;
  void* const library = dlopen(is_program ? nullptr : name.c_str(), RTLD_NOW | RTLD_LOCAL);
  const bool is_file = name.starts_with("lib") && name.ends_with(".so");
  if (library != nullptr || is_file || name.find('/') != std::string::npos) return library;
  return dlopen(fmt::format("libnccl-profiler-{}.so", name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

void* table_in(void* library, int version) {
  return dlsym(library, fmt::format("ncclProfiler_v{}", version).c_str());
}

}  // namespace

std::string ChainedProfiler::open(const char* name, int version) {
  const bool is_given = name != nullptr && *name != '\0';
  if (is_given && strcasecmp(name, "none") == 0) return {};
  const std::string shown = is_given ? name : "libnccl-profiler.so";
  void* const library = open_library(shown);
  if (library == nullptr) return is_given ? fmt::format("cannot open {}", shown) : std::string();
  const void* table = nullptr;
  const int oldest = version < kOldestAlike ? version : kOldestAlike;
  for (version_ = version; version_ >= oldest; --version_) {
    table = table_in(library, version_);
    if (table != nullptr) break;
  }
  if (table == nullptr) {
    dlclose(library);
    return fmt::format("{} has no interface of version {}, nor an older one that is like it", shown,
                       version);
  }
  // The user's profiler may be this library itself, under another name.
  Dl_info own{};
  Dl_info other{};
  const bool is_own = dladdr(reinterpret_cast<const void*>(&table_in), &own) != 0 &&
                      dladdr(table, &other) != 0 && own.dli_fbase == other.dli_fbase;
  if (is_own) {
    dlclose(library);
    return {};
  }
  static_assert(sizeof calls_ == sizeof(Table<Init5>));
  std::memcpy(&calls_, table, sizeof calls_);
  known_ = kEventsOf[version_];
  library_ = library;
  return {};
}

bool ChainedProfiler::init(void** context, const InitFacts& facts) {
  void* const function = calls_.init;
  if (version_ == 3) return reinterpret_cast<Init3>(function)(context, &mask_) == 0;
  if (version_ == 4) {
    return reinterpret_cast<Init4>(function)(context, &mask_, facts.name, facts.hash, facts.nodes,
                                             facts.ranks, facts.rank, facts.log) == 0;
  }
  return reinterpret_cast<Init5>(function)(context, facts.hash, &mask_, facts.name, facts.nodes,
                                           facts.ranks, facts.rank, facts.log) == 0;
}

// Follows NCCL's functions that begin events (src/plugin/profiler.cc): a plugin that asks for an
// event also gets the events above it. NCCL begins other types only if this profiler asks for them.
bool ChainedProfiler::wants(uint64_t type) const {
  constexpr uint64_t kBelowTasks = kProxyOp | kProxyStep | kKernelChannel | kNetPlugin;
  uint64_t asked = ~uint64_t{0};
  switch (type) {
    case kGroup:
      asked = kGroup | kColl | kP2p | kBelowTasks;
      break;
    case kColl:
      asked = kColl | kBelowTasks;
      break;
    case kP2p:
      asked = kP2p | kBelowTasks;
      break;
    case kCollApi:
      asked = kCollApi | kColl | kBelowTasks | kCopyEngine;
      break;
    case kP2pApi:
      asked = kP2pApi | kP2p | kBelowTasks;
      break;
    case kGroupApi:
      asked = kGroupApi | kCollApi | kP2pApi | kKernelLaunch | kGroup | kColl | kP2p | kBelowTasks |
              kCopyEngine;
      break;
    case kKernelLaunch:
    case kKernelChannel:
      asked = type;
      break;
    default:
      break;
  }
  return (static_cast<uint64_t>(mask()) & asked) != 0 &&
         (static_cast<uint64_t>(known_) & type) != 0;
}

}  // namespace muster::nccl

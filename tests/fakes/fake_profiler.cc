// A user's own NCCL profiler, of interface versions 3 to 7, or of 4 alone (SECOND_IS_OLD): writes a
// line to the file $SECOND_LOG for each call, and aborts if it gets a handle that is not its own.
// It asks for the events in $SECOND_MASK, and later for those given to second_profiler_ask(). With
// $SECOND_FAILS its init() fails.
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include <dlfcn.h>

#include "worker_lib/recorder/nccl_profiler/profiler_api.h"

namespace {

using namespace muster::nccl;

struct Seen {
  uint64_t type;
};

int* asked = nullptr;
std::set<const void*> known;  // Every handle that it has returned: events and contexts.

void say(const std::string& line) {
  const char* const path = std::getenv("SECOND_LOG");
  FILE* const file = path == nullptr ? nullptr : std::fopen(path, "a");
  if (file == nullptr) return;
  std::fprintf(file, "%s\n", line.c_str());
  std::fclose(file);
}

void must_know(const void* handle) {
  if (handle == nullptr || known.contains(handle)) return;
  say("a strange handle");
  std::abort();
}

Result begin(void** context, int* mask) {
  asked = mask;
  *mask = std::atoi(std::getenv("SECOND_MASK"));
  *context = new Seen{0};
  known.insert(*context);
  // Found if the process itself plays NCCL.
  const auto host_mask = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "fake_nccl_mask"));
  const bool is_deaf = host_mask == nullptr || host_mask() == 0;
  say(is_deaf ? "init" : "init of one more");
  return std::getenv("SECOND_FAILS") != nullptr ? 1 : 0;
}

template <typename Head>
Result start(void* context, void** handle, void* descriptor) {
  const auto& head = *static_cast<const Head*>(descriptor);
  must_know(context);
  must_know(head.parent);
  *handle = new Seen{head.type};
  known.insert(*handle);
  const auto parent = head.parent == nullptr ? 0 : static_cast<const Seen*>(head.parent)->type;
  say("start " + std::to_string(head.type) + " in " + std::to_string(parent));
  return 0;
}

Result stop(void* handle) {
  must_know(handle);
  say("stop " + std::to_string(static_cast<const Seen*>(handle)->type));
  return 0;
}

Result record_state(void* handle, int state, void*) {
  must_know(handle);
  say("state " + std::to_string(state));
  return 0;
}

Result finalize(void* context) {
  must_know(context);
  say("finalize");
  return 0;
}

[[maybe_unused]] Result begin_3(void** context, int* mask) {
  return begin(context, mask);
}
Result begin_4(void** context, int* mask, const char*, uint64_t, int, int, int, Logger) {
  return begin(context, mask);
}
[[maybe_unused]] Result begin_5(void** context, uint64_t, int* mask, const char*, int, int, int,
                                Logger) {
  return begin(context, mask);
}

}  // namespace

extern "C" {
#define SECOND_TABLE(name, Init, begin, Type)                                  \
  extern const Table<Init> name;                                               \
  const Table<Init> name {                                                     \
    "second", begin, start<DescriptorHead<Type>>, stop, record_state, finalize \
  }
#ifdef SECOND_IS_OLD
SECOND_TABLE(ncclProfiler_v4, Init4, begin_4, uint8_t);
#else
SECOND_TABLE(ncclProfiler_v3, Init3, begin_3, uint8_t);
SECOND_TABLE(ncclProfiler_v4, Init4, begin_4, uint8_t);
SECOND_TABLE(ncclProfiler_v5, Init5, begin_5, uint64_t);
SECOND_TABLE(ncclProfiler_v6, Init5, begin_5, uint64_t);
SECOND_TABLE(ncclProfiler_v7, Init5, begin_5, uint64_t);
#endif

extern void second_profiler_ask(int mask);
void second_profiler_ask(int mask) {
  if (asked != nullptr) *asked = mask;
}
}

// libnccl-profiler-muster.so: the tables that NCCL looks for, one per version of its profiler
// interface, in front of the process's Plugin.
#include "worker_lib/recorder/nccl_profiler/plugin.h"

namespace muster::nccl {
namespace {

bool is_task(uint64_t type) {
  return type == kColl || type == kP2p;
}

template <int version>
struct Descriptors {
  using Type = Descriptor5;
};
template <>
struct Descriptors<3> {
  using Type = Descriptor3;
};
template <>
struct Descriptors<4> {
  using Type = Descriptor4;
};

void read_signature(EventFacts& facts, const auto& call) {
  facts.function = call.function;
  facts.datatype = call.datatype;
  facts.count = call.count;
  facts.root = call.root;
}

void read_coll(EventFacts& facts, const CollOf4& coll) {
  read_signature(facts, coll);
  facts.sequence = coll.sequence;
  facts.channels = coll.channels;
}

// Leaves out `channels`, which version 3 does not have.
void read_p2p(EventFacts& facts, const P2pOf4& p2p) {
  facts.function = p2p.function;
  facts.datatype = p2p.datatype;
  facts.count = p2p.count;
  facts.root = p2p.peer;
}

void read(EventFacts& facts, const Descriptor3& descriptor) {
  const bool is_coll = facts.type == kColl;
  if (!is_task(facts.type)) return;
  is_coll ? read_coll(facts, descriptor.coll.rest) : read_p2p(facts, descriptor.p2p.rest);
  facts.communicator = is_coll ? descriptor.coll.communicator : descriptor.p2p.communicator;
  facts.hash = is_coll ? descriptor.coll.hash : descriptor.p2p.hash;
}

void read(EventFacts& facts, const Descriptor4& descriptor) {
  if (facts.type == kColl) read_coll(facts, descriptor.coll);
  if (facts.type != kP2p) return;
  read_p2p(facts, descriptor.p2p);
  facts.channels = descriptor.p2p.channels;
}

void read_call(EventFacts& facts, const Descriptor5& descriptor) {
  if (facts.type == kGroupApi) facts.is_captured = descriptor.group_api.is_captured;
  if (facts.type == kP2pApi) facts.is_captured = descriptor.p2p_api.is_captured;
  if (facts.type != kCollApi) return;
  const CollApiOf5& call = descriptor.coll_api;
  read_signature(facts, call);
  facts.is_captured = call.is_captured;
}

void read(EventFacts& facts, const Descriptor5& descriptor) {
  read_call(facts, descriptor);
  if (facts.type == kColl) {
    read_coll(facts, descriptor.coll.as_before);
    facts.parent_group = descriptor.coll.parent_group;
  } else if (facts.type == kP2p) {
    read_p2p(facts, descriptor.p2p.as_before);
    facts.channels = descriptor.p2p.as_before.channels;
    facts.parent_group = descriptor.p2p.parent_group;
  }
}

template <int version>
Result start(void* context, void** handle, void* descriptor) {
  const auto& told = *static_cast<const typename Descriptors<version>::Type*>(descriptor);
  if (context == nullptr) {
    *handle = nullptr;  // NCCL does not clear it.
    return 0;
  }
  EventFacts facts{.type = told.type, .rank = told.rank};
  read(facts, told);
  // NCCL zeroes the memory of each new task, but keeps that of a graph's tasks.
  facts.is_repeated = version < 5 && *handle != nullptr && is_task(facts.type);
  Plugin::of_process().start(*static_cast<Communicator*>(context), handle, descriptor, facts);
  return 0;
}

Result stop(void* handle) {
  if (handle != nullptr) Plugin::of_process().stop(handle);
  return 0;
}

Result record_state(void* handle, int state, void* arguments) {
  if (handle != nullptr) Plugin::of_process().record_state(handle, state, arguments);
  return 0;
}

Result finalize(void* context) {
  if (context != nullptr) Plugin::of_process().finalize(static_cast<Communicator*>(context));
  return 0;
}

Result init_3(void** context, int* mask) {
  *context = Plugin::of_process().init(3, mask, {});
  return 0;
}

Result init_4(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks,
              int rank, Logger log) {
  *context = Plugin::of_process().init(4, mask, {name, hash, nodes, ranks, rank, log});
  return 0;
}

template <int version>
Result init(void** context, uint64_t hash, int* mask, const char* name, int nodes, int ranks,
            int rank, Logger log) {
  *context = Plugin::of_process().init(version, mask, {name, hash, nodes, ranks, rank, log});
  return 0;
}

template <int version, typename Init>
constexpr Table<Init> table_with(Init init) {
  return {"muster", init, start<version>, stop, record_state, finalize};
}

}  // namespace
}  // namespace muster::nccl

extern "C" {
using muster::nccl::Init3;
using muster::nccl::Init4;
using muster::nccl::Init5;
using muster::nccl::Table;
using muster::nccl::table_with;

[[gnu::visibility("default")]] extern const Table<Init3> ncclProfiler_v3;
[[gnu::visibility("default")]] extern const Table<Init4> ncclProfiler_v4;
[[gnu::visibility("default")]] extern const Table<Init5> ncclProfiler_v5;
[[gnu::visibility("default")]] extern const Table<Init5> ncclProfiler_v6;
[[gnu::visibility("default")]] extern const Table<Init5> ncclProfiler_v7;

const Table<Init3> ncclProfiler_v3 = table_with<3, Init3>(muster::nccl::init_3);
const Table<Init4> ncclProfiler_v4 = table_with<4, Init4>(muster::nccl::init_4);
const Table<Init5> ncclProfiler_v5 = table_with<5, Init5>(muster::nccl::init<5>);
const Table<Init5> ncclProfiler_v6 = table_with<6, Init5>(muster::nccl::init<6>);
const Table<Init5> ncclProfiler_v7 = table_with<7, Init5>(muster::nccl::init<7>);
}

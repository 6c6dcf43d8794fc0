// Measures the cost of recording a call: nanoseconds for called() and completed() together, of the
// calling thread's own time, medians of several runs in turns, with the fastest and the slowest.
//
//   ring_bench [RUNS]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/ring/record_fd.h"
#include "rendezvous/ring/ring_writer.h"

namespace {

using muster::UniqueFd;
using muster::ring::Call;
using muster::ring::RingWriter;

constexpr int kCalls = 500'000;
constexpr uint64_t kNonce = 0x1f00c3a29b7e4d51;

struct Recorded {
  UniqueFd fd;
  std::unique_ptr<RingWriter> writer;
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "ring_bench: %s\n", why.c_str());
  std::exit(1);
}

Recorded attach(bool tsc) {
  auto fd = muster::ring::make_ring(kNonce);
  if (!fd) give_up(fd.error().message);
  std::string why;
  auto writer = RingWriter::attach(muster::ring::to_text({fd->get(), kNonce}),
                                   muster::ring::Source::worker_lib, why, tsc);
  if (!writer) give_up(why);
  return {std::move(*fd), std::move(writer)};
}

uint64_t thread_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Returns the nanoseconds per call of one of `threads`, which have a group each and share the ring.
double run(RingWriter& writer, int threads) {
  const auto record = [&](int32_t group) {
    const Call call{.kind = muster::ring::CallKind::all_reduce,
                    .type = muster::ring::ElementType::float32,
                    .reduction = muster::ring::Reduction::sum,
                    .is_synchronous = true,
                    .count = 262'144};
    const void* const site = __builtin_return_address(0);
    for (uint64_t ordinal = 1; ordinal <= kCalls; ++ordinal)
      writer.completed(writer.called(group, ordinal, call, site));
  };
  std::vector<int32_t> groups;
  for (int i = 0; i < threads; ++i)
    groups.push_back(writer.open_group({.id = "bench", .name = "bench", .size = 2, .own_rank = 0}));
  uint64_t took = 0;
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i)
      others.emplace_back(record, groups[static_cast<size_t>(i)]);
    const uint64_t before = thread_ns();
    record(groups[0]);
    took = thread_ns() - before;
  }
  for (const int32_t group : groups)
    writer.set_state(group, muster::ring::GroupState::closed);
  return static_cast<double>(took) / kCalls;
}

struct Measure {
  const char* name;
  bool tsc;
  int threads;
  std::vector<double> ns = {};
};

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 9;
  const Recorded by_tsc = attach(muster::ring::tsc_is_invariant());
  const Recorded by_clock = attach(false);
  std::vector<Measure> measures{{"clock_gettime, 1 thread", false, 1}};
  if (muster::ring::tsc_is_invariant()) {
    measures.push_back({"time-stamp counter, 1 thread", true, 1});
    measures.push_back({"time-stamp counter, 2 threads", true, 2});
  }
  for (int i = 0; i < runs; ++i) {
    for (Measure& measure : measures)
      measure.ns.push_back(run(*(measure.tsc ? by_tsc : by_clock).writer, measure.threads));
  }
  for (Measure& measure : measures) {
    std::ranges::sort(measure.ns);
    std::printf("%-30s %6.1f ns (%.1f to %.1f)\n", measure.name, measure.ns[measure.ns.size() / 2],
                measure.ns.front(), measure.ns.back());
  }
}

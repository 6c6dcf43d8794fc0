// What a program does with the worker library on a GPU, in scenes that end well or say what went
// wrong. Ranks that share a GPU are hosts of their own to NCCL:
//
//   muster --nproc-per-node 2 --no-python gpu_scenes streams
//
// streams     operations follow their stream, streams wait for works, events, no host in between
// graph       captured operations, repeated by launches of the graph
// buckets     GradientBuckets over GPU memory, while gradients are still being made
// groups N    groups made, used and dropped N times, which leave no memory of the GPU behind
// death       a rank dies, and the others' operations on the GPU end within a second
// abort       a rank calls abort(), likewise
// timeout     a rank does not come; the others' time-out of 2 s passes, and the group ends
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <unistd.h>

#include "muster/distributed.h"
#include "tests/matrix/test_cuda.h"

namespace muster::gpu {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using matrix::CudaAddress;
using matrix::CudaDriver;

constexpr size_t kCount = 1 << 20;
constexpr double kEndWithin = 1.0;

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

CudaDriver& driver() {
  return CudaDriver::instance();
}

// Floats in GPU memory.
class Floats {
 public:
  explicit Floats(size_t count = kCount)
      : count_(count), memory_(driver().allocate(count * sizeof(float))) {}
  ~Floats() { driver().free(memory_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  // On the stream, not waited for.
  void fill(float value, void* stream) {
    unsigned bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    driver().call("cuMemsetD32Async", address(), bits, count_, stream);
  }
  void copy_from(const Floats& other, void* stream) {
    driver().call("cuMemcpyDtoDAsync_v2", address(), other.address(), count_ * sizeof(float),
                  stream);
  }
  Buffer buffer(size_t first = 0, size_t count = SIZE_MAX) const {
    return {memory_ + first * sizeof(float), std::min(count, count_ - first), DType::float32,
            device()};
  }
  // Waits for the whole GPU.
  void expect_all(float wanted, const std::string& what) const {
    std::vector<std::byte> bytes(count_ * sizeof(float));
    driver().read(bytes, memory_);
    for (size_t i = 0; i < count_; ++i) {
      float is = 0;
      std::memcpy(&is, bytes.data() + i * sizeof is, sizeof is);
      if (is == wanted) continue;
      throw std::runtime_error(what + ": element " + std::to_string(i) + " is " +
                               std::to_string(is) + " and should be " + std::to_string(wanted));
    }
  }

 private:
  CudaAddress address() const { return reinterpret_cast<CudaAddress>(memory_); }
  size_t count_;
  std::byte* memory_;
};

float sum_of_ranks() {
  return static_cast<float>(world_size() * (world_size() + 1)) / 2;
}
float own_value() {
  return static_cast<float>(rank() + 1);
}

int streams() {
  constexpr int kRounds = 20;
  ProcessGroup all = world();
  void* const first = driver().new_stream();
  void* const second = driver().new_stream();
  void* event = nullptr;
  driver().call("cuEventCreate", &event, 0u);
  Floats data, copy, other;
  for (int round = 0; round < kRounds; ++round) {
    const std::string at = "round " + std::to_string(round);
    // Each line waits for the one before by the stream alone.
    data.fill(own_value(), first);
    all.all_reduce(data.buffer(), ReduceOp::sum, {.stream = first});
    copy.copy_from(data, first);
    data.fill(-1, first);
    copy.expect_all(sum_of_ranks(), at + ", one stream");

    // An asynchronous one is waited for by the stream of its wait(), and by nothing before.
    data.fill(own_value(), first);
    Work work = all.all_reduce_async(data.buffer(), ReduceOp::sum, {.stream = first});
    other.fill(7, first);  // May run beside it.
    work.wait();
    copy.copy_from(data, first);
    copy.expect_all(sum_of_ranks(), at + ", after wait()");
    other.expect_all(7, at + ", beside it");

    // An event of the program carries the order to another stream.
    data.fill(own_value(), first);
    all.all_reduce(data.buffer(), ReduceOp::sum, {.stream = first});
    driver().call("cuEventRecord", event, first);
    driver().call("cuStreamWaitEvent", second, event, 0u);
    all.all_reduce(data.buffer(), ReduceOp::max, {.stream = second});
    copy.copy_from(data, second);
    copy.expect_all(sum_of_ranks(), at + ", two streams");
    all.barrier();
  }
  std::printf("streams: rank %d did %d rounds\n", rank(), kRounds);
  return 0;
}

int graph() {
  constexpr int kLaunches = 50;
  constexpr unsigned kRelaxed = 2;
  ProcessGroup all = world();
  void* const stream = driver().new_stream();
  Floats in, out, gathered(kCount * static_cast<size_t>(world_size()));
  // Made before the capture, in which nothing can be made.
  in.fill(own_value(), stream);
  all.all_reduce(in.buffer(), out.buffer(), ReduceOp::sum, {.stream = stream});
  all.all_gather(out.buffer(), gathered.buffer(), {.stream = stream});
  driver().wait_for(stream);
  void* captured = nullptr;
  driver().call("cuStreamBeginCapture_v2", stream, kRelaxed);
  all.all_reduce(in.buffer(), out.buffer(), ReduceOp::sum, {.stream = stream});
  all.all_gather(out.buffer(), gathered.buffer(), {.stream = stream});
  in.copy_from(out, stream);
  driver().call("cuStreamEndCapture", stream, &captured);
  void* graph = nullptr;
  driver().call("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
  for (int i = 0; i < kLaunches; ++i) {
    in.fill(own_value(), stream);
    driver().call("cuGraphLaunch", graph, stream);
  }
  out.expect_all(sum_of_ranks(), "all_reduce of the graph");
  gathered.expect_all(sum_of_ranks(), "all_gather of the graph");
  // Operations outside go on, before the graph and after it.
  in.fill(own_value(), stream);
  all.all_reduce(in.buffer(), ReduceOp::sum, {.stream = stream});
  in.expect_all(sum_of_ranks(), "all_reduce after the graph");
  all.barrier();
  driver().call("cuGraphExecDestroy", graph);
  driver().call("cuGraphDestroy", captured);
  std::printf("graph: rank %d launched it %d times\n", rank(), kLaunches);
  return 0;
}

int buckets() {
  constexpr int kSteps = 20;
  constexpr size_t kBuffers = 12;
  constexpr size_t kEach = kCount / kBuffers;
  void* const stream = driver().new_stream();
  Floats gradients(kEach * kBuffers);
  std::vector<Buffer> list;
  for (size_t i = 0; i < kBuffers; ++i)
    list.push_back(gradients.buffer(i * kEach, kEach));
  GradientBuckets reducer(world(), list,
                          {.bucket_bytes = kEach * sizeof(float) * 3,
                           .first_bucket_bytes = kEach * sizeof(float),
                           .call = {.stream = stream}});
  for (int step = 0; step < kSteps; ++step) {
    gradients.fill(own_value() + static_cast<float>(step), stream);
    for (size_t i = kBuffers; i-- > 0;)
      reducer.ready(i);
    reducer.wait();
    gradients.expect_all(
        sum_of_ranks() / static_cast<float>(world_size()) + static_cast<float>(step),
        "step " + std::to_string(step));
  }
  std::printf("buckets: rank %d averaged %d steps in %zu buckets\n", rank(), kSteps,
              reducer.bucket_count());
  return 0;
}

size_t free_memory() {
  size_t free = 0, total = 0;
  driver().call("cuMemGetInfo_v2", &free, &total);
  return free;
}

int groups(int rounds) {
  constexpr int kWarmUp = 5;
  Floats data(1000);
  const std::vector<GlobalRank> all = world().ranks();
  size_t before = 0;
  for (int i = 0; i < rounds; ++i) {
    if (i == kWarmUp) before = free_memory();
    ProcessGroup group = new_group(all, {.name = "round " + std::to_string(i)});
    data.fill(own_value(), nullptr);
    group.all_reduce(data.buffer());
    data.expect_all(sum_of_ranks(), "round " + std::to_string(i));
  }
  // The other ranks' last groups may still be ending.
  const Clock::time_point until = Clock::now() + 10s;
  const auto lost = [&] {
    return static_cast<double>(before) - static_cast<double>(free_memory());
  };
  while (rounds > kWarmUp && lost() > 64e6 && Clock::now() < until)
    std::this_thread::sleep_for(50ms);
  std::printf("groups: rank %d made and dropped %d; the GPU has %.1f MB less free than after %d\n",
              rank(), rounds, rounds > kWarmUp ? lost() / 1e6 : 0.0, kWarmUp);
  expect(rounds <= kWarmUp || lost() < 64e6, "the groups left memory of the GPU behind");
  return 0;
}

// All but the last rank wait for it on the GPU; it calls `act` at a moment that it has told them.
// The others' operation must fail with one of `codes` within a second of that.
int fail_one(const char* scene, const std::vector<ErrorCode>& codes,
             const std::function<void()>& act, std::chrono::milliseconds timeout = 60s) {
  ProcessGroup all = world();
  expect(all.size() >= 2, "this scene needs 2 ranks");
  const GroupRank culprit{all.size() - 1};
  Floats data;
  data.fill(1, nullptr);
  all.all_reduce(data.buffer());
  data.expect_all(static_cast<float>(all.size()), "before");
  std::vector<int64_t> moment{(Clock::now() + 500ms).time_since_epoch().count()};
  all.broadcast(moment, culprit);
  const Clock::time_point due{Clock::duration(moment[0])};
  if (all.rank() == culprit) {
    std::this_thread::sleep_until(due);
    act();
    std::this_thread::sleep_for(5s);
    return 0;
  }
  const Clock::time_point begun = Clock::now();
  Work work = all.all_reduce_async(data.buffer(), ReduceOp::sum, {.timeout = timeout});
  try {
    work.synchronize();
  } catch (const DistributedError& error) {
    const Clock::time_point expected = timeout < 60s ? begun + timeout : due;
    const double late = std::chrono::duration<double>(Clock::now() - expected).count();
    std::string ranks;
    for (const GlobalRank failed : error.failed_ranks())
      ranks += (ranks.empty() ? "" : ",") + std::to_string(failed.value);
    std::printf("%s: rank %d ended %.3f s after it, %s, ranks [%s]: %s\n", scene, rank(), late,
                name_of(error.code()), ranks.c_str(), error.what());
    expect(std::ranges::find(codes, error.code()) != codes.end(), "another error was due");
    expect(late < kEndWithin, "it took longer than a second");
    // The GPU is free: nothing of NCCL keeps the stream.
    const Clock::time_point ended = Clock::now();
    driver().call("cuCtxSynchronize");
    const double gpu = std::chrono::duration<double>(Clock::now() - ended).count();
    std::printf("%s: rank %d: the GPU was free %.3f s later\n", scene, rank(), gpu);
    expect(gpu < kEndWithin, "the GPU stayed busy for longer than a second");
    return 0;
  }
  throw std::runtime_error("the operation succeeded without the last rank");
}

int run(int argc, char** argv) {
  const std::string_view scene = argc > 1 ? argv[1] : "";
  const std::map<std::string_view, std::function<int()>> scenes{
      {"streams", streams},
      {"graph", graph},
      {"buckets", buckets},
      {"groups", [&] { return groups(argc > 2 ? std::atoi(argv[2]) : 200); }},
      {"death", [] { return fail_one("death", {ErrorCode::peer_failed}, [] { raise(SIGKILL); }); }},
      {"abort",
       [] {
         return fail_one("abort", {ErrorCode::aborted}, [] { world().abort("the data is wrong"); });
       }},
      {"timeout", [] { return fail_one("timeout", {ErrorCode::timeout}, [] {}, 2s); }},
  };
  const auto found = scenes.find(scene);
  if (found == scenes.end()) {
    std::fprintf(stderr, "gpu_scenes: no scene '%s'\n", std::string(scene).c_str());
    return 2;
  }
  std::string why;
  if (!is_nccl_available(&why)) {
    std::fprintf(stderr, "SKIPPED: %s\n", why.c_str());
    return 77;
  }
  matrix::let_ranks_share_gpus();
  InitOptions options;
  options.timeout = 60s;
  options.on_sigterm = StopPolicy::agree;  // The launcher stops the others of a dead rank.
  options.device = 0;
  init_process_group(options);
  driver().use(0);
  const int status = found->second();
  destroy_process_group();
  return status;
}

}  // namespace
}  // namespace muster::gpu

int main(int argc, char** argv) {
  try {
    return muster::gpu::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "FAULT: gpu_scenes: rank %s: %s\n", std::getenv("RANK"), error.what());
    std::fflush(stdout);
    std::_Exit(1);
  }
}

// The overhead of a call over NCCL alone, and its effect: all_reduce of a process group compared
// with ncclAllReduce on this program's own communicator, in alternating calls on one stream.
//
//   muster --nproc-per-node 2 --no-python build/release/tests/nccl_bench [CALLS]
//
// Prints a Markdown table: the time for which the calling thread is busy (medians of the calls of
// each and of their differences), the same for calls of a burst, as a program makes them ahead of
// its GPU, and the time until the result is there, with the bandwidths of
// nccl-tests (busbw = algbw * 2 (n - 1) / n). Not in place, so that a single rank has something to
// copy. If there is only one GPU the ranks share it, each with its own NCCL_HOSTID, and large sizes
// get fewer calls. Without a GPU: says why and exits with 77.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "muster/distributed.h"
#include "tests/gpu/plain_nccl.h"
#include "tests/matrix/test_cuda.h"

namespace {

using Clock = std::chrono::steady_clock;
using muster::gpu::PlainNccl;
using muster::matrix::CudaDriver;

constexpr int kCalls = 1000;
// Calls of large operations between ranks that share a GPU, which go through sockets.
constexpr int kFewCalls = 100;
constexpr int kWarmUp = 50;
constexpr int kBurst = 10;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Memory {
  std::byte* in;
  std::byte* out;
};

// Microseconds of each call.
struct Samples {
  std::vector<double> plain, ours, added;
};

class Bench {
 public:
  explicit Bench(int calls)
      : calls_(calls),
        world_(muster::world()),
        device_(muster::Device::cuda(std::max(0, muster::device().index))),
        cuda_(prepare(device_)),
        stream_(cuda_.new_stream()) {
    muster::gpu::UniqueId id{};
    std::string bytes(sizeof id, '\0');
    if (world_.rank().value == 0) {
      id = nccl_.unique_id();
      std::memcpy(bytes.data(), &id, sizeof id);
    }
    world_.broadcast_bytes(bytes, muster::GroupRank{0});
    std::memcpy(&id, bytes.data(), sizeof id);
    nccl_.join(id, world_.size(), world_.rank().value);
  }

  void run() {
    const std::vector<size_t> sizes = {8, 4096, size_t{256} << 10, size_t{8} << 20,
                                       size_t{64} << 20};
    say("\n%d ranks, all_reduce of float32, medians of interleaved calls\n\n", world_.size());
    say("| size (B) | calls | calling thread: NCCL (µs) | muster | added | in a burst: NCCL (µs) | "
        "muster | added | until done: NCCL (µs) | muster | added | busbw: NCCL (GB/s) | muster |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (const size_t size : sizes)
      row(size);
  }

 private:
  static CudaDriver& prepare(muster::Device device) {
    CudaDriver::instance().use(device.index);
    return CudaDriver::instance();
  }

  template <typename... Args>
  void say(const char* format, Args... args) const {
    if (world_.rank().value != 0) return;
    std::printf(format, args...);
    std::fflush(stdout);
  }

  void row(size_t bytes) {
    const size_t count = bytes / sizeof(float);
    const Memory memory{cuda_.allocate(bytes), cuda_.allocate(bytes)};
    verify(memory, count);
    const int calls = world_.size() > 1 && bytes > (1 << 20) ? std::min(kFewCalls, calls_) : calls_;
    const Samples busy = measure(memory, count, calls, 1, false);
    const Samples burst = measure(memory, count, calls, kBurst, false);
    const Samples done = measure(memory, count, calls, 1, true);
    cuda_.free(memory.in);
    cuda_.free(memory.out);
    const double plain = median(done.plain), ours = median(done.ours);
    const double factor = 2.0 * (world_.size() - 1) / world_.size();
    const auto bus = [&](double us) { return static_cast<double>(bytes) / us / 1e3 * factor; };
    say("| %zu | %d ", bytes, calls);
    for (const Samples& one : {busy, burst, done})
      say("| %.2f | %.2f | %+.2f ", median(one.plain), median(one.ours), median(one.added));
    say("| %.2f | %.2f |\n", bus(plain), bus(ours));
  }

  // Checks that both give the sum over the ranks.
  void verify(const Memory& memory, size_t count) {
    const float mine = static_cast<float>(world_.rank().value + 1);
    const float sum = static_cast<float>(world_.size() * (world_.size() + 1)) / 2;
    for (const bool ours : {false, true}) {
      const std::vector<float> values(count, mine);
      std::vector<std::byte> bytes(count * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      cuda_.write(memory.in, bytes);
      call(ours, memory, count);
      cuda_.wait_for(stream_);
      cuda_.read(bytes, memory.out);
      std::vector<float> result(count);
      std::memcpy(result.data(), bytes.data(), bytes.size());
      if (result != std::vector<float>(count, sum))
        throw std::runtime_error(ours ? "muster: wrong sum" : "NCCL: wrong sum");
    }
  }

  void call(bool ours, const Memory& memory, size_t count) {
    if (ours) {
      world_.all_reduce(muster::ConstBuffer(memory.in, count, muster::DType::float32, device_),
                        muster::Buffer(memory.out, count, muster::DType::float32, device_),
                        muster::ReduceOp::sum, {.stream = stream_});
    } else {
      nccl_.all_reduce(memory.in, memory.out, count, stream_);
    }
  }

  // Returns the microseconds of each call of a burst.
  double timed(bool ours, const Memory& memory, size_t count, int burst, bool until_done) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < burst; ++i)
      call(ours, memory, count);
    if (until_done) cuda_.wait_for(stream_);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (!until_done) cuda_.wait_for(stream_);
    return took.count() / burst;
  }

  // Alternates which one is first, so that neither always finds the caches warm.
  Samples measure(const Memory& memory, size_t count, int calls, int burst, bool until_done) {
    Samples samples;
    for (int i = -kWarmUp / burst; i < calls / burst; i++) {
      double us[2];
      for (const bool second : {false, true}) {
        const bool ours = (i % 2 == 0) == second;
        us[ours ? 1 : 0] = timed(ours, memory, count, burst, until_done);
      }
      if (i < 0) continue;
      samples.plain.push_back(us[0]);
      samples.ours.push_back(us[1]);
      samples.added.push_back(us[1] - us[0]);
    }
    return samples;
  }

  int calls_;
  muster::ProcessGroup world_;
  muster::Device device_;
  CudaDriver& cuda_;
  PlainNccl nccl_;
  void* stream_;
};

}  // namespace

int main(int argc, char** argv) {
  std::string why;
  if (!muster::is_nccl_available(&why)) {
    std::fprintf(stderr, "SKIPPED: %s\n", why.c_str());
    return 77;
  }
  muster::matrix::let_ranks_share_gpus();
  muster::init_process_group();
  Bench(argc > 1 ? std::atoi(argv[1]) : kCalls).run();
  muster::destroy_process_group();
}

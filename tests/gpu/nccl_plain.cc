// A program that uses NCCL without the worker library, so that muster's profiler plugin records it:
//
//   muster --nproc-per-node 2 --no-python nccl_plain FOLDER
//
// The ranks meet through a file in FOLDER. Rank 0 prints a line of medians in microseconds for each
// size: how long the calling thread is busy with one all_reduce of a burst, and how long a burst
// takes on the GPU, for each of its calls.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "tests/gpu/plain_nccl.h"
#include "tests/matrix/test_cuda.h"

namespace muster::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using matrix::CudaDriver;

constexpr int kBurst = 10;
constexpr int kBursts = 200;
constexpr auto kEnough = std::chrono::milliseconds{1500};

int number(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

UniqueId meet(PlainNccl& nccl, const std::string& folder, int rank) {
  const std::string path = folder + "/nccl_id_" + std::getenv("MASTER_PORT");
  UniqueId id{};
  if (rank == 0) {
    id = nccl.unique_id();
    std::ofstream(path + ".new", std::ios::binary).write(id.bytes, sizeof id.bytes);
    std::rename((path + ".new").c_str(), path.c_str());
    return id;
  }
  while (!std::ifstream(path, std::ios::binary).read(id.bytes, sizeof id.bytes))
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  return id;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void measure(PlainNccl& nccl, CudaDriver& cuda, size_t bytes, int ranks, int rank) {
  void* const stream = cuda.new_stream();
  std::byte* const in = cuda.allocate(bytes);
  std::byte* const out = cuda.allocate(bytes);
  std::vector<double> busy, done;
  const Clock::time_point begun = Clock::now();
  // Each rank has to make as many calls as the others.
  const int bursts = ranks == 1 || bytes <= (1 << 20) ? kBursts : 10;
  for (int burst = -3; burst < bursts; ++burst) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kBurst; ++i)
      nccl.all_reduce(in, out, bytes / sizeof(float), stream);
    const Clock::time_point called = Clock::now();
    cuda.wait_for(stream);
    const Clock::time_point end = Clock::now();
    if (burst < 0) continue;
    using Microseconds = std::chrono::duration<double, std::micro>;
    busy.push_back(Microseconds(called - start).count() / kBurst);
    done.push_back(Microseconds(end - start).count() / kBurst);
    if (ranks == 1 && Clock::now() - begun > kEnough) break;
  }
  cuda.free(in);
  cuda.free(out);
  if (rank == 0) std::printf("%zu %.4f %.4f\n", bytes, median(busy), median(done));
}

int run(const std::string& folder) {
  const int rank = number("RANK");
  const int ranks = number("WORLD_SIZE");
  matrix::let_ranks_share_gpus();
  CudaDriver& cuda = CudaDriver::instance();
  cuda.use(0);
  PlainNccl nccl;
  nccl.join(meet(nccl, folder, rank), ranks, rank);
  for (const size_t bytes :
       {size_t{8}, size_t{4096}, size_t{256} << 10, size_t{8} << 20, size_t{64} << 20})
    measure(nccl, cuda, bytes, ranks, rank);
  nccl.leave();
  return 0;
}

}  // namespace
}  // namespace muster::gpu

int main(int argc, char** argv) {
  try {
    return argc == 2 ? muster::gpu::run(argv[1]) : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_plain: %s\n", error.what());
    return 1;
  }
}

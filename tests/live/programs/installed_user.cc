// A minimal program, compiled against the installed library. Any argument selects gloo.
#include <cstdio>
#include <exception>
#include <vector>

#include <muster/distributed.h>

int main(int count, char**) try {
  muster::InitOptions options;
  if (count > 1) options.backend = muster::Backend::gloo;
  muster::init_process_group(options);
  std::vector<float> values(1000, static_cast<float>(muster::rank()));
  muster::world().all_reduce(values, muster::ReduceOp::average);
  const auto expected = static_cast<float>(muster::world_size() - 1) / 2;
  if (values.front() != expected || values.back() != expected) return 1;
  if (muster::rank() == 0) std::printf("average of %d ranks: %g\n", muster::world_size(), expected);
  muster::destroy_process_group();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

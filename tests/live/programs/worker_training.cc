// Ranks that use the training helpers in ways that no example shows; worker_examples_test.py starts
// them and reads their output.
//
//   worker_training zero_first FAILING        ranks in FAILING ("0,2" or "-") throw in their turn
//   worker_training local_zero_first FAILING  the same on each node
//   worker_training stop RANK                 that rank gets SIGTERM in its 5th step
//   worker_training request RANK              that rank requests the stop in its 5th step
//   worker_training buckets                   GradientBuckets in every shape, against averages
//   worker_training samples                   reads "size ranks rank shuffle seed epoch drop_last"
//                                             lines
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "muster/distributed.h"

namespace {

void say(const std::string& line) {
  std::printf("%d: %s\n", muster::rank(), line.c_str());
  std::fflush(stdout);
}

bool named(const std::string& list, int rank) {
  std::istringstream names(list);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == std::to_string(rank)) return true;
  }
  return false;
}

void run_block(const std::string& failing) {
  say("ran");
  if (named(failing, muster::rank())) throw std::runtime_error("no network");
}

void try_zero_first(bool local, const std::string& failing) {
  try {
    if (local) {
      muster::local_zero_first([&] { run_block(failing); });
    } else {
      muster::zero_first([&] { run_block(failing); });
    }
    say("well");
  } catch (const muster::DistributedError& error) {
    say(std::string(name_of(error.code())) + " " + error.what());
  } catch (const std::runtime_error& error) {
    say(std::string("own ") + error.what());
  }
  muster::world().barrier();  // The world stays usable.
  say("after");
}

// Counts the steps of each rank before all of them stop.
void try_stop(int who, bool by_signal) {
  int step = 0;
  while (!muster::should_stop() && step < 1000000) {
    if (++step != 5 || muster::rank() != who) continue;
    if (by_signal) {
      std::raise(SIGTERM);
    } else {
      muster::request_stop();
    }
  }
  say("stopped after " + std::to_string(step));
}

// Whole numbers, so that averages over 1, 2, 4 and 8 ranks are exact.
float gradient(int rank, size_t i) {
  return static_cast<float>((rank + 1) * 8 * static_cast<int>(i % 1000 + 1));
}

size_t wrong_elements(const std::vector<std::vector<float>>& memory) {
  const int ranks = muster::world_size();
  size_t wrong = 0;
  for (const std::vector<float>& buffer : memory) {
    for (size_t i = 0; i < buffer.size(); ++i) {
      float sum = 0;
      for (int rank = 0; rank < ranks; ++rank)
        sum += gradient(rank, i);
      wrong += buffer[i] != sum / static_cast<float>(ranks);
    }
  }
  return wrong;
}

void try_buckets() {
  size_t steps = 0;
  size_t wrong = 0;
  const std::vector<size_t> counts{0, 1, 7, 100, 1000, 50000, 3, 300000};
  for (const auto strategy :
       {muster::BucketStrategy::all_reduce, muster::BucketStrategy::reduce_broadcast}) {
    for (const size_t limit : {size_t{0}, size_t{4096}, size_t{1} << 30}) {
      std::vector<std::vector<float>> memory;
      for (const size_t count : counts)
        memory.emplace_back(count);
      const std::vector<muster::Buffer> list(memory.begin(), memory.end());
      muster::GradientBuckets buckets(
          muster::world(), list,
          {.bucket_bytes = limit, .first_bucket_bytes = limit / 4, .strategy = strategy});
      for (int step = 0; step < 3; ++step, ++steps) {
        for (std::vector<float>& buffer : memory) {
          for (size_t i = 0; i < buffer.size(); ++i)
            buffer[i] = gradient(muster::rank(), i);
        }
        std::vector<size_t> order(list.size());
        std::iota(order.begin(), order.end(), size_t{0});
        if (muster::rank() % 2 == 0) std::reverse(order.begin(), order.end());
        for (const size_t i : order)
          buckets.ready(i);
        buckets.wait();
        wrong += wrong_elements(memory);
      }
    }
  }
  say(std::to_string(steps) + " steps, " + std::to_string(wrong) + " wrong elements");
}

int print_samples() {
  size_t size = 0;
  int ranks = 0;
  int rank = 0;
  bool shuffle = false;
  bool drop_last = false;
  uint64_t seed = 0;
  uint64_t epoch = 0;
  while (std::cin >> size >> ranks >> rank >> shuffle >> seed >> epoch >> drop_last) {
    muster::DistributedSampler sampler(
        size,
        {.rank = rank, .ranks = ranks, .shuffle = shuffle, .seed = seed, .drop_last = drop_last});
    sampler.set_epoch(epoch);
    for (const size_t sample : sampler)
      std::printf("%zu ", sample);
    std::printf("\n");
  }
  return 0;
}

int run(const std::string& what, const std::string& argument) {
  if (what == "samples") return print_samples();
  muster::init_process_group({.on_sigterm = muster::StopPolicy::agree});
  if (what == "zero_first" || what == "local_zero_first") {
    try_zero_first(what == "local_zero_first", argument);
  } else if (what == "stop" || what == "request") {
    try_stop(std::atoi(argument.c_str()), what == "stop");
  } else if (what == "buckets") {
    try_buckets();
  } else {
    throw std::invalid_argument("do not know " + what);
  }
  muster::destroy_process_group();
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

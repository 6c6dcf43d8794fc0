// Data-parallel training on real handwritten digits: every rank has the whole network and a share
// of each batch, and the ranks average their gradients before each step.
//
//   muster --nproc-per-node 4 digits
//   muster --nproc-per-node 4 digits --strategy reduce_broadcast --straggler 2:100 --epochs 1
//   muster --nproc-per-node 4 --max-restarts 3 digits --checkpoint /tmp/digits.ckpt --crash-at 1:5
//
//   --epochs N                 10
//   --batch N                  64: images per step, for all ranks together
//   --strategy NAME            all_reduce; or reduce_broadcast: to rank 0 and from there to all
//   --straggler RANK:MS        that rank takes MS milliseconds longer for every step
//   --straggler-at PHASE       in which phase: start, before it computes; backward, before its last
//                              gradients are ready (default); aggregate, when it could wait
//   --checkpoint FILE          rank 0 saves after every epoch; a restarted job resumes from it
//   --crash-at RANK:EPOCH      that rank kills itself in that epoch of the first attempt
//   --data FILE                data/digits.csv
//
// At the end rank 0 prints for each rank the time per step for computing and for waiting for the
// others' gradients (which shows the wait for a straggler), the time of all its steps, and a hash
// of its parameters: all are equal. The row above, "alone", is what rank 0 takes to compute the
// whole batch: what the others save.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <muster/distributed.h>
#include <unistd.h>

#include "digits_model.h"

#ifndef DIGITS_CSV
#define DIGITS_CSV "examples/data/digits.csv"
#endif

using Clock = std::chrono::steady_clock;

struct Options {
  int epochs = 10;
  size_t batch = 64;
  muster::BucketStrategy strategy = muster::BucketStrategy::all_reduce;
  std::string strategy_name = "all_reduce";
  int straggler = -1, straggler_ms = 0;
  std::string straggler_at = "backward";
  int crash_rank = -1, crash_epoch = -1;
  std::string checkpoint;
  std::string data = DIGITS_CSV;
};

static void read_pair(const std::string& text, int& first, int& second) {
  if (std::sscanf(text.c_str(), "%d:%d", &first, &second) != 2) {
    throw std::invalid_argument(text + " is not RANK:NUMBER");
  }
}

static Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    const std::string value = argv[i + 1];
    if (name == "--epochs") {
      options.epochs = std::stoi(value);
    } else if (name == "--batch") {
      options.batch = std::stoul(value);
    } else if (name == "--strategy" && (value == "all_reduce" || value == "reduce_broadcast")) {
      options.strategy_name = value;
      options.strategy = value == "all_reduce" ? muster::BucketStrategy::all_reduce
                                               : muster::BucketStrategy::reduce_broadcast;
    } else if (name == "--straggler") {
      read_pair(value, options.straggler, options.straggler_ms);
    } else if (name == "--straggler-at" &&
               (value == "start" || value == "backward" || value == "aggregate")) {
      options.straggler_at = value;
    } else if (name == "--crash-at") {
      read_pair(value, options.crash_rank, options.crash_epoch);
    } else if (name == "--checkpoint") {
      options.checkpoint = value;
    } else if (name == "--data") {
      options.data = value;
    } else {
      throw std::invalid_argument("do not know " + name + " " + value);
    }
  }
  return options;
}

// The state of the training apart from the data: saved, and equal on all ranks.
struct Model {
  Network network;
  std::vector<float> momentum;
  int epoch = 0;  // The next one.

  // All ranks take rank 0's parameters: the seeds differ on purpose.
  Model() : network(static_cast<unsigned>(1 + muster::rank())) {
    muster::world().broadcast(network.parameters(), muster::GroupRank{0});
    momentum.resize(network.parameters().size());
  }

  void step() {
    std::vector<float>& parameters = network.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      momentum[i] = 0.9F * momentum[i] + network.gradients()[i];
      parameters[i] -= 0.1F * momentum[i];
    }
  }

  void save(const std::string& path) const {
    muster::save_checkpoint(path, [this](std::ostream& out) {
      const auto write = [&](const void* data, size_t bytes) {
        out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
      };
      write(&epoch, sizeof epoch);
      write(network.parameters().data(), network.parameters().size() * sizeof(float));
      write(momentum.data(), momentum.size() * sizeof(float));
    });
  }

  void resume(const std::string& path) {
    const std::optional<std::string> saved = muster::load_checkpoint(path);
    if (!saved) return;
    const size_t bytes = momentum.size() * sizeof(float);
    if (saved->size() != sizeof epoch + 2 * bytes) {
      throw std::runtime_error(path + " is a checkpoint of something else");
    }
    std::memcpy(&epoch, saved->data(), sizeof epoch);
    std::memcpy(network.parameters().data(), saved->data() + sizeof epoch, bytes);
    std::memcpy(momentum.data(), saved->data() + sizeof epoch + bytes, bytes);
  }
};

// Milliseconds of this rank, summed over its steps.
struct Times {
  double compute = 0, aggregate = 0;
  int steps = 0;
};

static double ms_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - start).count();
}

static void crash_where_told(const Options& options, int epoch) {
  if (options.crash_rank != muster::rank() || options.crash_epoch != epoch) return;
  if (muster::restart_count() != 0) return;
  std::fprintf(stderr, "rank %d kills itself in epoch %d\n", muster::rank(), epoch);
  ::kill(::getpid(), SIGKILL);
}

static void straggle(const Options& options, const std::string& phase) {
  if (options.straggler != muster::rank() || options.straggler_at != phase) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(options.straggler_ms));
}

// Milliseconds that this rank takes to compute the gradients of a whole batch.
static double time_alone(const Options& options, const Digits& data, Network network) {
  std::vector<const Image*> images;
  for (size_t i = 0; i < options.batch; ++i)
    images.push_back(&data.train[i % data.train.size()]);
  constexpr int kSteps = 10;
  const auto start = Clock::now();
  for (int step = 0; step < kSteps; ++step) {
    network.backward_output(images);
    network.backward_hidden(images);
  }
  return ms_between(start, Clock::now()) / kSteps;
}

// One step on this rank's share of a batch. The output layer's gradients are reduced while the
// hidden layer's are computed.
static void train_step(const Options& options, const std::vector<const Image*>& share, Model& model,
                       muster::GradientBuckets& buckets, Times& times) {
  const auto start = Clock::now();
  straggle(options, "start");
  model.network.backward_output(share);
  buckets.ready(Network::output_bias);
  buckets.ready(Network::output_weights);
  model.network.backward_hidden(share);
  straggle(options, "backward");
  const auto computed = Clock::now();
  buckets.ready(Network::hidden_bias);
  buckets.ready(Network::hidden_weights);
  straggle(options, "aggregate");  // Its gradients are on their way: the others need not wait.
  buckets.wait();
  const auto averaged = Clock::now();
  model.step();
  times.compute += ms_between(start, computed) + ms_between(averaged, Clock::now());
  times.aggregate += ms_between(computed, averaged);
  ++times.steps;
}

static void train_epoch(const Options& options, const Digits& data,
                        const muster::DistributedSampler& sampler, Model& model,
                        muster::GradientBuckets& buckets, Times& times) {
  const size_t share = std::max<size_t>(1, options.batch / size_t(muster::world_size()));
  std::vector<const Image*> images(share);
  const size_t steps = sampler.size() / share;  // The rest of an epoch is dropped.
  for (size_t step = 0; step < steps; ++step) {
    if (step == steps / 2) crash_where_told(options, model.epoch);
    const std::span<const size_t> batch = sampler.batch(step, share);
    for (size_t i = 0; i < share; ++i)
      images[i] = &data.train[batch[i]];
    train_step(options, images, model, buckets, times);
  }
}

// Mean loss and recognition rate on the test images, which are divided among the ranks.
static std::pair<double, double> evaluate(const Digits& data, const Network& network) {
  double totals[2] = {0, 0};  // Loss, correct answers.
  std::array<float, kHidden> hidden;
  for (size_t i = size_t(muster::rank()); i < data.test.size(); i += size_t(muster::world_size())) {
    const Image& image = data.test[i];
    auto scores = network.forward(image, hidden);
    const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    if (static_cast<size_t>(best) == image.digit) totals[1] += 1;
    totals[0] += Network::softmax_minus_one_hot(scores, image.digit);
  }
  muster::world().all_reduce(totals);
  const auto images = static_cast<double>(data.test.size());
  return {totals[0] / images, totals[1] / images};
}

// FNV-1a of the parameters' bytes.
static int64_t hash_of(const std::vector<float>& parameters) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto* bytes = reinterpret_cast<const unsigned char*>(parameters.data());
  for (size_t i = 0; i < parameters.size() * sizeof(float); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  return static_cast<int64_t>(hash);
}

// Returns whether all ranks have the same parameters.
static bool print_table(const Options& options, const Model& model, const Times& times,
                        double alone) {
  const auto ranks = static_cast<size_t>(muster::world_size());
  const double steps = std::max(times.steps, 1);
  const double mine[2] = {times.compute / steps, times.aggregate / steps};
  const int64_t hash[1] = {hash_of(model.network.parameters())};
  std::vector<double> all(2 * ranks);
  std::vector<int64_t> hashes(ranks);
  muster::world().all_gather(mine, all);
  muster::world().all_gather(hash, hashes);
  if (muster::rank() == 0) {
    std::printf("%s, %zu ranks, %d steps\n", options.strategy_name.c_str(), ranks, times.steps);
    std::printf(" rank  compute ms/step  aggregation ms/step  total ms  parameters\n");
    std::printf("alone  %15.3f  %19.3f  %8.1f\n", alone, 0.0, alone * times.steps);
    for (size_t r = 0; r < ranks; ++r) {
      const double total = (all[2 * r] + all[2 * r + 1]) * times.steps;
      std::printf("%5zu  %15.3f  %19.3f  %8.1f  %016llx\n", r, all[2 * r], all[2 * r + 1], total,
                  static_cast<unsigned long long>(hashes[r]));
    }
  }
  return std::all_of(hashes.begin(), hashes.end(), [&](int64_t h) { return h == hashes[0]; });
}

static int train(const Options& options) {
  const Digits data = load_digits(options.data);
  Model model;
  if (!options.checkpoint.empty()) model.resume(options.checkpoint);
  const bool speaks = muster::rank() == 0;
  if (speaks) std::printf("starting at epoch %d of %d\n", model.epoch, options.epochs);

  std::vector<muster::Buffer> gradients;
  for (int part = 0; part < Network::kParts; ++part) {
    gradients.emplace_back(model.network.gradient_of(static_cast<Network::Part>(part)));
  }
  // The first bucket is small enough to be full when the output layer is done.
  muster::GradientBuckets buckets(muster::world(), gradients,
                                  {.first_bucket_bytes = 4096, .strategy = options.strategy});
  muster::DistributedSampler sampler(data.train.size(), {.seed = 1});
  const double alone = speaks ? time_alone(options, data, model.network) : 0;
  Times times;
  while (model.epoch < options.epochs) {
    sampler.set_epoch(static_cast<uint64_t>(model.epoch));
    train_epoch(options, data, sampler, model, buckets, times);
    const auto [loss, accuracy] = evaluate(data, model.network);
    if (speaks) std::printf("epoch %d: loss %.4f, accuracy %.4f\n", model.epoch, loss, accuracy);
    std::fflush(stdout);
    ++model.epoch;
    if (!options.checkpoint.empty()) model.save(options.checkpoint);
  }
  const bool equal = print_table(options, model, times, alone);
  const auto [loss, accuracy] = evaluate(data, model.network);
  if (speaks) std::printf("final loss %.17g accuracy %.4f\n", loss, accuracy);
  if (!equal) std::fprintf(stderr, "the ranks' parameters differ\n");
  return equal ? 0 : 1;
}

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  muster::init_process_group();
  const int result = train(options);
  muster::destroy_process_group();
  return result;
} catch (const std::exception& error) {  // A DistributedError names rank, operation and group.
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

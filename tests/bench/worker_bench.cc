// A rank of worker_bench.py that uses muster's worker library, through its public headers only.
// With --no-shared it does not ask for shared memory (the ranks are on several nodes).
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include <muster/distributed.h>

#include "tests/bench/worker_bench_rank.h"

namespace {

using muster::GroupRank;
using muster::bench::Buffers;

class Muster : public muster::bench::Library {
 public:
  explicit Muster(bool shared) : shared_(shared) {}
  int rank() const override { return group_.rank().value; }
  int size() const override { return group_.size(); }
  void barrier() override { group_.barrier(); }
  std::function<void()> operation(const std::string& name, const Buffers& buffers) override;
  float* shared_memory(size_t elements) override {
    if (!shared_) return nullptr;
    memory_ = group_.allocate_shared(elements * sizeof(float));
    return memory_.as<float>().data();
  }

 private:
  void round_trip(muster::ConstBuffer out, muster::Buffer in);
  void exchange(const Buffers& buffers);

  bool shared_;
  muster::ProcessGroup group_ = muster::world();
  muster::SharedMemory memory_;
};

void Muster::round_trip(muster::ConstBuffer out, muster::Buffer in) {
  const GroupRank first{0}, last{size() - 1};
  if (rank() == first.value) {
    group_.send(out, last);
    group_.recv(in, last);
  } else if (rank() == last.value) {
    group_.recv(in, first);
    group_.send(out, first);
  }
}

void Muster::exchange(const Buffers& buffers) {
  const GroupRank other{size() - 1 - rank()};
  if (rank() != 0 && other.value != 0) return;
  const auto piece = [&](float* data, size_t start) {
    return muster::Buffer(data + start, std::min(muster::bench::kMessage, buffers.whole - start),
                          muster::DType::float32);
  };
  std::vector<muster::Work> sends;
  for (size_t start = 0; start < buffers.whole; start += muster::bench::kMessage)
    sends.push_back(group_.isend(piece(buffers.in, start), other));
  for (size_t start = 0; start < buffers.whole; start += muster::bench::kMessage)
    group_.recv(piece(buffers.out, start), other);
  for (muster::Work& send : sends)
    send.wait();
}

std::function<void()> Muster::operation(const std::string& name, const Buffers& buffers) {
  const muster::Buffer in(buffers.in, buffers.whole, muster::DType::float32);
  const muster::Buffer out(buffers.out, buffers.whole, muster::DType::float32);
  const muster::Buffer in_block(buffers.in, buffers.block, muster::DType::float32);
  const muster::Buffer out_block(buffers.out, buffers.block, muster::DType::float32);
  const GroupRank root{0};
  const std::map<std::string, std::function<void()>> operations{
      {"barrier", [this] { group_.barrier(); }},
      {"broadcast", [=, this] { group_.broadcast(in, root); }},
      {"reduce", [=, this] { group_.reduce(in, root); }},
      {"all_reduce", [=, this] { group_.all_reduce(in); }},
      {"gather", [=, this] { group_.gather(in_block, out, root); }},
      {"all_gather", [=, this] { group_.all_gather(in_block, out); }},
      {"scatter", [=, this] { group_.scatter(in, out_block, root); }},
      {"reduce_scatter", [=, this] { group_.reduce_scatter(in, out_block); }},
      {"all_to_all", [=, this] { group_.all_to_all(in, out); }},
      {"send_recv", [=, this] { round_trip(in, out); }},
      {"isend_recv", [=, this] { exchange(buffers); }},
  };
  const auto found = operations.find(name);
  return found == operations.end() ? nullptr : found->second;
}

}  // namespace

int main(int argc, char** argv) try {
  muster::init_process_group();
  {
    Muster library(argc < 2 || strcmp(argv[1], "--no-shared") != 0);
    muster::bench::serve(library);
  }
  muster::destroy_process_group();
} catch (const muster::DistributedError& error) {
  fprintf(stderr, "worker_bench: %s\n", error.what());
  return 1;
}

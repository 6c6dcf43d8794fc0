// A rank of worker_bench.py that uses MPI. worker_bench.py compiles it with worker_bench_rank.cc.
#include <algorithm>
#include <map>
#include <vector>

#include <mpi.h>

#include "tests/bench/worker_bench_rank.h"

namespace {

using muster::bench::Buffers;

class Mpi : public muster::bench::Library {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  std::function<void()> operation(const std::string& name, const Buffers& buffers) override;
  float* shared_memory(size_t /*elements*/) override { return nullptr; }

 private:
  void reduce(float* data, int count) const {
    const void* in = rank_ == 0 ? MPI_IN_PLACE : data;
    MPI_Reduce(in, data, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  }
  void round_trip(const float* out, float* in, int count) const;
  void exchange(const Buffers& buffers) const;

  int rank_ = 0;
  int size_ = 1;
};

void Mpi::round_trip(const float* out, float* in, int count) const {
  const int last = size_ - 1;
  if (rank_ == 0) {
    MPI_Send(out, count, MPI_FLOAT, last, 0, MPI_COMM_WORLD);
    MPI_Recv(in, count, MPI_FLOAT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (rank_ == last) {
    MPI_Recv(in, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(out, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
  }
}

void Mpi::exchange(const Buffers& buffers) const {
  const int other = size_ - 1 - rank_;
  if (rank_ != 0 && other != 0) return;
  const auto count = [&](size_t start) {
    return static_cast<int>(std::min(muster::bench::kMessage, buffers.whole - start));
  };
  std::vector<MPI_Request> sends;
  for (size_t start = 0; start < buffers.whole; start += muster::bench::kMessage) {
    sends.emplace_back();
    MPI_Isend(buffers.in + start, count(start), MPI_FLOAT, other, 0, MPI_COMM_WORLD, &sends.back());
  }
  for (size_t start = 0; start < buffers.whole; start += muster::bench::kMessage) {
    MPI_Recv(buffers.out + start, count(start), MPI_FLOAT, other, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
  }
  MPI_Waitall(static_cast<int>(sends.size()), sends.data(), MPI_STATUSES_IGNORE);
}

std::function<void()> Mpi::operation(const std::string& name, const Buffers& buffers) {
  float *in = buffers.in, *out = buffers.out;
  const int whole = static_cast<int>(buffers.whole), block = static_cast<int>(buffers.block);
  const MPI_Datatype type = MPI_FLOAT;
  const MPI_Comm world = MPI_COMM_WORLD;
  const std::map<std::string, std::function<void()>> operations{
      {"barrier", [=] { MPI_Barrier(world); }},
      {"broadcast", [=] { MPI_Bcast(in, whole, type, 0, world); }},
      {"reduce", [=, this] { reduce(in, whole); }},
      {"all_reduce", [=] { MPI_Allreduce(MPI_IN_PLACE, in, whole, type, MPI_SUM, world); }},
      {"gather", [=] { MPI_Gather(in, block, type, out, block, type, 0, world); }},
      {"all_gather", [=] { MPI_Allgather(in, block, type, out, block, type, world); }},
      {"scatter", [=] { MPI_Scatter(in, block, type, out, block, type, 0, world); }},
      {"reduce_scatter", [=] { MPI_Reduce_scatter_block(in, out, block, type, MPI_SUM, world); }},
      {"all_to_all", [=] { MPI_Alltoall(in, block, type, out, block, type, world); }},
      {"send_recv", [=, this] { round_trip(in, out, whole); }},
      {"isend_recv", [=, this] { exchange(buffers); }},
  };
  const auto found = operations.find(name);
  return found == operations.end() ? nullptr : found->second;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    Mpi library;
    muster::bench::serve(library);
  }
  MPI_Finalize();
}

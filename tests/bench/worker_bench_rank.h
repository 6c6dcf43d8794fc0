// A rank of worker_bench.py, independent of the library that performs its operations:
// worker_bench.cc and mpi_bench.cc give it a Library, gloo_bench.py is the same in Python.
//
// The rank connects to the Unix socket named by WORKER_BENCH_SOCKET, sends "RANK", and then blocks
// in read() between its commands, outside of any collective, so that it costs nothing while another
// library is measured. Commands are lines, the same for all ranks of a job at the same time:
//   check OPERATION BYTES                     performs it once on small whole numbers: "ok", or
//                                             the difference
//   time OPERATION BYTES WARM_UP ITERATIONS   microseconds per call on this rank, after a barrier
// The end of the connection ends the rank. BYTES are counted as in nccl-tests: those of a rank's
// larger buffer. Buffers of WORKER_BENCH_BYTES are allocated and touched before the first command.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace muster::bench {

inline constexpr size_t kMessage = 256;  // Elements of a message of isend_recv.

// The memory of one operation. `whole` elements are a multiple of the number of ranks.
struct Buffers {
  float* in = nullptr;
  float* out = nullptr;  // Unused if the operation is in place.
  size_t whole = 0;
  size_t block = 0;  // whole / ranks
};

class Library {
 public:
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  virtual ~Library() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void barrier() = 0;
  // One call of the operation on these buffers; root 0, sum. broadcast, reduce and all_reduce are
  // in place, the others go from `in` to `out`. send_recv is a round trip between rank 0 and the
  // last rank: from `in` of one to `out` of the other. isend_recv is both directions at once, in
  // messages of kMessage elements of which none is received before all are begun. Empty: there is
  // no such operation.
  virtual std::function<void()> operation(const std::string& name, const Buffers& buffers) = 0;
  // Memory for "shared_NAME", an operation on memory that the ranks of a node share: `elements` for
  // each rank; null if the library does not support it. Called once, by all ranks.
  virtual float* shared_memory(size_t elements) = 0;
};

// Serves commands until the connection ends. Ends the process with a message if that fails.
void serve(Library& library);

}  // namespace muster::bench

// What the processes of one mpirun, mpiexec or srun exchange through its PMI: rank 0 publishes its
// address, in values that every PMI can carry. The bytes received are not trusted. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster {

struct PmiAnswer {
  std::string host;  // The text that rank 0 published.
  std::string job;   // Identifies this launch: the same in all its processes.
  int rank = 0;
  int size = 0;  // The number of processes.

  friend bool operator==(const PmiAnswer&, const PmiAnswer&) = default;
};

inline constexpr size_t kPmiHostBytesMax = 1000;
inline constexpr int kPmiSizeMax = 1 << 24;

// Joins the text and a number that makes the job's id unique: PMI's own name for the launch may be
// one of 65,536 (Open MPI 4), or the same after a requeue (Slurm). Fails if the text is empty,
// longer than kPmiHostBytesMax or not UTF-8.
Result<std::string> pmi_record(std::string_view host, uint64_t unique);

// Splits the record into the values of pmi_key(0), pmi_key(1) and so on, each of at most
// `bytes_max` bytes: hexadecimal digits, then '+' if another value follows, else '.'.
// REQUIRES: bytes_max >= 3.
std::vector<std::string> pmi_values(std::string_view record, size_t bytes_max);
std::string pmi_key(size_t number);

// Inverse of pmi_values().
Result<std::string> gather_pmi_record(
    const std::function<Result<std::string>(const std::string& key)>& get);

struct PmiPlace {
  std::string name;  // PMI's name for this launch.
  int64_t rank = 0;
  int64_t size = 0;
};
Result<PmiAnswer> pmi_answer(const PmiPlace& place, std::string_view record);

// The child's output (pmi_child.h): one line of JSON. The last line counts, because libraries may
// print too. decode_pmi() fails with the child's error, or with its own if there is no answer.
std::string encode_pmi(const Result<PmiAnswer>& answer);
Result<PmiAnswer> decode_pmi(std::string_view printed);

// ---- the part of PMI-1 that finds rank 0's address. Hydra (MPICH, Intel MPI), `srun --mpi=pmi2`
// and Flux speak it: lines of text over the descriptor in PMI_FD, one answer for each request.
// There is no standard but MPICH: src/pmi/src/pmi_v1.c and src/pm/hydra/proxy/pmip_pmi_v1.c. The
// caller sends and reads the lines.

inline constexpr size_t kPmi1LineBytesMax = 4096;

struct Pmi1Question {
  int64_t rank = 0;  // PMI_RANK and PMI_SIZE, which are not part of the protocol.
  int64_t size = 0;
  std::string record;  // pmi_record(); only rank 0's is published.
};

// Sends a line and returns the next one received; both without the newline.
using Pmi1Exchange = std::function<Result<std::string>(const std::string& request)>;

// Returns once all processes of the launch have called it, or a request fails.
Result<PmiAnswer> ask_pmi1(const Pmi1Question& question, const Pmi1Exchange& exchange);

}  // namespace muster

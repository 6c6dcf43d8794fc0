// Ranks that record a call like a library that does not compare the calls itself: rank $CULPRIT
// passes another size than the others. With $ABORT rank 0 aborts in the call, once the others have
// reported through the pipe $FIFO that they are in it too; the others wait for ever. With $LEAVE
// "all" the call and all ranks end as if all were well; with "first" only rank 0 does, which makes
// its call after the others have made theirs.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "rendezvous/ring/ring_writer.h"

namespace {

using muster::ring::CallKind;
using muster::ring::RingWriter;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Returns false if the pipe cannot be used.
bool tell_rank_0(int rank, int size) {
  const int fd = open(variable("FIFO").c_str(), rank == 0 ? O_RDONLY : O_WRONLY);
  char byte = 0;
  if (rank > 0) return write(fd, &byte, 1) == 1;
  for (int told = 1; told < size; ++told) {
    if (read(fd, &byte, 1) != 1) return false;
  }
  return true;
}

}  // namespace

int main() {
  const int rank = std::stoi(variable("RANK"));
  const int size = std::stoi(variable("WORLD_SIZE"));
  std::string why;
  const auto writer =
      RingWriter::attach(variable("MUSTER_RECORD_FD"), muster::ring::Source::worker_lib, why);
  if (!writer) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 2;
  }
  const std::string ranks = "0-" + std::to_string(size - 1);
  const int group = writer->open_group(
      {.id = "world", .name = "world", .ranks = ranks, .size = size, .own_rank = rank});
  writer->set_state(group, muster::ring::GroupState::ready);
  const std::string leave = variable("LEAVE");
  if (leave == "first" && rank == 0 && !tell_rank_0(rank, size)) return 2;
  const muster::ring::Pending call =
      writer->called(group, 1,
                     {.kind = CallKind::all_reduce,
                      .type = muster::ring::ElementType::float32,
                      .reduction = muster::ring::Reduction::sum,
                      .is_synchronous = true,
                      .count = rank == std::stoi(variable("CULPRIT")) ? 2000U : 1000U},
                     nullptr);
  if (!leave.empty()) {
    writer->completed(call);
    if (leave == "all" || rank == 0) _exit(0);  // Libraries keep their rings to the end.
    if (!tell_rank_0(rank, size)) return 2;
  }
  if (!variable("ABORT").empty()) {
    if (!tell_rank_0(rank, size)) return 2;
    if (rank == 0) std::abort();
  }
  pause();
}

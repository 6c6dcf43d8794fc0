// Ranks without a GPU that call NCCL's profiler plugin as NCCL does, with interface version
// $VERSION: calls of all_reduce, and one fault ($FAULT) of rank $CULPRIT at call 31. The others
// then spin, like a program that waits for its GPU. Before the fault the ranks run freely, since
// nothing makes them wait for each other.
//
//   blocked_read   the culprit reads from $FIFO, then makes the call
//   other_size     it makes the call with another size
//   early_exit     it ends with 0 before the call
//   no_send        it does not send to the next rank, which receives
//   captured       all ranks capture their calls into a graph; the culprit reads from $FIFO
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "tests/fakes/fake_nccl_host.h"

namespace {

using muster::nccl::FakeCall;
using muster::nccl::FakeNccl;

constexpr int kCallsBefore = 30;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

void read_fifo() {
  const int fd = open(variable("FIFO").c_str(), O_RDONLY);
  char byte = 0;
  if (read(fd, &byte, 1) == 1) close(fd);
}

void tell_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::printf("fault %.6f\n", std::chrono::duration<double>(now).count());
  std::fflush(stdout);
}

}  // namespace

int main() {
  const int rank = std::stoi(variable("RANK"));
  const int size = std::stoi(variable("WORLD_SIZE"));
  const int culprit = std::stoi(variable("CULPRIT"));
  const std::string fault = variable("FAULT");
  FakeNccl nccl(variable("NCCL_PROFILER_PLUGIN"), std::stoi(variable("VERSION")));
  if (!nccl.is_loaded()) {
    std::fprintf(stderr, "no plugin: '%s'\n", variable("NCCL_PROFILER_PLUGIN").c_str());
    return 2;
  }
  const auto world = nccl.open("world", 0x1f00c3a29b7e4d51, size, rank);
  const FakeCall call{.is_captured = fault == "captured" && nccl.mask() != 0};
  for (int i = 0; i < kCallsBefore; ++i) {
    nccl.call(*world, {FakeCall{}});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (call.is_captured) nccl.call(*world, {call, call});
  if (call.is_captured) nccl.replay(*world);
  // Lets all ranks come here before the fault: a rank that is merely late is no fault.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  FakeCall next;
  if (rank == culprit) {
    tell_time();
    if (fault == "early_exit") return 0;
    if (fault == "other_size") next.count = 2000;
    if (fault == "blocked_read" || fault == "captured" || fault == "no_send") read_fifo();
  }
  if (fault == "no_send") {
    if (rank == culprit) nccl.call(*world, {{.function = "Send", .root = (rank + 1) % size}});
    if (rank == (culprit + 1) % size) nccl.call(*world, {{.function = "Recv", .root = culprit}});
  } else {
    nccl.call(*world, {next});
  }
  while (variable("STAYS") != "no")
    std::this_thread::yield();
}

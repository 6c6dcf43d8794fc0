// A rank of first_cause.py that uses muster's worker library:
//
//   library_rank FOLDER path              rank 0 opens a missing file; the others wait for it
//   library_rank FOLDER checkpoint        rank 0 writes a checkpoint to a missing folder
//   library_rank FOLDER abort RANK        that rank calls abort()
//   library_rank FOLDER mismatch RANK     that rank reduces a different number of elements
//   library_rank FOLDER absent RANK       that rank does not make the call that the others wait in
//   library_rank FOLDER stopped RANK      that rank is stopped by SIGSTOP
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "muster/distributed.h"

namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 700ms;

std::string folder;

// Records when this rank fails: before it causes the failure, or when it is told of one. Only the
// first call counts.
void stamp() {
  const std::string path = folder + "/stamp." + std::to_string(muster::rank());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (fd < 0 && errno == EEXIST) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const std::string text = std::to_string(std::chrono::nanoseconds(now).count());
  if (fd < 0 || write(fd, text.data(), text.size()) < 1) std::abort();
  close(fd);
}

void await_start() {
  while (access((folder + "/go").c_str(), F_OK) != 0)
    std::this_thread::sleep_for(1ms);
}

void reduce(size_t count, const muster::CallOptions& options = {}) {
  std::vector<float> gradients(count, 1.0F);
  muster::world().all_reduce(gradients, muster::ReduceOp::sum, options);
}

void do_wrong(const std::string& how) {
  stamp();
  if (how == "abort") muster::world().abort("the loss is not a number");
  if (how == "mismatch") reduce(1001);
  if (how == "stopped") raise(SIGSTOP);
  for (;;)
    pause();
}

void play(const std::string& how, int whose) {
  reduce(1000);
  std::ofstream(folder + "/ready." + std::to_string(muster::rank())) << "";
  const bool is_wrong = muster::rank() == whose;
  if (is_wrong || how == "path" || how == "checkpoint") await_start();
  if (how == "path") {
    muster::zero_first([] {
      stamp();
      if (!std::ifstream("/no/such/data")) throw std::runtime_error("cannot open /no/such/data");
    });
  }
  if (how == "checkpoint") {
    if (muster::rank() == 0) stamp();
    muster::save_checkpoint("/no/such/folder/model", std::string(1000, 'x'));
  }
  if (is_wrong) do_wrong(how);
  const bool late = how == "absent" || how == "stopped";
  if (late) await_start();
  reduce(1000, late ? muster::CallOptions{.timeout = kPatience} : muster::CallOptions{});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  folder = argv[1];
  muster::init_process_group();
  try {
    play(argv[2], argc > 3 ? std::atoi(argv[3]) : -1);
  } catch (const std::exception& error) {
    stamp();
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  muster::destroy_process_group();
}

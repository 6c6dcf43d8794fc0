// One rank prepares what the others then use: a download, an unpacked archive, a compiled kernel.
//
//   muster --nproc-per-node 4 zero_first /tmp/words.txt
//   muster --nproc-per-node 4 zero_first /no/such/folder/words.txt     (rank 0 fails: all are told)
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

#include <muster/distributed.h>

// Every rank calls it; only the first finds no file.
static std::string open_or_make(const std::string& path) {
  if (!std::ifstream(path)) {
    std::printf("rank %d makes %s\n", muster::rank(), path.c_str());
    std::fflush(stdout);
    std::ofstream file(path);
    file << "attention is all you need\n";
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: zero_first FILE\n");
    return 2;
  }
  const std::string path = argv[1];
  muster::init_process_group();
  // For a disk of each node: local_zero_first. For one that all nodes share: zero_first.
  const std::string words = muster::local_zero_first([&] { return open_or_make(path); });
  std::printf("rank %d read: %s\n", muster::rank(), words.c_str());
  muster::destroy_process_group();
} catch (const std::exception& error) {  // A DistributedError, or what open_or_make threw.
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

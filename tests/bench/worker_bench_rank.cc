#include "tests/bench/worker_bench_rank.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace muster::bench {
namespace {

constexpr size_t kPeriod = 11;
constexpr std::string_view kShared = "shared_";

[[noreturn]] void fail(const std::string& why) {
  fprintf(stderr, "worker_bench: %s\n", why.c_str());
  exit(1);
}

const char* variable(const char* name) {
  const char* value = getenv(name);
  if (value == nullptr)
    fail(std::string(name) + " is not set: worker_bench.py starts this program");
  return value;
}

int connect_to_driver() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = variable("WORKER_BENCH_SOCKET");
  if (path.size() >= sizeof address.sun_path) fail("the socket's path is too long: " + path);
  memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    fail("connecting to " + path + " failed");
  return fd;
}

// Returns the value of `rank` at `index` before a check: a small whole number, so sums are exact.
float value(int rank, size_t index) {
  return static_cast<float>((index + 4 * static_cast<size_t>(rank)) % kPeriod);
}

float sum(int ranks, size_t index) {
  float total = 0;
  for (int rank = 0; rank < ranks; ++rank)
    total += value(rank, index);
  return total;
}

// The buffers of this rank, and their expected contents after an operation.
class Rank {
 public:
  explicit Rank(Library& library)
      : library_(library),
        elements_(strtoull(variable("WORKER_BENCH_BYTES"), nullptr, 10) / sizeof(float)),
        in_(elements_),
        out_(elements_),
        shared_(library.shared_memory(elements_)) {}

  std::string check(const std::string& name, size_t bytes);
  double time(const std::string& name, size_t bytes, size_t warm_up, size_t iterations);

 private:
  struct Call {
    std::function<void()> perform;
    Buffers buffers;
    std::string name;
  };
  Call call(std::string name, size_t bytes);
  // The number of elements of the result on this rank; they are in `in` or in `out`.
  size_t result_elements(const Call& call) const;
  float expected(const std::string& name, size_t index, size_t block) const;
  bool in_place(const std::string& name) const {
    return name == "broadcast" || name == "reduce" || name == "all_reduce";
  }
  bool is_root() const { return library_.rank() == 0; }
  bool is_end() const { return is_root() || library_.rank() == library_.size() - 1; }

  Library& library_;
  size_t elements_;
  std::vector<float> in_, out_;
  float* shared_;
};

Rank::Call Rank::call(std::string name, size_t bytes) {
  Buffers buffers{in_.data(), out_.data(), bytes / sizeof(float), 0};
  if (name.starts_with(kShared)) {
    if (shared_ == nullptr) fail("this library has no shared memory for " + name);
    name.erase(0, kShared.size());
    buffers.in = shared_;
  }
  if (buffers.whole > elements_) fail("the buffers are too small for " + name);
  buffers.block = buffers.whole / static_cast<size_t>(library_.size());
  auto perform = library_.operation(name, buffers);
  if (!perform) fail("there is no operation " + name);
  return {std::move(perform), buffers, std::move(name)};
}

size_t Rank::result_elements(const Call& call) const {
  const std::string& name = call.name;
  if (name == "barrier" || ((name == "gather" || name == "reduce") && !is_root())) return 0;
  if (name == "send_recv" || name == "isend_recv") return is_end() ? call.buffers.whole : 0;
  return name == "scatter" || name == "reduce_scatter" ? call.buffers.block : call.buffers.whole;
}

float Rank::expected(const std::string& name, size_t index, size_t block) const {
  const auto me = static_cast<size_t>(library_.rank());
  const auto sender = [&] { return static_cast<int>(index / block); };
  if (name == "broadcast") return value(0, index);
  if (name == "reduce" || name == "all_reduce") return sum(library_.size(), index);
  if (name == "gather" || name == "all_gather") return value(sender(), index % block);
  if (name == "scatter") return value(0, me * block + index);
  if (name == "reduce_scatter") return sum(library_.size(), me * block + index);
  if (name == "all_to_all") return value(sender(), me * block + index % block);
  return value(is_root() ? library_.size() - 1 : 0, index);  // send_recv, isend_recv
}

std::string Rank::check(const std::string& name, size_t bytes) {
  const Call made = call(name, bytes);
  const Buffers& buffers = made.buffers;
  for (size_t i = 0; i < buffers.whole; ++i)
    buffers.in[i] = value(library_.rank(), i);
  std::fill_n(buffers.out, buffers.whole, -1.0F);
  made.perform();
  const float* result = in_place(made.name) ? buffers.in : buffers.out;
  std::string verdict = "ok";
  for (size_t i = 0; i < result_elements(made); ++i) {
    const float wanted = expected(made.name, i, buffers.block);
    if (result[i] == wanted) continue;
    verdict = "element " + std::to_string(i) + " is " + std::to_string(result[i]) + " instead of " +
              std::to_string(wanted);
    break;
  }
  // Zeros stay zero however often they are summed in place.
  std::fill_n(buffers.in, buffers.whole, 0.0F);
  return verdict;
}

double Rank::time(const std::string& name, size_t bytes, size_t warm_up, size_t iterations) {
  using Clock = std::chrono::steady_clock;
  const Call made = call(name, bytes);
  for (size_t i = 0; i < warm_up; ++i)
    made.perform();
  library_.barrier();
  const auto began = Clock::now();
  for (size_t i = 0; i < iterations; ++i)
    made.perform();
  const std::chrono::duration<double, std::micro> took = Clock::now() - began;
  return took.count() / static_cast<double>(iterations);
}

std::string answer(Rank& rank, const std::string& line) {
  std::istringstream words(line);
  std::string what, name;
  size_t bytes = 0, warm_up = 0, iterations = 1;
  words >> what >> name >> bytes;
  if (what == "check") return rank.check(name, bytes);
  words >> warm_up >> iterations;
  if (what != "time" || iterations == 0) fail("this is no command: " + line);
  char text[64];
  snprintf(text, sizeof text, "%.4f", rank.time(name, bytes, warm_up, iterations));
  return text;
}

}  // namespace

void serve(Library& library) {
  Rank rank(library);
  const int fd = connect_to_driver();
  dprintf(fd, "%d\n", library.rank());
  FILE* commands = fdopen(fd, "r");
  char* line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, commands) > 0) {
    if (dprintf(fd, "%s\n", answer(rank, line).c_str()) < 0) break;
  }
  free(line);
  fclose(commands);
}

}  // namespace muster::bench

// The workers of the benchmarks, and the check of what they print. Built statically, so that its
// own start costs next to nothing compared with the launcher's. Sub-commands:
//   stamp DIR exit|wait   writes DIR/start.ATTEMPT.RANK: the start time of main, and the pid
//   lines DIR BYTES       the same, then prints about BYTES of numbered lines through stdio
//   check WORKERS BYTES   reads them from stdin; prints "good G torn T lost L disordered D"
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr size_t kPayload = 66;  // A line is 80 bytes: "r07 000000123 ", the payload, a newline.
constexpr size_t kLine = 14 + kPayload;

const char* variable(const char* name, const char* other) {
  const char* value = getenv(name);
  if (value == nullptr) value = getenv(other);
  return value == nullptr ? "0" : value;
}

int rank() {
  return atoi(variable("RANK", "OMPI_COMM_WORLD_RANK"));
}

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Renamed into place, so that a reader never sees an incomplete file.
void write_stamp(const std::string& folder, int64_t began) {
  const std::string name = folder + "/start." + variable("TORCHELASTIC_RESTART_COUNT", "") + "." +
                           std::to_string(rank());
  const std::string unfinished = name + ".tmp";
  FILE* file = fopen(unfinished.c_str(), "w");
  if (file == nullptr) exit(9);
  fprintf(file, "%lld %d\n", static_cast<long long>(began), getpid());
  fclose(file);
  rename(unfinished.c_str(), name.c_str());
}

int print_lines(size_t bytes) {
  char line[kLine + 1];
  snprintf(line, sizeof line, "r%02d 000000000 ", rank());
  for (size_t number = 0; number < bytes / kLine; ++number) {
    size_t rest = number;
    for (char* digit = line + 12; digit > line + 3; --digit, rest /= 10)
      *digit = static_cast<char>('0' + rest % 10);
    memset(line + 14, static_cast<char>('a' + number % 26), kPayload - 1);
    line[kLine - 1] = '\n';
    if (fwrite(line, 1, kLine, stdout) != kLine) return 1;
  }
  return fflush(stdout) == 0 ? 0 : 1;
}

struct Tally {
  std::vector<size_t> next;  // The next expected number of each rank.
  size_t good = 0, torn = 0, disordered = 0;
};

size_t digits(std::string_view text) {
  size_t value = 0;
  for (const char c : text)
    value = value * 10 + static_cast<size_t>(c - '0');
  return value;
}

bool is_number(std::string_view text) {
  for (const char c : text)
    if (isdigit(static_cast<unsigned char>(c)) == 0) return false;
  return true;
}

// A line without its newline; it may have a prefix like "[default7]:".
void check_line(std::string_view line, Tally& tally) {
  const size_t prefix = !line.empty() && line[0] == '[' ? line.find("]:") : std::string_view::npos;
  if (prefix != std::string_view::npos) line.remove_prefix(prefix + 2);
  const bool shaped = line.size() == kLine - 1 && line[0] == 'r' && is_number(line.substr(1, 2)) &&
                      is_number(line.substr(4, 9));
  const size_t number = shaped ? digits(line.substr(4, 9)) : 0;
  const size_t from = shaped ? digits(line.substr(1, 2)) : tally.next.size();
  char payload[kPayload - 1];
  memset(payload, static_cast<char>('a' + number % 26), sizeof payload);
  if (from >= tally.next.size() || memcmp(line.data() + 14, payload, sizeof payload) != 0) {
    ++tally.torn;
    return;
  }
  ++tally.good;
  if (number != tally.next[from]) ++tally.disordered;
  tally.next[from] = number + 1;
}

int check(size_t workers, size_t bytes) {
  Tally tally{.next = std::vector<size_t>(workers)};
  std::vector<char> buffer(4 << 20);
  size_t filled = 0;
  ssize_t got = 0;
  while ((got = read(0, buffer.data() + filled, buffer.size() - filled)) > 0) {
    filled += static_cast<size_t>(got);
    const char* at = buffer.data();
    const char* end = at + filled;
    while (const void* newline = memchr(at, '\n', static_cast<size_t>(end - at))) {
      const char* stop = static_cast<const char*>(newline);
      check_line({at, static_cast<size_t>(stop - at)}, tally);
      at = stop + 1;
    }
    filled = static_cast<size_t>(end - at);
    if (filled == buffer.size()) filled = 0, ++tally.torn;  // No line is that long.
    memmove(buffer.data(), at, filled);
  }
  if (filled > 0) ++tally.torn;
  const size_t wanted = workers * (bytes / kLine);
  printf("good %zu torn %zu lost %zu disordered %zu\n", tally.good, tally.torn,
         wanted > tally.good ? wanted - tally.good : 0, tally.disordered);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t began = now_ns();
  const std::string_view what = argc == 4 ? argv[1] : "";
  if (what == "check") return check(strtoul(argv[2], nullptr, 10), strtoul(argv[3], nullptr, 10));
  if (what != "stamp" && what != "lines") return 64;
  write_stamp(argv[2], began);
  if (what == "lines") return print_lines(strtoul(argv[3], nullptr, 10));
  while (strcmp(argv[3], "wait") == 0)
    pause();
  return 0;
}

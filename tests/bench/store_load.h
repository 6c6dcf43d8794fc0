// What the parts of store_load share: requests of PyTorch's store protocol as bytes, a validated
// connection, the clock, and the resource usage of the server's process. The generator shares no
// code with the server or its client, so that it can measure both and a mistake in one codec cannot
// hide behind the same mistake in the other. Anything unexpected ends the program with a line that
// says what: a benchmark of wrong answers is worth nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster {

struct LoadOptions {
  std::string mode;
  std::string op = "ping";
  uint16_t port = 0;
  int server = 0;  // The process whose CPU and memory are measured; 0: none.
  size_t connections = 1;
  double seconds = 1;
  size_t depth = 1;                            // Requests per write.
  size_t count = 1;                            // Keys, waiters, idle connections or arrivals.
  size_t bytes = 1;                            // Size of a value.
  size_t rounds = 1;                           // Repetitions over the same connections.
  std::string key = "/default_pg/0//cpu//0/";  // Prefix of the keys; as gloo names its ranks.
  std::string suffix;                          // Makes the keys of this run new.
};

// Name and number, in the order of printing.
using Figures = std::vector<std::pair<std::string, double>>;

[[noreturn]] void give_up(const std::string& what);
[[noreturn]] void give_up_errno(const std::string& what);

int64_t now_ns();
int64_t cpu_ns_of(int process);        // Sum over all threads.
int64_t memory_bytes_of(int process);  // RssAnon: memory that the process itself has filled.

enum class Op : uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kMultiSet = 11,
  kPing = 13,
};

std::string op_only(Op op);
std::string number(uint64_t value);          // 8 bytes, little-endian.
std::string counted(std::string_view text);  // Length and bytes.
std::string ping(uint32_t nonce);
std::string ping_reply(uint32_t nonce);
std::string set(std::string_view key, std::string_view value);
std::string keys_request(Op op, const std::vector<std::string>& keys);

// A connected TCP socket, closed by reset so that ten thousand of them leave no port in TIME_WAIT.
class Connection {
 public:
  explicit Connection(uint16_t port);         // Connects, validates and pings.
  static Connection arriving(uint16_t port);  // Starts to connect and does not wait.
  Connection(Connection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Connection& operator=(Connection&& other) noexcept;
  ~Connection() { close(); }

  int fd() const { return fd_; }
  void close();
  void set_blocking(bool blocking);
  void send_all(std::string_view bytes);
  std::string read_exactly(size_t size);
  std::string ask(std::string_view request, size_t reply_size);

 private:
  Connection() = default;
  int fd_ = -1;
};

std::string handshake(uint32_t nonce);  // VALIDATE and PING, as PyTorch's client sends them.

Figures wake_waiters(const LoadOptions& options);
Figures hold_idle(const LoadOptions& options);
Figures storm(const LoadOptions& options);

}  // namespace muster

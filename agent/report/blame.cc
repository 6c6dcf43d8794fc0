#include "agent/report/blame.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

using Ranks = std::vector<int>;

constexpr size_t kRanksMax = 4096;  // Limit for hostile text; more are not listed.

std::optional<int> take_rank(std::string_view& text) {
  return text.starts_with('-') ? std::nullopt : take_number<int>(text);
}

bool take(std::string_view& text, std::string_view part) {
  if (!text.starts_with(part)) return false;
  text.remove_prefix(part.size());
  return true;
}

// Takes "1, 2 and 3" off the front.
Ranks take_numbers(std::string_view& text) {
  Ranks ranks;
  while (const std::optional<int> rank = take_rank(text)) {
    if (ranks.size() < kRanksMax) ranks.push_back(*rank);
    std::string_view next = text;
    if (!take(next, ", ") && !take(next, " and ") && !take(next, ",")) break;
    if (next.empty() || !is_digit(next.front())) break;
    text = next;
  }
  return ranks;
}

// Applies `read` to the text after the first `phrase`; no ranks if it does not occur.
template <typename Read>
Ranks behind(std::string_view words, std::string_view phrase, const Read& read) {
  const std::optional<std::string_view> rest = text_after(words, phrase);
  return rest ? read(*rest) : Ranks();
}

// "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 2000 ms"; the first Rank is the writer.
Ranks before_failed_to_pass(std::string_view words) {
  words = words.substr(0, words.find(" failed to pass monitoredBarrier"));
  const size_t at = words.rfind("Rank");
  if (at == std::string_view::npos) return {};
  words.remove_prefix(at + std::string_view("Rank").size());
  take(words, "s");
  return take(words, " ") ? take_numbers(words) : Ranks();
}

// "from rank 0", "from rank: 0"; in one place torch puts two spaces before "rank".
Ranks behind_from_rank(std::string_view words) {
  return behind(words, "from ", [](std::string_view rest) {
    take(rest, " ");
    if (!take(rest, "rank")) return Ranks();
    take(rest, ":");
    take(rest, " ");
    return take_numbers(rest);
  });
}

// JAX puts each task on its own line: "1", or "/job:jax_worker/replica:0/task:1".
Ranks tasks_on_lines(std::string_view words) {
  constexpr std::string_view kTask = "/task:";
  Ranks ranks;
  for (size_t at = words.find('\n'); at != std::string_view::npos; at = words.find('\n')) {
    words.remove_prefix(at + 1);
    std::string_view line = words.substr(0, words.find('\n'));
    const size_t task = line.find(kTask);
    if (line.starts_with("/job:") && task != line.npos) line.remove_prefix(task + kTask.size());
    const std::optional<int> rank = take_rank(line);
    if (!rank || line.find_first_not_of(" \t,") != std::string_view::npos) break;
    if (ranks.size() < kRanksMax) ranks.push_back(*rank);
  }
  return ranks;
}

Ranks unhealthy_tasks(std::string_view words) {
  return behind(words, "(stopped sending heartbeats)", tasks_on_lines);
}

Ranks tasks_not_at_barrier(std::string_view words) {
  return behind(words, "timed out task names:", tasks_on_lines);
}

// A message that blames a peer: it contains all of `words`. `type`: text that the exception's type
// must contain, for words that alone prove nothing.
struct Saying {
  std::string_view type;
  std::array<std::string_view, 2> words;
  Ranks (*ranks)(std::string_view) = nullptr;  // Reads the ranks that it names; null: none.
  bool is_hearsay = false;
};

constexpr std::string_view kGloo = "gloo/transport/";
constexpr std::string_view kWatchdog = "Watchdog caught collective operation timeout";

// Messages that name ranks come before those that do not.
constexpr std::array kBlamingSayings = {
    // torch's monitored_barrier(): rank 0 names the missing ranks, the others name rank 0.
    Saying{"", {"failed to pass monitoredBarrier"}, before_failed_to_pass},
    Saying{"", {"successfully reached monitoredBarrier", "from rank "}, behind_from_rank},
    // Gloo's TCP transport.
    Saying{"", {kGloo, "Connection closed by peer"}},
    Saying{"", {kGloo, "Connection reset by peer"}},
    Saying{"", {kGloo, "Connection refused"}},
    Saying{"", {kGloo, "Broken pipe"}},
    Saying{"", {kGloo, "Read error ["}},
    Saying{"", {kGloo, "Write error ["}},
    Saying{"", {kGloo, "Read timeout "}},
    Saying{"", {kGloo, "Write timeout "}},
    Saying{"", {kGloo, "Connect timeout "}},
    Saying{"", {kGloo, "Timed out waiting "}},
    Saying{"", {kGloo, "timed out connecting"}},
    Saying{"", {kGloo, "Socket closed "}},
    Saying{"", {kGloo, "Socket unexpectedly closed"}},
    Saying{"", {"Application timeout caused pair closure"}},
    Saying{"", {"Gloo connectFullMesh failed with "}},
    // The client of torch's TCPStore, whose errors were plain RuntimeErrors before torch 2.1.
    Saying{"", {"Connection was likely closed. Did the remote server shutdown or crash?"}},
    Saying{"", {"Timed out initializing process group in store based barrier"}},
    Saying{"DistNetworkError", {"Connection reset by peer"}},
    Saying{"DistNetworkError", {"Broken pipe"}},
    Saying{"DistNetworkError", {"Socket Timeout"}},
    Saying{"DistNetworkError", {"The client socket has timed out after "}},
    Saying{"DistNetworkError", {"The client socket has failed to connect to "}},
    Saying{"DistStoreError", {"wait timeout after "}},
    Saying{"DistStoreError", {"Socket Timeout"}},
    Saying{"DistStoreError", {"barrier timeout after "}},
    Saying{"DistStoreError", {"Timeout waiting for key: "}},
    Saying{"DistStoreError", {"waiting for clients. ", " clients joined"}},
    // torch's NCCL backend, and NCCL itself.
    Saying{"", {"is setting up NCCL communicator", "but store->get("}},
    Saying{"", {"remote error detected from rank"}, behind_from_rank},
    // The rank that sends the flight recorder's signal has itself waited.
    Saying{"", {"dump signal due to a collective timeout from this local rank"}},
    Saying{"", {"dump signal due to a collective timeout from"}, nullptr, /*is_hearsay=*/true},
    Saying{"", {"dump signal from another rank"}, nullptr, /*is_hearsay=*/true},
    Saying{"", {"to dump debug info, due to collective timeout"}, nullptr, /*is_hearsay=*/true},
    Saying{"", {kWatchdog}},
    Saying{"", {"NCCL communicator was aborted"}},
    // The dump thread ended with the main thread, after an error that was reported earlier.
    Saying{"", {"watchdog thread terminated with exception: std::future_error"}},
    Saying{"", {"WorkNCCL", "timed out in blocking wait"}},
    Saying{"", {"ncclRemoteError"}},
    Saying{"", {"remote process exited or there was a network error"}},
    Saying{"", {"Connection closed by remote peer"}},
    Saying{"", {"Call to recv from ", "Connection reset by peer"}},
    Saying{"", {"Call to recv from ", "Broken pipe"}},
    Saying{"", {"Call to send to ", "Connection reset by peer"}},
    Saying{"", {"Call to send to ", "Broken pipe"}},
    Saying{"", {"Got completion from peer "}},
    // JAX's coordination service.
    Saying{"", {"tasks are unhealthy (stopped sending heartbeats)"}, unhealthy_tasks},
    Saying{"", {"Barrier timed out", "task names:"}, tasks_not_at_barrier},
    Saying{"", {"Either the leader task was preempted/died/restarted"}},
    Saying{"", {"JAX distributed service detected fatal errors"}},
    Saying{"", {"another task died"}},
    // Open MPI's TCP transport, Horovod, TensorPipe.
    Saying{"", {"An MPI communication peer process has unexpectedly disconnected"}},
    Saying{"", {"MPI_ERR_PROC_FAILED"}},
    Saying{"HorovodInternalError", {""}},
    Saying{"", {"(this error originated at tensorpipe/", "eof"}},
    // Kernel error texts; the type shows that they concern a connection.
    Saying{"system_error", {"Connection reset by peer"}},
    Saying{"system_error", {"Connection refused"}},
    Saying{"system_error", {"Broken pipe"}},
    Saying{"TimeoutError", {"Connection timed out"}},
};

// Exception types that prove the writer's own mistake, whatever the message quotes.
bool is_own_type(std::string_view name) {
  return is_one_of(
      name,
      {"ArithmeticError",   "AssertionError",     "AttributeError",      "FileExistsError",
       "FileNotFoundError", "FloatingPointError", "ImportError",         "IndentationError",
       "IndexError",        "IsADirectoryError",  "JSONDecodeError",     "KeyError",
       "KeyboardInterrupt", "LookupError",        "MemoryError",         "ModuleNotFoundError",
       "NameError",         "NotADirectoryError", "NotImplementedError", "OutOfMemoryError",
       "OverflowError",     "PermissionError",    "RecursionError",      "SyntaxError",
       "TypeError",         "UnboundLocalError",  "UnicodeDecodeError",  "UnicodeEncodeError",
       "ValidationError",   "ValueError",         "ZeroDivisionError"});
}

// Texts that prove the same, even below a line about connections.
constexpr std::array<std::string_view, 7> kOwnWords = {
    "Address already in use",      "address already in use", "EADDRINUSE",
    "No space left on device",     "CUDA out of memory",     "(gai error: ",
    "has failed to listen on any",
};

std::string_view last_component(std::string_view type) {
  const size_t dot = type.find_last_of(".:");
  return dot == std::string_view::npos ? type : type.substr(dot + 1);
}

bool is_own(std::string_view type, std::string_view words) {
  const auto said = [&](std::string_view own) { return contains(words, own); };
  return is_own_type(last_component(type)) || std::ranges::any_of(kOwnWords, said);
}

// Python's built-in connection errors are printed without a module; the ConnectionError of
// requests.exceptions is about a web server. An EOFError with text is about a file or keyboard.
bool is_pythons_connection_error(std::string_view type, std::string_view words) {
  return is_one_of(type, {"ConnectionResetError", "ConnectionRefusedError",
                          "ConnectionAbortedError", "BrokenPipeError"}) ||
         (type == "EOFError" && words.empty());
}

bool says(const Saying& saying, std::string_view type, std::string_view words) {
  return contains(last_component(type), saying.type) && contains(words, saying.words[0]) &&
         contains(words, saying.words[1]);
}

// torch 2.0 and older: a RuntimeError with just this message came from the store's client.
bool is_bare_connection_error(std::string_view type, std::string_view words) {
  return type == "RuntimeError" &&
         is_one_of(words, {"Connection reset by peer", "Broken pipe", "Socket Timeout",
                           "Stop_waiting response is expected"});
}

Blame::About about(std::string_view words) {
  return contains(words, "imed out") || contains(words, "timeout") ? Blame::About::timeout
                                                                   : Blame::About::loss;
}

Blame tidied(Blame blame) {
  std::ranges::sort(blame.ranks);
  const auto repeated = std::ranges::unique(blame.ranks);
  blame.ranks.erase(repeated.begin(), repeated.end());
  return blame;
}

}  // namespace

std::optional<Blame> blame_of(std::string_view type, std::string_view words) {
  if (is_own(type, words)) return {};
  if (is_pythons_connection_error(type, words)) return Blame{.any_connection = true};
  if (is_bare_connection_error(type, words)) return Blame{};
  for (const Saying& saying : kBlamingSayings) {
    if (!says(saying, type, words)) continue;
    Ranks ranks = saying.ranks == nullptr ? Ranks() : saying.ranks(words);
    return tidied({std::move(ranks), false, saying.is_hearsay, about(words)});
  }
  return {};
}

Blame merged(const Blame& one, const Blame& other) {
  Blame both = one;
  both.ranks.insert(both.ranks.end(), other.ranks.begin(), other.ranks.end());
  both.any_connection = one.any_connection && other.any_connection;
  both.is_hearsay = one.is_hearsay && other.is_hearsay;
  both.about = std::max(one.about, other.about);
  return tidied(std::move(both));
}

}  // namespace muster

// Loads any store server that speaks PyTorch's protocol, and prints one line of JSON.
//
//   store_load closed --op OP -c CONNECTIONS -s SECONDS    each has one request outstanding
//   store_load pipelined --op OP -c CONNECTIONS --depth D  two writes of D requests outstanding
//   store_load multi_set --count PAIRS                     one request, until the next is answered
//   store_load check --count KEYS [--key PREFIX]           one request for keys that all exist
//   store_load waiters --count W --rounds R                one SET until W connections are woken
//   store_load idle --count N                              memory of N validated connections
//   store_load storm --count N --rounds R                  an old client's pings while N connect
//
// OP: ping get add check wait cas set setget torch_get. For all modes: --port, --server PID (whose
// CPU and memory are measured), --bytes of a value, --suffix that makes the keys new. One thread;
// only `storm` pings from a second one.
#include "tests/bench/store_load.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include <sys/epoll.h>
#include <sys/socket.h>

namespace muster {
namespace {

constexpr double kWarmUp = 0.1;  // Seconds whose requests are not counted.
// How long a pipelining client polls for answers before it sleeps: otherwise its own wake-ups would
// be most of what is measured of a fast server.
constexpr int64_t kAwakeNs = 50'000;

// One write and the expected reply. If the reply's bytes vary, only its size is checked.
struct Step {
  std::string request;
  std::string reply;
  size_t reply_size = 0;
};

Step step_of(std::string request, std::string reply) {
  const size_t size = reply.size();
  return {std::move(request), std::move(reply), size};
}

Step repeated(const Step& step, size_t times) {
  Step all;
  for (size_t i = 0; i < times; ++i) {
    all.request += step.request;
    all.reply += step.reply;
  }
  all.reply_size = step.reply_size * times;
  return all;
}

// Requests of one operation on a key of the connection; each step waits for the one before.
std::vector<Step> steps_of(const std::string& op, const std::string& key,
                           const std::string& value) {
  const std::string missing = number(0), there("\0", 1);
  const std::string get = op_only(Op::kGet) + counted(key);
  const std::string wait = keys_request(Op::kWait, {key});
  if (op == "ping") return {step_of(ping(77), ping_reply(77))};
  if (op == "get") return {step_of(get, counted(value))};
  if (op == "add") return {{op_only(Op::kAdd) + counted(key + "n") + number(1), "", 8}};
  if (op == "check") return {step_of(keys_request(Op::kCheck, {key}), there)};
  if (op == "wait") return {step_of(wait, there)};
  if (op == "cas") {
    return {step_of(op_only(Op::kCompareSet) + counted(key) + counted(value) + counted(value),
                    counted(value))};
  }
  if (op == "set") return {step_of(set(key, value) + ping(78), ping_reply(78))};
  if (op == "setget") return {step_of(set(key, value) + get, counted(value))};
  if (op == "torch_get") return {step_of(wait, there), step_of(get, counted(value))};
  give_up("no operation is called " + op);
}

// A connection that keeps `window` writes outstanding.
class Flow {
 public:
  Flow(uint16_t port, std::vector<Step> steps, size_t window)
      : line_(port), steps_(std::move(steps)), window_(window) {
    line_.set_blocking(false);
  }

  int fd() const { return line_.fd(); }
  size_t answered() const { return answered_; }
  bool wants_to_write() const { return !unsent_.empty(); }

  void write_more() {
    while (true) {
      if (unsent_.empty()) {
        if (outstanding_ == window_) return;
        unsent_ = steps_[to_send_].request;
        to_send_ = (to_send_ + 1) % steps_.size();
        ++outstanding_;
        began_ = now_ns();
      }
      const ssize_t sent = send(line_.fd(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) return;
      if (sent < 0) give_up_errno("send");
      unsent_.remove_prefix(static_cast<size_t>(sent));
    }
  }

  // Appends the duration of each completed round of steps.
  void read_more(std::vector<char>& scratch, std::vector<int64_t>& latencies) {
    const ssize_t got = recv(line_.fd(), scratch.data(), scratch.size(), 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got < 0) give_up_errno("recv");
    if (got == 0) give_up("the server has closed a connection under load");
    std::string_view bytes(scratch.data(), static_cast<size_t>(got));
    while (!bytes.empty())
      consume(bytes, latencies);
  }

 private:
  void consume(std::string_view& bytes, std::vector<int64_t>& latencies) {
    if (outstanding_ == 0) give_up("an answer to no request");
    const Step& step = steps_[to_read_];
    const size_t size = std::min(bytes.size(), step.reply_size - filled_);
    if (!step.reply.empty() && memcmp(step.reply.data() + filled_, bytes.data(), size) != 0)
      give_up("a wrong answer");
    bytes.remove_prefix(size);
    filled_ += size;
    if (filled_ < step.reply_size) return;
    filled_ = 0;
    --outstanding_;
    to_read_ = (to_read_ + 1) % steps_.size();
    spent_ += now_ns() - began_;
    if (to_read_ != 0) return;
    ++answered_;
    latencies.push_back(std::exchange(spent_, 0));
  }

  Connection line_;
  std::vector<Step> steps_;
  size_t window_;
  std::string_view unsent_;
  size_t to_send_ = 0, to_read_ = 0, outstanding_ = 0, filled_ = 0, answered_ = 0;
  int64_t began_ = 0, spent_ = 0;
};

void watch(int epoll, int operation, Flow& flow) {
  epoll_event event{.events = EPOLLIN | (flow.wants_to_write() ? uint32_t{EPOLLOUT} : 0U),
                    .data = {.ptr = &flow}};
  if (epoll_ctl(epoll, operation, flow.fd(), &event) != 0) give_up_errno("epoll_ctl");
}

void turn(int epoll, bool stay_awake, std::vector<char>& scratch, std::vector<int64_t>& latencies) {
  epoll_event events[256];
  int ready = 0;
  for (const int64_t began = now_ns(); stay_awake && ready == 0 && now_ns() - began < kAwakeNs;)
    ready = epoll_wait(epoll, events, 256, 0);
  if (ready == 0) ready = epoll_wait(epoll, events, 256, 5000);
  if (ready < 0) give_up_errno("epoll_wait");
  if (ready == 0) give_up("no answer within 5 s");
  for (int i = 0; i < ready; ++i) {
    Flow& flow = *static_cast<Flow*>(events[i].data.ptr);
    const bool wanted = flow.wants_to_write();
    if ((events[i].events & EPOLLIN) != 0) flow.read_more(scratch, latencies);
    flow.write_more();
    if (flow.wants_to_write() != wanted) watch(epoll, EPOLL_CTL_MOD, flow);
  }
}

size_t answered_by(const std::vector<Flow>& flows) {
  size_t sum = 0;
  for (const Flow& flow : flows)
    sum += flow.answered();
  return sum;
}

double at_quantile(std::vector<int64_t>& values, double quantile) {
  if (values.empty()) return 0;
  const auto place = static_cast<size_t>(quantile * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(place), values.end());
  return static_cast<double>(values[place]) / 1e3;
}

void check_counters(const LoadOptions& options, const std::vector<Flow>& flows,
                    const std::vector<std::string>& keys) {
  Connection line(options.port);
  for (size_t i = 0; i < flows.size(); ++i) {
    const std::string value = line.ask(op_only(Op::kAdd) + counted(keys[i] + "n") + number(0), 8);
    uint64_t sum = 0;
    memcpy(&sum, value.data(), 8);
    // Writes that were in flight when the time was over may or may not be included.
    if (sum < flows[i].answered() * options.depth) give_up("the server has lost additions");
  }
}

Figures run_flows(const LoadOptions& options, size_t window) {
  std::vector<std::string> keys;
  std::vector<Flow> flows;
  const std::string value(options.bytes, 'v');
  flows.reserve(options.connections);
  Connection setter(options.port);
  for (size_t i = 0; i < options.connections; ++i) {
    keys.push_back("/load" + options.suffix + std::to_string(i));
    setter.ask(set(keys.back(), value) + ping(1), 4);
    std::vector<Step> steps = steps_of(options.op, keys.back(), value);
    for (Step& step : steps)
      step = repeated(step, options.depth);
    flows.emplace_back(options.port, std::move(steps), window);
  }
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  std::vector<char> scratch(1 << 18);
  std::vector<int64_t> latencies;
  for (Flow& flow : flows) {
    flow.write_more();
    watch(epoll, EPOLL_CTL_ADD, flow);
  }
  const auto until = [&](int64_t deadline) {
    while (now_ns() < deadline)
      turn(epoll, window > 1, scratch, latencies);
  };
  until(now_ns() + static_cast<int64_t>(kWarmUp * 1e9));
  latencies.clear();
  const size_t before = answered_by(flows);
  const int64_t began = now_ns(), cpu = cpu_ns_of(options.server);
  until(began + static_cast<int64_t>(options.seconds * 1e9));
  const auto seconds = static_cast<double>(now_ns() - began) / 1e9;
  const auto cpu_us = static_cast<double>(cpu_ns_of(options.server) - cpu) / 1e3;
  const auto requests = static_cast<double>((answered_by(flows) - before) * options.depth);
  if (options.op == "add") check_counters(options, flows, keys);
  Figures figures = {{"requests", requests},
                     {"rate", requests / seconds},
                     {"cpu_us", cpu_us / std::max(requests, 1.0)}};
  if (window == 1) {
    figures.emplace_back("p50_us", at_quantile(latencies, 0.5));
    figures.emplace_back("p99_us", at_quantile(latencies, 0.99));
  }
  return figures;
}

Figures closed(const LoadOptions& options) {
  return run_flows(options, 1);
}

Figures pipelined(const LoadOptions& options) {
  return run_flows(options, 2);
}

Figures timed(const LoadOptions& options, Connection& line, std::string_view request,
              std::string_view reply) {
  const int64_t began = now_ns(), cpu = cpu_ns_of(options.server);
  if (line.ask(request, reply.size()) != reply) give_up("a wrong answer");
  return {{"ms", static_cast<double>(now_ns() - began) / 1e6},
          {"cpu_ms", static_cast<double>(cpu_ns_of(options.server) - cpu) / 1e6}};
}

Figures multi_set(const LoadOptions& options) {
  Connection line(options.port);
  // The value with which torchrun's agents distribute the ranks.
  const std::string value = "[0, 2, 0, 2]";
  std::string request = op_only(Op::kMultiSet) + number(options.count), last;
  for (size_t i = 0; i < options.count; ++i) {
    last = "/torch.rendezvous.job" + options.suffix + ".0/torchelastic/assigned_ranks/" +
           std::to_string(i);
    request += counted(last) + counted(value);
  }
  Figures figures = timed(options, line, request + ping(5), ping_reply(5));
  if (line.ask(op_only(Op::kGet) + counted(last), 8 + value.size()) != counted(value))
    give_up("the last of many pairs is not there");
  return figures;
}

Figures check(const LoadOptions& options) {
  Connection line(options.port);
  std::vector<std::string> keys;
  std::string sets;
  for (size_t i = 0; i < options.count; ++i) {
    keys.push_back(options.key + std::to_string(i));
    sets += set(keys.back(), "1");
  }
  line.ask(sets + ping(6), 4);
  return timed(options, line, keys_request(Op::kCheck, keys), std::string_view("\0", 1));
}

size_t to_number(const char* name, const char* text) {
  char* end = nullptr;
  const auto value = strtoull(text, &end, 10);
  if (*text == '\0' || *end != '\0') give_up(std::string(name) + " wants a number, not " + text);
  return value;
}

LoadOptions parse(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) give_up("usage: store_load MODE --port PORT [--NAME VALUE]...");
  LoadOptions options;
  options.mode = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = argv[i + 1];
    const auto as_size = [&] { return to_number(argv[i], value); };
    if (name == "--op")
      options.op = value;
    else if (name == "--suffix")
      options.suffix = value;
    else if (name == "--key")
      options.key = value;
    else if (name == "--port")
      options.port = static_cast<uint16_t>(as_size());
    else if (name == "--server")
      options.server = static_cast<int>(as_size());
    else if (name == "-c" || name == "--connections")
      options.connections = as_size();
    else if (name == "-s" || name == "--seconds")
      options.seconds = atof(value);
    else if (name == "--depth")
      options.depth = as_size();
    else if (name == "--count")
      options.count = as_size();
    else if (name == "--bytes")
      options.bytes = as_size();
    else if (name == "--rounds")
      options.rounds = as_size();
    else
      give_up("no option is called " + name);
  }
  return options;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  using namespace muster;
  const std::map<std::string, std::function<Figures(const LoadOptions&)>> modes = {
      {"closed", closed}, {"pipelined", pipelined},  {"multi_set", multi_set},
      {"check", check},   {"waiters", wake_waiters}, {"idle", hold_idle},
      {"storm", storm}};
  const LoadOptions options = parse(argc, argv);
  const auto mode = modes.find(options.mode);
  if (mode == modes.end()) give_up("no mode is called " + options.mode);
  const char* separator = "{";
  for (const auto& [name, value] : mode->second(options)) {
    printf("%s\"%s\": %.6g", separator, name.c_str(), value);
    separator = ", ";
  }
  printf("}\n");
  return 0;
}

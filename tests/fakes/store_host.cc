// A store on its own port, for tests from outside the process:
//   store_host [--port N] [--bind ADDRESS] [--allow CIDR]... [--epoch N] [--held-max BYTES]
// Prints its port, and at each SIGUSR1 its counters as one line of JSON. SIGUSR2 opens the store
// for the next epoch (keys and connections are lost); SIGTERM ends the program.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>

#include "rendezvous/store/store_listener.h"
#include "rendezvous/store/store_server.h"

namespace {

using muster::StoreServer;

struct Arguments {
  muster::SocketAddress address{muster::IpAddress::loopback_v4(), 0};
  std::optional<std::vector<muster::Network>> allowed;
  uint64_t epoch = 1;
  StoreServer::Options options;
};

[[noreturn]] void reject(const std::string& what) {
  fmt::print(stderr, "store_host: {}\n", what);
  std::exit(2);
}

void take_argument(Arguments& arguments, std::string_view name, const std::string& value) {
  if (name == "--port") {
    arguments.address.port = static_cast<uint16_t>(std::stoi(value));
  } else if (name == "--bind") {
    const auto address = muster::IpAddress::parse(value);
    if (!address) reject("not an address: " + value);
    arguments.address.ip = *address;
  } else if (name == "--allow") {
    const auto network = muster::Network::parse(value);
    if (!network) reject("not a network: " + value);
    if (!arguments.allowed) arguments.allowed.emplace();
    arguments.allowed->push_back(*network);
  } else if (name == "--epoch") {
    arguments.epoch = std::stoull(value);
  } else if (name == "--held-max") {
    arguments.options.held_bytes_max = std::stoull(value);
  } else {
    reject("unknown argument: " + std::string(name));
  }
}

constexpr std::array<std::string_view, muster::tcpstore::kBreaches> kBreachTexts = {
    "spoke before VALIDATE",
    "wrong magic in VALIDATE",
    "VALIDATE twice",
    "unknown operation",
    "key longer than 8192 bytes",
    "value longer than 8 MiB",
    "more than 131072 keys in one request",
    "request too large",
    "a number was asked of a value that is none",
    "answer too large",
    "the store is full",
};

std::string breaches_json(const StoreServer::Counters& counters) {
  std::string json;
  for (size_t i = 0; i < muster::tcpstore::kBreaches; i++) {
    json += fmt::format("{}\"{}\":{}", i == 0 ? "" : ",", kBreachTexts.at(i), counters.breaches[i]);
  }
  return "{" + json + "}";
}

std::string to_json(const StoreServer::Counters& c) {
  return fmt::format(
      "{{\"adopted\":{},\"requests\":{},\"refused\":{},\"refused_closed\":{},"
      "\"handshake_timeouts\":{},\"evicted\":{},\"connections\":{},\"keys\":{},\"waiting\":{},"
      "\"stored_bytes\":{},\"held_bytes\":{},\"breaches\":{}}}",
      c.adopted, c.requests, c.refused, c.refused_closed, c.handshake_timeouts, c.evicted,
      c.connections, c.keys, c.waiting, c.stored_bytes, c.held_bytes, breaches_json(c));
}

class Host {
 public:
  Host(boost::asio::io_context& io, const Arguments& arguments)
      : io_(io),
        server_(io, arguments.options),
        signals_(io, SIGTERM, SIGUSR1, SIGUSR2),
        epoch_(arguments.epoch) {
    server_.open(epoch_);
    server_.set_allowed(arguments.allowed);
    auto listener = muster::StoreListener::open(io, server_, {arguments.address});
    if (!listener) reject(listener.error().message);
    listener_ = std::move(listener->front());
    say(std::to_string(listener_->port()));
    wait_for_signal();
  }

 private:
  static void say(const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  }

  void wait_for_signal() {
    signals_.async_wait([this](boost::system::error_code error, int signal) {
      if (error) return;
      if (signal == SIGTERM) return io_.stop();
      if (signal == SIGUSR1) say(to_json(server_.counters()));
      if (signal == SIGUSR2) server_.open(++epoch_);
      wait_for_signal();
    });
  }

  boost::asio::io_context& io_;
  StoreServer server_;
  std::unique_ptr<muster::StoreListener> listener_;
  boost::asio::signal_set signals_;
  uint64_t epoch_;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (argc % 2 == 0) reject("every argument has a value");
  for (int i = 1; i + 1 < argc; i += 2)
    take_argument(arguments, argv[i], argv[i + 1]);
  arguments.options.on_refused = [](const muster::IpAddress& address) {
    fmt::print(stderr, "store_host: refused {}\n", address.to_string());
  };
  boost::asio::io_context io(1);
  const Host host(io, arguments);
  io.run();
}

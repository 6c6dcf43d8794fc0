// One node of an election, for tests with several machines: claims HOST:PORT, prints the result as
// one line of JSON and, if it is the host, answers probes until it is killed.
//   claim_host HOST PORT [LIMIT_MS]
#include <cstdlib>
#include <string>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include "rendezvous/net/claim.h"

namespace {

const char* name_of(muster::NotHost::Why why) {
  using Why = muster::NotHost::Why;
  switch (why) {
    case Why::name_missing:
      return "name_missing";
    case Why::port_taken:
      return "port_taken";
    case Why::cannot_listen:
      return "cannot_listen";
    case Why::somebody_else:
      return "somebody_else";
    case Why::unreachable:
      return "unreachable";
  }
  return "?";
}

void say_claim(const muster::Claim& claim, std::chrono::nanoseconds took) {
  fmt::print(R"({{"host": true, "reached": "{}", "bound": "{}", "everywhere": {}, "us": {}}})"
             "\n",
             claim.reached.to_string(), claim.listener->local_endpoint().to_string(),
             claim.everywhere, took.count() / 1000);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  boost::asio::io_context io(1);
  muster::ClaimOptions options;
  if (argc > 3) options.limit = std::chrono::milliseconds(std::atoi(argv[3]));
  std::unique_ptr<muster::Listener> listener;
  const auto start = std::chrono::steady_clock::now();
  const auto port = static_cast<uint16_t>(std::atoi(argv[2]));
  const auto claiming = muster::claim_endpoint(
      io, argv[1], port, options, [&](std::variant<muster::Claim, muster::NotHost> outcome) {
        if (auto* claim = std::get_if<muster::Claim>(&outcome)) {
          say_claim(*claim, std::chrono::steady_clock::now() - start);
          listener = std::move(claim->listener);
          listener->start({});
        } else {
          const auto& loss = std::get<muster::NotHost>(outcome);
          fmt::print(R"({{"host": false, "why": "{}", "message": "{}"}})"
                     "\n",
                     name_of(loss.why), loss.message);
        }
        std::fflush(stdout);
      });
  io.run();
  return 0;
}

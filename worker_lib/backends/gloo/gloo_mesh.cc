#include "worker_lib/backends/gloo/gloo_mesh.h"

#include <algorithm>
#include <atomic>
#include <future>

#include <fmt/format.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "worker_lib/backends/store_exchange.h"

namespace muster::worker {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGlooLongest = std::chrono::hours{24 * 7};
constexpr milliseconds kInterruptWait{1};
constexpr milliseconds kConnectPoll{20};

// `all`: what one rank publishes, its pairs' addresses for every other rank, all of one length.
std::string pair_address(const std::string& all, int slot, int slots) {
  const size_t length = all.size() / static_cast<size_t>(slots);
  return all.substr(static_cast<size_t>(slot) * length, length);
}

}  // namespace

milliseconds gloo_time_left(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left >= kGlooLongest) return kGlooLongest;
  return std::chrono::ceil<milliseconds>(left);
}

std::string gloo_reason(const char* what) {
  std::string text(what);
  // Gloo begins its messages with "[file:line] ", and may nest them.
  while (text.starts_with('[')) {
    const size_t end = text.find("] ");
    if (end == std::string::npos || text.substr(0, end).find(".cc:") == std::string::npos) break;
    text.erase(0, end + 2);
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && (text.back() == ' ' || text.back() == '.'))
    text.pop_back();
  return text;
}

bool is_gloo_timeout(const std::string& reason) {
  return reason.find("Timed out") != std::string::npos ||
         reason.find("Application timeout") != std::string::npos;
}

Outcome<std::shared_ptr<GlooMesh>> GlooMesh::connect(GroupSetup& setup) {
  auto mesh = std::make_shared<GlooMesh>(setup.members.me, setup.members.size());
  const milliseconds timeout = std::max(gloo_time_left(setup.deadline), milliseconds{1});
  std::string mine;
  try {
    mine = mesh->open_pairs(setup.members.self().address, timeout);
  } catch (const std::exception& error) {
    return failed(ErrorCode::backend,
                  fmt::format("Gloo cannot listen on {} ({}); GLOO_SOCKET_IFNAME names the "
                              "interface to use",
                              setup.members.self().address, gloo_reason(error.what())));
  }
  const Outcome<std::vector<std::string>> addresses = exchange_through_store(setup, "gloo", mine);
  if (!addresses) return tl::unexpected(addresses.error());
  if (Outcome<> connected = mesh->connect_pairs(setup, *addresses); !connected)
    return tl::unexpected(connected.error());
  return mesh;
}

std::string GlooMesh::open_pairs(const std::string& address, milliseconds timeout) {
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  device_ = ::gloo::transport::tcp::CreateDevice(attributes);
  transportContext_ = device_->createContext(rank, size);
  transportContext_->setTimeout(timeout);
  setTimeout(timeout);
  std::string all;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::vector<char> bytes = transportContext_->createPair(peer)->address().bytes();
    all.append(bytes.begin(), bytes.end());
  }
  return all;
}

// Pair::connect() blocks, so it runs on another thread while this one polls for an interruption.
Outcome<> GlooMesh::connect_pairs(const GroupSetup& setup,
                                  const std::vector<std::string>& addresses) {
  std::atomic<int> connecting_to{-1};
  std::future<std::string> done = std::async(std::launch::async, [&]() -> std::string {
    try {
      for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        connecting_to = peer;
        const std::string address = pair_address(addresses[static_cast<size_t>(peer)],
                                                 rank < peer ? rank : rank - 1, size - 1);
        getPair(peer)->connect({address.begin(), address.end()});
      }
    } catch (const std::exception& error) {
      return gloo_reason(error.what());
    }
    return {};
  });
  std::optional<Failure> interruption;
  while (done.wait_for(kConnectPoll) != std::future_status::ready) {
    if (!interruption && setup.interrupted) interruption = setup.interrupted();
    if (interruption) closeConnections();  // Ends connect(); interrupt() needs connected pairs.
  }
  const std::string error = done.get();
  if (interruption) return tl::unexpected(*interruption);
  if (error.empty()) return Done{};
  const Peer& peer = setup.members[connecting_to];
  const bool late = std::chrono::steady_clock::now() >= setup.deadline;
  return failed(late ? ErrorCode::timeout : ErrorCode::peer_failed,
                fmt::format("Gloo did not get a connection to {} at {}: {}", describe(peer),
                            peer.address, error),
                {peer.rank});
}

void GlooMesh::interrupt() {
  char nothing = 0;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    try {
      const auto buffer = createUnboundBuffer(&nothing, sizeof nothing);
      buffer->recv(peer, gloo_slot(GlooSlots::probe, 0));
      buffer->waitRecv(kInterruptWait);
    } catch (const std::exception&) {
      // Intended: a time-out, which fails all pairs. If the pair was dead, the next one is tried.
    }
  }
}

std::vector<int> GlooMesh::lost_peers() {
  std::vector<int> lost;
  char nothing = 0;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    try {
      createUnboundBuffer(&nothing, sizeof nothing)->recv(peer, gloo_slot(GlooSlots::probe, 1));
    } catch (const std::exception&) {
      lost.push_back(peer);
    }
  }
  return lost;
}

}  // namespace muster::worker

#include "worker_lib/backends/gloo/gloo_mesh.h"

#include <algorithm>
#include <atomic>
#include <future>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

namespace muster::worker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGlooLongest = std::chrono::hours{24 * 7};
constexpr milliseconds kInterruptWait{1};
constexpr milliseconds kConnectPoll{20};

// `all`: what one rank publishes, its pairs' addresses for every other rank, all of one length.
std::vector<char> pair_address(const muster_module_bytes& all, int slot, int slots) {
  const size_t length = all.length / static_cast<size_t>(slots);
  const char* const address =
      static_cast<const char*>(all.data) + static_cast<size_t>(slot) * length;
  return {address, address + length};
}

}  // namespace

milliseconds gloo_time_left(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left >= kGlooLongest) return kGlooLongest;
  return std::chrono::ceil<milliseconds>(left);
}

milliseconds gloo_timeout(const muster_module_call& call) {
  return std::max(gloo_time_left(deadline_of(call)), milliseconds{1});
}

int gloo_fail(muster_module_call& call, int code, const std::string& reason,
              const std::vector<int>& ranks) {
  const muster_module_failure failure{code, 0, reason.empty() ? nullptr : reason.c_str(),
                                      ranks.data(), ranks.size()};
  call.fail(&call, &failure);
  return code;
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

std::shared_ptr<GlooMesh> GlooMesh::connect(const muster_module_setup& setup,
                                            muster_module_call& call) {
  auto mesh = std::make_shared<GlooMesh>(setup.rank, setup.size);
  const std::string own = setup.peers[setup.rank].address;
  std::string mine;
  try {
    mine = mesh->open_pairs(own, gloo_timeout(call));
  } catch (const std::exception& error) {
    gloo_fail(call, MUSTER_ERROR_BACKEND,
              "Gloo cannot listen on " + own + " (" + gloo_reason(error.what()) +
                  "); GLOO_SOCKET_IFNAME names the interface to use");
    return nullptr;
  }
  std::vector<muster_module_bytes> addresses(static_cast<size_t>(setup.size));
  if (setup.exchange(&call, mine.data(), mine.size(), addresses.data()) != 0) return nullptr;
  return mesh->connect_pairs(setup, call, addresses) ? mesh : nullptr;
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
bool GlooMesh::connect_pairs(const muster_module_setup& setup, muster_module_call& call,
                             const std::vector<muster_module_bytes>& addresses) {
  std::atomic<int> connecting_to{-1};
  std::future<std::string> done = std::async(std::launch::async, [&]() -> std::string {
    try {
      for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        connecting_to = peer;
        getPair(peer)->connect(pair_address(addresses[static_cast<size_t>(peer)],
                                            rank < peer ? rank : rank - 1, size - 1));
      }
    } catch (const std::exception& error) {
      return gloo_reason(error.what());
    }
    return {};
  });
  bool is_interrupted = false;
  while (done.wait_for(kConnectPoll) != std::future_status::ready) {
    is_interrupted = is_interrupted || setup.interrupted(&call) != 0;
    if (is_interrupted) closeConnections();  // Ends connect(); interrupt() needs connected pairs.
  }
  const std::string error = done.get();
  if (error.empty() || is_interrupted) return !is_interrupted;
  const muster_module_peer& peer = setup.peers[connecting_to];
  const bool is_late = std::chrono::steady_clock::now() >= deadline_of(call);
  gloo_fail(call, is_late ? MUSTER_ERROR_TIMEOUT : MUSTER_ERROR_PEER_FAILED,
            std::string("Gloo did not get a connection to ") + peer.text + " at " + peer.address +
                ": " + error,
            {connecting_to});
  return false;
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

int GlooMesh::exchange(const std::byte* mine, std::byte* theirs, size_t bytes,
                       muster_module_call& call) {
  const uint64_t slot = gloo_slot(GlooSlots::exchange, call.sequence);
  std::vector<std::unique_ptr<::gloo::transport::UnboundBuffer>> leaving, arriving;
  for (int peer = 0; peer < size; ++peer) {
    const size_t at = static_cast<size_t>(peer) * bytes;
    leaving.push_back(createUnboundBuffer(const_cast<std::byte*>(mine) + at, bytes));
    arriving.push_back(createUnboundBuffer(theirs + at, bytes));
    if (peer == rank) continue;
    arriving.back()->recv(peer, slot);
    leaving.back()->send(peer, slot);
  }
  std::vector<int> missing;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    try {
      // After a time-out the mesh is unusable, but keeps what has arrived.
      const milliseconds timeout = missing.empty() ? gloo_timeout(call) : milliseconds{1};
      if (arriving[static_cast<size_t>(peer)]->waitRecv(timeout)) continue;
    } catch (const std::exception& error) {
      if (!is_gloo_timeout(gloo_reason(error.what()))) throw;
    }
    missing.push_back(peer);
  }
  if (!missing.empty()) return gloo_fail(call, MUSTER_ERROR_TIMEOUT, {}, missing);
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) leaving[static_cast<size_t>(peer)]->waitSend(gloo_timeout(call));
  }
  return MUSTER_OK;
}

}  // namespace muster::worker

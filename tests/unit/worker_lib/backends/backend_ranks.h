// Threads as the ranks of a group, with a store of their own: all that setting up a backend needs,
// without processes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "rendezvous/store/store_client.h"
#include "tests/unit/rendezvous/store/store_server_harness.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

inline Deadline after(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}
// Deadline of calls that must succeed even on a slow machine.
inline Deadline soon() {
  return after(std::chrono::seconds{60});
}

// Runs `body` for every rank at the same time, each on a thread.
inline void on_each_rank(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { body(rank); });
  for (std::thread& thread : threads)
    thread.join();
}

inline Transfer transfer_of(OpKind kind, std::vector<int32_t>& data, int peer, int tag = 0) {
  return {.kind = kind,
          .data = reinterpret_cast<std::byte*>(data.data()),
          .count = data.size(),
          .dtype = DType::int32,
          .peer = peer,
          .tag = tag};
}

// An outcome in words: "done", "under way", "timeout: ...".
inline std::string ending(const std::optional<Outcome<>>& outcome) {
  if (!outcome) return "under way";
  if (*outcome) return "done";
  return fmt::format("{}: {}", name_of(outcome->error().code), outcome->error().message);
}
inline std::string ending(const Failure& failure) {
  return ending(Outcome<>(tl::unexpected(failure)));
}

using MakeBackend = std::function<Outcome<std::unique_ptr<GroupBackend>>(GroupSetup)>;

class BackendRanks {
 public:
  explicit BackendRanks(int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      members_.peers.push_back({GlobalRank{rank}, "node", "testhost", ::getpid(), "127.0.0.1"});
  }

  int size() const { return members_.size(); }

  // Changes the setup of each rank, if set.
  std::function<void(GroupSetup&)> adjust;

  StoreClient connect(const std::string& prefix) const {
    auto client = StoreClient::connect({.host = "127.0.0.1", .port = store_.port()});
    if (!client) std::abort();
    return client->with_prefix(prefix);
  }

  GroupSetup setup_of(int rank, Deadline deadline) const {
    GroupSetup setup{.name = "world",
                     .members = members_,
                     .store = connect(fmt::format("group{}", made_)),
                     .deadline = deadline,
                     .interrupted = {},
                     .cuda_device = 0};
    setup.members.me = rank;
    if (adjust) adjust(setup);
    return setup;
  }

  void each(const std::function<void(int)>& body) const { on_each_rank(size(), body); }

  std::vector<std::unique_ptr<GroupBackend>> make(const MakeBackend& maker,
                                                  Deadline deadline = soon()) {
    ++made_;
    std::vector<std::unique_ptr<GroupBackend>> backends(static_cast<size_t>(size()));
    each([&](int rank) {
      auto backend = maker(setup_of(rank, deadline));
      if (backend)
        backends[static_cast<size_t>(rank)] = std::move(*backend);
      else
        ADD_FAILURE() << "rank " << rank << ": " << backend.error().message;
    });
    return backends;
  }

 private:
  Members members_;
  store_test::RunningStore store_;
  int made_ = 0;
};

}  // namespace muster::worker

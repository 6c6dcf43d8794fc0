// Threads as ranks of real groups, over a backend that is a table: each rank lays its call on it,
// and the last one computes the result for all. So no operation ends before all ranks have begun
// it, and a test can make any of them fail.
//
// For code above groups (buckets, checkpoints). Supports the operations and types that these use;
// any other ends the test.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "muster/process_group.h"
#include "rendezvous/base/error.h"
#include "rendezvous/store/store_client.h"
#include "tests/unit/rendezvous/store/store_server_harness.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/group_host.h"

namespace muster::worker {

// Table that the ranks of one group share.
class CallTable {
 public:
  explicit CallTable(int size) : size_(size) {}
  int size() const { return size_; }

  // Makes the operation with this number fail on all ranks, and all later ones with it.
  void fail_at(size_t number, Failure failure) {
    const std::lock_guard lock(mutex_);
    fail_at_ = number;
    failure_ = std::move(failure);
  }

  // Operations in the order in which they were performed: "all_reduce 5 float32".
  std::vector<std::string> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  // Blocks until the operation is done; `operation` is each rank's next one.
  Outcome<> lay_down(int rank, const Operation& operation) {
    std::unique_lock lock(mutex_);
    Turn& turn = turns_[operation.sequence];
    turn.operations.resize(static_cast<size_t>(size_));
    turn.operations[static_cast<size_t>(rank)] = operation;
    if (++turn.here == size_) {
      finish(operation.sequence, turn);
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return turn.outcome || aborted_; });
    return turn.outcome ? *turn.outcome : Outcome<>(tl::unexpected(*aborted_));
  }

  void abort(const Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = failure;
    changed_.notify_all();
  }

 private:
  struct Turn {
    std::vector<Operation> operations;
    int here = 0;
    std::optional<Outcome<>> outcome;
  };

  void finish(size_t number, Turn& turn) {
    if (fail_at_ && number >= *fail_at_) {
      turn.outcome = tl::unexpected(failure_);
      return;
    }
    const Operation& first = turn.operations[0];
    log_.push_back(std::string(name_of(first.kind)) + " " + std::to_string(first.count) + " " +
                   name_of(first.dtype));
    compute(turn.operations);
    turn.outcome = Done{};
  }

  static void compute(const std::vector<Operation>& all) {
    const auto root = static_cast<size_t>(all[0].root);
    switch (all[0].kind) {
      case OpKind::barrier:
        return;
      case OpKind::broadcast:
        for (const Operation& to : all)
          copy(all[root].in, to.out, bytes_of(all[root]));
        return;
      case OpKind::all_gather:
        for (const Operation& to : all)
          gather(all, to);
        return;
      case OpKind::reduce:
        return reduce(all, {all[root].out});
      case OpKind::all_reduce: {
        std::vector<std::byte*> outs;
        for (const Operation& to : all)
          outs.push_back(to.out);
        return reduce(all, outs);
      }
      default:
        CHECK(false);
    }
  }

  static size_t bytes_of(const Operation& operation) {
    return operation.count * size_of(operation.dtype);
  }

  static void copy(const std::byte* from, std::byte* to, size_t bytes) {
    if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
  }

  static void gather(const std::vector<Operation>& all, const Operation& to) {
    std::byte* next = to.out;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const size_t count = to.recv_counts.empty() ? to.count : to.recv_counts[rank];
      copy(all[rank].in, next, count * size_of(to.dtype));
      next += count * size_of(to.dtype);
    }
  }

  static void reduce(const std::vector<Operation>& all, const std::vector<std::byte*>& outs) {
    switch (all[0].dtype) {
      case DType::float32:
        return reduce_as<float>(all, outs);
      case DType::float64:
        return reduce_as<double>(all, outs);
      case DType::int32:
        return reduce_as<int32_t>(all, outs);
      case DType::uint8:
        return reduce_as<uint8_t>(all, outs);
      default:
        CHECK(false);
    }
  }

  template <typename T>
  static void reduce_as(const std::vector<Operation>& all, const std::vector<std::byte*>& outs) {
    std::vector<T> result(all[0].count);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      CHECK(all[rank].count == result.size());
      const T* in = reinterpret_cast<const T*>(all[rank].in);
      for (size_t i = 0; i < result.size(); ++i) {
        const bool takes_largest = all[0].reduce == ReduceOp::max && rank > 0;
        result[i] = takes_largest ? std::max(result[i], in[i]) : static_cast<T>(result[i] + in[i]);
      }
    }
    if (all[0].reduce == ReduceOp::average) {
      for (T& value : result)
        value = static_cast<T>(value / static_cast<T>(all.size()));
    }
    for (std::byte* out : outs) {
      copy(reinterpret_cast<const std::byte*>(result.data()), out, bytes_of(all[0]));
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const int size_;
  std::map<size_t, Turn> turns_;
  std::vector<std::string> log_;
  std::optional<size_t> fail_at_;
  Failure failure_;
  std::optional<Failure> aborted_;
};

// One rank's backend.
class TableBackend final : public GroupBackend {
 public:
  TableBackend(std::shared_ptr<CallTable> table, int rank)
      : table_(std::move(table)), rank_(rank) {}

  Outcome<> run(const Operation& operation, Deadline) override {
    return table_->lay_down(rank_, operation);
  }
  Outcome<int> transfer(const Transfer&, Deadline) override { return unknown(); }
  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(const std::vector<Transfer>&,
                                                         Deadline) override {
    return unknown();
  }
  void abort(const Failure& failure) override { table_->abort(failure); }

 private:
  static tl::unexpected<Failure> unknown() {
    return failed(ErrorCode::backend, "the table does not know this operation");
  }

  std::shared_ptr<CallTable> table_;
  int rank_;
};

// Runs `body` on a thread for each rank, with the group of all.
inline void on_table(const std::shared_ptr<CallTable>& table,
                     const std::function<void(ProcessGroup)>& body) {
  store_test::RunningStore store;
  Members members;
  for (int rank = 0; rank < table->size(); ++rank) {
    members.peers.push_back({GlobalRank{rank}, "node", "testhost", ::getpid(), "127.0.0.1"});
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < table->size(); ++rank) {
    threads.emplace_back([&, rank] {
      auto host = std::make_shared<GroupHost>();
      host->world = members;
      host->world.me = rank;
      host->connect_store = [&](Deadline) -> Outcome<StoreClient> {
        auto client = StoreClient::connect({.host = "127.0.0.1", .port = store.port()});
        CHECK(client.has_value());
        return std::move(*client);
      };
      host->backend = Backend::cpu;
      host->makers.cpu = [&](GroupSetup) -> Outcome<std::unique_ptr<GroupBackend>> {
        return std::make_unique<TableBackend>(table, rank);
      };
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
      auto world = Group::make_world(host, deadline);
      CHECK(world.has_value());
      body(ProcessGroup(*world));
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

}  // namespace muster::worker

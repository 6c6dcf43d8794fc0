// Threads as the ranks of a job, with everything below a group faked in the process: backends that
// meet at a table, a watch that reports what a test wants, and a real store on loopback. The
// groups' own code is real.
//
//   FakeJob job(3);
//   job.each([&](FakeRank& rank) { rank.world().barrier(); });
//   job.watch().died(2);                        // all ranks hear of it
//
// The backend supports barrier, broadcast, all_gather(_v), sums and averages of some types, and
// messages with tags; anything else ends the test.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "muster/process_group.h"
#include "rendezvous/base/error.h"
#include "rendezvous/store/store_client.h"
#include "tests/unit/rendezvous/store/store_server_harness.h"
#include "tests/wait_for.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/group_host.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker::group_test {

using namespace std::chrono_literals;

// One call of a backend.
struct FakeLogEntry {
  std::string operation;  // "all_reduce 3"
  std::thread::id thread;
};

// Meeting place of the ranks of one group.
class FakeTable {
 public:
  explicit FakeTable(Members members)
      : members_(std::move(members)), logs_(static_cast<size_t>(members_.size())) {}

  Outcome<> collective(int me, const Operation& operation, Deadline deadline) {
    std::unique_lock lock(mutex_);
    logs_[static_cast<size_t>(me)].push_back(
        {fmt::format("{} {}", name_of(operation.kind), operation.sequence),
         std::this_thread::get_id()});
    Turn& turn = turns_[operation.sequence];
    turn.calls.emplace(me, &operation);
    changed_.notify_all();
    const auto ended = [&] { return aborted_ || turn.outcome; };
    if (static_cast<int>(turn.calls.size()) == members_.size()) {
      turn.outcome = perform(turn);
      changed_.notify_all();
    } else if (!changed_.wait_until(lock, deadline, ended)) {
      return late(turn);
    }
    // The buffers of this rank are read by others until all have their result.
    if (turn.outcome) return *turn.outcome;
    return tl::unexpected(*aborted_);
  }

  Outcome<int> transfer(int me, const Transfer& transfer, Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (aborted_) return tl::unexpected(*aborted_);
    const size_t bytes = transfer.count * size_of(transfer.dtype);
    if (transfer.kind == OpKind::send) {
      mail_.push_back(
          {me, transfer.peer, transfer.tag, {reinterpret_cast<const char*>(transfer.data), bytes}});
      changed_.notify_all();
      return me;
    }
    ++receivers_;
    changed_.notify_all();
    auto letter = mail_.end();
    const auto ended = [&] {
      letter = std::ranges::find_if(mail_, [&](const Letter& one) {
        return one.to == me && one.tag == transfer.tag &&
               (transfer.peer < 0 || one.from == transfer.peer);
      });
      return aborted_ || letter != mail_.end();
    };
    const bool in_time = changed_.wait_until(lock, deadline, ended);
    --receivers_;
    if (!in_time) return late(transfer);
    if (letter == mail_.end()) return tl::unexpected(*aborted_);
    CHECK(letter->bytes.size() == bytes);
    std::memcpy(transfer.data, letter->bytes.data(), bytes);
    const int from = letter->from;
    mail_.erase(letter);
    return from;
  }

  void abort(const Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = failure;
    changed_.notify_all();
  }

  // Waits until so many ranks are inside the collective with this number, or (0) inside a receive.
  void wait_inside(uint64_t number, size_t ranks) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return number == 0 ? receivers_ >= ranks : turns_[number].calls.size() >= ranks;
    });
  }
  // Makes the collective with this number fail on all ranks.
  void fail_at(uint64_t number, Failure failure) {
    const std::lock_guard lock(mutex_);
    failures_[number] = std::move(failure);
  }
  // Ranks whose backends have been destroyed.
  std::vector<int> gone() {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  void goes(int rank) {
    const std::lock_guard lock(mutex_);
    gone_.push_back(rank);
  }
  // Collectives in the order in which they were performed: "all_reduce 5 float32".
  std::vector<std::string> performed() {
    const std::lock_guard lock(mutex_);
    return performed_;
  }
  std::vector<FakeLogEntry> log(int rank) {
    const std::lock_guard lock(mutex_);
    return logs_[static_cast<size_t>(rank)];
  }

 private:
  struct Turn {
    std::map<int, const Operation*> calls;
    std::optional<Outcome<>> outcome;
  };
  struct Letter {
    int from;
    int to;
    int tag;
    std::string bytes;
  };

  Outcome<> late(const Turn& turn) const {
    Failure failure{ErrorCode::timeout, "not done in time", {}};
    failure.is_suspicion = true;
    for (int i = 0; i < members_.size(); ++i) {
      if (!turn.calls.contains(i)) failure.ranks.push_back(members_[i].rank);
    }
    return tl::unexpected(failure);
  }

  tl::unexpected<Failure> late(const Transfer& transfer) const {
    Failure failure{ErrorCode::timeout, "no message came in time"};
    failure.is_suspicion = true;
    if (transfer.peer >= 0) failure.ranks = {members_[transfer.peer].rank};
    return tl::unexpected(std::move(failure));
  }

  Outcome<> perform(const Turn& turn) {
    const Operation& first = *turn.calls.begin()->second;
    if (const auto at = failures_.find(first.sequence); at != failures_.end())
      return tl::unexpected(at->second);
    for (const auto& [rank, call] : turn.calls) {
      if (call->kind != first.kind)
        return failed(ErrorCode::mismatch, "the ranks call different operations");
    }
    performed_.push_back(
        fmt::format("{} {} {}", name_of(first.kind), first.count, name_of(first.dtype)));
    if (first.kind == OpKind::reduce || first.kind == OpKind::all_reduce) {
      reduce(turn, first);
    } else {
      for (const auto& [rank, call] : turn.calls)
        compute(turn, *call);
    }
    return Done{};
  }

  static void compute(const Turn& turn, const Operation& mine) {
    const size_t size = size_of(mine.dtype);
    std::byte* next = mine.out;
    switch (mine.kind) {
      case OpKind::barrier:
        return;
      case OpKind::broadcast:
        if (mine.count > 0) std::memmove(next, turn.calls.at(mine.root)->in, mine.count * size);
        return;
      case OpKind::all_gather:
        for (const auto& [rank, call] : turn.calls) {
          const size_t count =
              mine.recv_counts.empty() ? mine.count : mine.recv_counts[static_cast<size_t>(rank)];
          if (count > 0) std::memmove(next, call->in, count * size);
          next += count * size;
        }
        return;
      default:
        CHECK(false);
    }
  }

  static void reduce(const Turn& turn, const Operation& first) {
    CHECK(first.reduce == ReduceOp::sum || first.reduce == ReduceOp::average);
    switch (first.dtype) {
      case DType::float32:
        return reduce_as<float>(turn, first);
      case DType::float64:
        return reduce_as<double>(turn, first);
      case DType::int32:
        return reduce_as<int32_t>(turn, first);
      case DType::int64:
        return reduce_as<int64_t>(turn, first);
      default:
        CHECK(false);
    }
  }

  // Buffers may be in place: all are read before any is written.
  template <typename T>
  static void reduce_as(const Turn& turn, const Operation& first) {
    std::vector<T> result(first.count);
    for (const auto& [rank, call] : turn.calls) {
      CHECK(call->count == result.size());
      for (size_t i = 0; i < result.size(); ++i)
        result[i] += reinterpret_cast<const T*>(call->in)[i];
    }
    if (first.reduce == ReduceOp::average) {
      for (T& value : result)
        value /= static_cast<T>(turn.calls.size());
    }
    for (const auto& [rank, call] : turn.calls) {
      if (first.kind == OpKind::all_reduce || rank == first.root)
        std::ranges::copy(result, reinterpret_cast<T*>(call->out));
    }
  }

  const Members members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Turn> turns_;
  std::map<uint64_t, Failure> failures_;
  std::vector<Letter> mail_;
  std::vector<std::vector<FakeLogEntry>> logs_;
  std::vector<std::string> performed_;
  std::vector<int> gone_;
  size_t receivers_ = 0;
  std::optional<Failure> aborted_;
};

// One rank's backend. Each begun transfer has a thread.
class FakeBackend final : public GroupBackend {
 public:
  FakeBackend(std::shared_ptr<FakeTable> table, int me, bool on_stream)
      : table_(std::move(table)), me_(me), on_stream_(on_stream) {}
  ~FakeBackend() override {
    for (std::thread& thread : threads_)
      thread.join();
    table_->goes(me_);
  }

  Outcome<> run(const Operation& operation, Deadline deadline) override {
    return table_->collective(me_, operation, deadline);
  }

  bool is_asynchronous() const override { return on_stream_; }
  Outcome<std::shared_ptr<WorkState>> start(const Operation& operation,
                                            Deadline deadline) override {
    auto work = std::make_shared<HostWork>();
    work->complete(table_->collective(me_, operation, deadline));
    return work;
  }

  Outcome<int> transfer(const Transfer& transfer, Deadline deadline) override {
    return table_->transfer(me_, transfer, deadline);
  }

  Outcome<std::vector<std::shared_ptr<WorkState>>> begin(const std::vector<Transfer>& transfers,
                                                         Deadline deadline) override {
    std::vector<std::shared_ptr<WorkState>> works;
    for (const Transfer& transfer : transfers) {
      auto work = std::make_shared<HostWork>();
      threads_.emplace_back([this, work, transfer, deadline] {
        const Outcome<int> sender = table_->transfer(me_, transfer, deadline);
        work->complete(sender ? Outcome<>(Done{}) : tl::unexpected(sender.error()),
                       sender.value_or(-1));
      });
      works.push_back(work);
    }
    return works;
  }

  std::string refuses(const Transfer& transfer) const override {
    return transfer.tag > 1000 ? "tags end at 1000 here" : "";
  }

  void abort(const Failure& failure) override { table_->abort(failure); }

 private:
  const std::shared_ptr<FakeTable> table_;
  const int me_;
  const bool on_stream_;
  std::vector<std::thread> threads_;
};

// Delivers the news of a test to every rank's listeners, on a thread of its own, and the progress
// of each rank to the others.
class FakeNews {
 public:
  explicit FakeNews(int ranks)
      : listeners_(static_cast<size_t>(ranks)),
        progress_(static_cast<size_t>(ranks)),
        states_(static_cast<size_t>(ranks), ProcessState::running) {
    thread_ = std::thread([this] { deliver(); });
  }
  ~FakeNews() {
    say_raw(std::nullopt);
    thread_.join();
  }

  void died(int rank) {
    say({Watch::News::Kind::died,
         GlobalRank{rank},
         {},
         {ErrorCode::peer_failed,
          fmt::format("rank {} (host, pid {}) died", rank, 100 + rank),
          {GlobalRank{rank}}}});
  }
  void left(int rank) { say({Watch::News::Kind::left, GlobalRank{rank}, {}, {}}); }
  // Delivered to that rank only.
  void stopped(int rank) {
    say({Watch::News::Kind::stopped,
         GlobalRank{rank},
         {},
         {ErrorCode::stopped, "the job was told to end (SIGTERM)"}});
  }
  void say(Watch::News news) { say_raw(std::move(news)); }

  // Delivers `news` later, to that rank only.
  void remind(int rank, Watch::News news) {
    const std::lock_guard lock(mutex_);
    reminders_.push_back({std::chrono::steady_clock::now() + kLastMessage, rank, std::move(news)});
    told_.notify_all();
  }

  // Called, if set, before a rank that reports news goes on.
  std::function<void()> while_telling;

  // Waits until all news has been delivered.
  void settle() {
    std::unique_lock lock(mutex_);
    told_.wait(lock, [this] { return queue_.empty() && !telling_; });
  }

  int subscribe(int rank, Watch::Listener listener) {
    std::unique_lock lock(mutex_);
    told_.wait(lock, [this] { return !telling_; });
    const int id = next_id_++;
    for (const Watch::News& news : history_) {
      if (concerns(rank, news)) listener(news);
    }
    listeners_[static_cast<size_t>(rank)].emplace(id, std::move(listener));
    return id;
  }
  void unsubscribe(int rank, int id) {
    std::unique_lock lock(mutex_);
    told_.wait(lock, [this] { return !telling_; });
    listeners_[static_cast<size_t>(rank)].erase(id);
  }
  void answer_with(int rank, std::function<std::string()> progress) {
    const std::lock_guard lock(mutex_);
    progress_[static_cast<size_t>(rank)] = std::move(progress);
  }
  // The progress that this rank reports.
  std::string progress(int rank) {
    std::function<std::string()> say;
    {
      const std::lock_guard lock(mutex_);
      say = progress_[static_cast<size_t>(rank)];
    }
    return say ? say() : "";
  }
  // Sets the state of the rank's process; one that does not run does not answer.
  void is(int rank, ProcessState state) {
    const std::lock_guard lock(mutex_);
    states_[static_cast<size_t>(rank)] = state;
  }
  ProcessState state_of(int rank) {
    const std::lock_guard lock(mutex_);
    return states_[static_cast<size_t>(rank)];
  }

  size_t listeners() {
    const std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const auto& one : listeners_)
      count += one.size();
    return count;
  }
  std::vector<Watch::News> history() {
    const std::lock_guard lock(mutex_);
    return history_;
  }

 private:
  static bool concerns(int rank, const Watch::News& news) {
    const bool own = news.rank.value == rank;
    return news.kind == Watch::News::Kind::stopped ? own : !own;
  }

  void say_raw(std::optional<Watch::News> news) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(news));
    told_.notify_all();
  }

  void deliver() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (queue_.empty() &&
          (reminders_.empty() || std::chrono::steady_clock::now() < reminders_.front().at)) {
        reminders_.empty() ? told_.wait(lock) : void(told_.wait_until(lock, reminders_.front().at));
        continue;
      }
      std::optional<Watch::News> news;
      int only = -1;
      if (!queue_.empty()) {
        news = std::move(queue_.front());
        queue_.pop_front();
        if (!news) return;
        history_.push_back(*news);
      } else {
        news = std::move(reminders_.front().news);
        only = reminders_.front().rank;
        reminders_.pop_front();
      }
      telling_ = true;
      const auto listeners = listeners_;
      lock.unlock();
      for (size_t rank = 0; rank < listeners.size(); ++rank) {
        const int number = static_cast<int>(rank);
        for (const auto& [id, listener] : listeners[rank]) {
          if (only < 0 ? concerns(number, *news) : only == number) listener(*news);
        }
      }
      lock.lock();
      telling_ = false;
      told_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable told_;
  std::vector<std::map<int, Watch::Listener>> listeners_;
  std::vector<std::function<std::string()>> progress_;
  std::vector<ProcessState> states_;
  struct Reminder {
    Deadline at;
    int rank;
    Watch::News news;
  };
  std::deque<std::optional<Watch::News>> queue_;
  std::deque<Reminder> reminders_;
  std::vector<Watch::News> history_;
  bool telling_ = false;
  int next_id_ = 1;
  std::thread thread_;
};

class FakeQuestions final : public Watch::Questions {
 public:
  explicit FakeQuestions(FakeNews& news) : news_(news) {}
  void ask(int rank) override {
    const ProcessState state = news_.state_of(rank);
    if (state == ProcessState::running)
      replies_.push_back({rank, Reply::Kind::said, news_.progress(rank)});
    if (state == ProcessState::over) replies_.push_back({rank, Reply::Kind::refused});
  }
  std::vector<Reply> wait(Deadline until) override {
    if (replies_.empty()) test::pause_until(until, "nobody else answers");
    return std::exchange(replies_, {});
  }
  ProcessState state_of(int rank) const override { return news_.state_of(rank); }

 private:
  FakeNews& news_;
  std::vector<Reply> replies_;
};

class FakeWatch final : public Watch {
 public:
  FakeWatch(FakeNews& news, int rank) : news_(news), rank_(rank) {}
  int subscribe(Listener listener) override { return news_.subscribe(rank_, std::move(listener)); }
  void unsubscribe(int id) override { news_.unsubscribe(rank_, id); }
  void tell(News news) override {
    news.rank = GlobalRank{rank_};
    news_.say(news);
    if (news_.while_telling) news_.while_telling();
  }
  void remind(News news) override { news_.remind(rank_, std::move(news)); }
  void leave() override { news_.left(rank_); }
  void answer_with(std::function<std::string()> progress) override {
    news_.answer_with(rank_, std::move(progress));
  }
  std::unique_ptr<Questions> questions() override { return std::make_unique<FakeQuestions>(news_); }
  Outcome<Verdict> agree(const Ballot&, Deadline) override {
    return failed(ErrorCode::system, "ranks of a fake watch do not agree");
  }
  bool stop_requested() const override { return false; }
  void request_stop() override {}

 private:
  FakeNews& news_;
  const int rank_;
};

// Finds each group's table by an id that its first member writes to the store.
class FakeTables {
 public:
  Outcome<std::unique_ptr<GroupBackend>> make(GroupSetup& setup, bool on_stream) {
    if (setup.members.me == 0) {
      const std::lock_guard lock(mutex_);
      tables_.push_back(std::make_shared<FakeTable>(setup.members));
      by_name_[setup.name] = tables_.back();
      CHECK(setup.store.set("table", std::to_string(tables_.size() - 1)).has_value());
    }
    const auto id = setup.store.get("table");
    CHECK(id.has_value());
    const std::lock_guard lock(mutex_);
    ++made_;
    return std::make_unique<FakeBackend>(tables_[std::stoul(*id)], setup.members.me, on_stream);
  }

  // The latest table of a group with this name.
  FakeTable& named(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return *by_name_.at(name);
  }
  int made() {
    const std::lock_guard lock(mutex_);
    return made_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<FakeTable>> tables_;
  std::map<std::string, std::shared_ptr<FakeTable>> by_name_;
  int made_ = 0;
};

struct FakeRank {
  int me = 0;
  std::shared_ptr<GroupHost> host;
  std::shared_ptr<Group> group;

  ProcessGroup world() const { return ProcessGroup(c_abi::handle_of(group)); }
  // As muster::new_group().
  ProcessGroup new_group(std::vector<GlobalRank> ranks, const GroupOptions& options = {}) const {
    auto made = group->new_group(ranks, options);
    if (made) return ProcessGroup(c_abi::handle_of(*made));
    throw DistributedError(made.error().code, made.error().message, "new_group", options.name,
                           made.error().ranks);
  }
};

class FakeJob {
 public:
  explicit FakeJob(int ranks, std::function<void(GroupHost&)> adjust = {})
      : news_(ranks), adjust_(std::move(adjust)), ranks_(static_cast<size_t>(ranks)) {
    Members world;
    for (int rank = 0; rank < ranks; ++rank)
      world.peers.push_back({GlobalRank{rank}, "node", "host", 100 + rank, "127.0.0.1"});
    on_threads([&](int me) {
      FakeRank& rank = ranks_[static_cast<size_t>(me)];
      rank.me = me;
      rank.host = host_of(world, me);
      auto made = Group::make_world(rank.host, std::chrono::steady_clock::now() + 60s);
      CHECK(made.has_value());
      rank.group = *made;
    });
  }

  FakeRank& operator[](int rank) { return ranks_[static_cast<size_t>(rank)]; }
  FakeNews& watch() { return news_; }
  FakeTables& tables() { return tables_; }
  FakeTables& device_tables() { return device_tables_; }
  store_test::RunningStore& store() { return store_; }

  // Runs `body` for every rank at the same time, each on a thread.
  void each(const std::function<void(FakeRank&)>& body) {
    on_threads([&](int rank) { body(ranks_[static_cast<size_t>(rank)]); });
  }
  // Likewise, with the group of all ranks.
  void each_world(const std::function<void(ProcessGroup)>& body) {
    each([&](FakeRank& rank) { body(rank.world()); });
  }

 private:
  void on_threads(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      threads.emplace_back([&body, rank] { body(static_cast<int>(rank)); });
    for (std::thread& thread : threads)
      thread.join();
  }

  std::shared_ptr<GroupHost> host_of(const Members& world, int me) {
    auto host = std::make_shared<GroupHost>();
    host->world = world;
    host->world.me = me;
    host->connect_store = [this](Deadline) -> Outcome<StoreClient> {
      auto client = StoreClient::connect({.host = "127.0.0.1", .port = store_.port()});
      CHECK(client.has_value());
      return std::move(*client);
    };
    host->watch = std::make_shared<FakeWatch>(news_, me);
    host->watch->answer_with([self = std::weak_ptr(host)] {
      const std::shared_ptr<GroupHost> there = self.lock();
      return there == nullptr ? std::string() : there->progress().encode();
    });
    host->timeout = 60s;
    host->makers.cpu = [this](GroupSetup setup) { return tables_.make(setup, false); };
    host->makers.nccl = [this](GroupSetup setup) { return device_tables_.make(setup, true); };
    host->makers.nccl_available = [](std::string*) { return true; };
    if (adjust_) adjust_(*host);
    return host;
  }

  store_test::RunningStore store_;
  FakeNews news_;
  FakeTables tables_;
  FakeTables device_tables_;
  std::function<void(GroupHost&)> adjust_;
  std::vector<FakeRank> ranks_;
};

// Waits until so many ranks have entered a roll call: "world/monitored/1".
inline void wait_until_entered(const FakeRank& rank, const std::string& roll_call,
                               ptrdiff_t ranks) {
  auto store = rank.host->connect_store(Deadline::max());
  const std::string key = "group/" + roll_call + "/came";  // "0:cpu,3:cpu,"
  const auto have_entered = [&] {
    return store->check({key}).value_or(false) &&
           std::ranges::count(store->get(key).value_or(""), ',') >= ranks;
  };
  test::wait_for(have_entered, "so many ranks in the roll call");
}

// Adjusts a job so that its ranks hear no news: of a failure they know what the operation returns.
inline void without_news(GroupHost& host) {
  host.watch = nullptr;
}

// What a call throws: "timeout: all_reduce 1 of group world: ..."; "nothing" if it does not.
template <typename Call>
std::string thrown_by(const Call& call, std::vector<GlobalRank>* ranks = nullptr) {
  try {
    call();
    return "nothing";
  } catch (const DistributedError& error) {
    if (ranks != nullptr) *ranks = error.failed_ranks();
    return fmt::format("{}: {}", name_of(error.code()), error.what());
  }
}

}  // namespace muster::worker::group_test

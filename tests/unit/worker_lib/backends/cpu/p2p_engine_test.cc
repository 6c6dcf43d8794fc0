// Point to point over scripted links: which thread is woken when another one moves its data, and
// how requests end that fail while they begin.
#include "worker_lib/backends/cpu/p2p_engine.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "tests/unit/worker_lib/backends/cpu/memory_links.h"
#include "tests/unit/worker_lib/no_threads.h"
#include "tests/wait_for.h"

namespace muster::worker {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

// Links of rank 0 to rank 1. Only wake() ends a sleep, not the arrival of bytes, as if another
// thread had read them before the sleeper could.
struct LinkScript {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int, std::vector<std::byte>> coming;        // By peer.
  std::map<int, std::vector<std::byte>> coming_later;  // Not for the thread that slept last.
  std::thread::id sleeper;
  bool rings = false;  // Ends the next sleep.
  bool holds = false;  // Keeps the next read until it is false again.
  bool held = false;
  bool refuses = false;
  bool full = false;
  int writes = 0;
  bool asleep = false;
  size_t armed = 0;  // Directions that the sleeper waits for.
  int woken = 0;
  int slept_till_the_end = 0;

  void bring(int tag, const std::vector<int32_t>& data) { bring(coming[1], tag, data); }
  void bring(std::vector<std::byte>& to, int tag, const std::vector<int32_t>& data) {
    const size_t bytes = data.size() * sizeof(int32_t);
    const MessageHead head{.tag = tag, .dtype = DType::int32, .bytes = bytes};
    const std::lock_guard lock(mutex);
    const auto append = [&](const void* from, size_t count) {
      const auto* first = static_cast<const std::byte*>(from);
      to.insert(to.end(), first, first + count);
    };
    append(&head, sizeof head);
    append(data.data(), bytes);
  }
  struct Message {
    int tag = 0;
    std::vector<int32_t> data;
  };
  void ring_with(const Message& message) {
    bring(message.tag, message.data);
    const std::lock_guard lock(mutex);
    rings = true;
    asleep = false;
    changed.notify_all();
  }
  // Returns once the sleeper has woken for the message, and reads it with the engine's mutex held.
  void hold_a_read_of(const Message& message) {
    {
      const std::lock_guard lock(mutex);
      holds = true;
    }
    ring_with(message);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return held; });
  }
  void let_go() {
    const std::lock_guard lock(mutex);
    holds = held = false;
    changed.notify_all();
  }
  int woken_so_far() {
    const std::lock_guard lock(mutex);
    return woken;
  }
  // Returns once a thread has been woken again, and sleeps.
  void wait_woken(int before) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return woken > before && asleep; });
  }
  bool sleeps_within(seconds limit) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, limit, [&] { return asleep; });
  }
  void wait_asleep(size_t directions = 1) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return asleep && armed == directions; });
  }
};

class ScriptedLinks final : public ByteLinks {
 public:
  explicit ScriptedLinks(LinkScript& script) : script_(script) {}

  Outcome<size_t> write(int, std::span<const iovec> parts) override {
    const std::lock_guard lock(script_.mutex);
    ++script_.writes;
    if (script_.full) return 0;
    if (script_.refuses) return failed(ErrorCode::peer_failed, "refused", {GlobalRank{1}});
    size_t moved = 0;
    for (const iovec& part : parts)
      moved += part.iov_len;
    return moved;
  }
  Outcome<size_t> read(int peer, std::span<const iovec> parts) override {
    std::unique_lock lock(script_.mutex);
    script_.held = script_.holds;
    script_.changed.notify_all();
    script_.changed.wait(lock, [&] { return !script_.holds; });
    std::vector<std::byte>& coming = script_.coming[peer];
    if (std::this_thread::get_id() != script_.sleeper) {
      const std::vector<std::byte> later = std::exchange(script_.coming_later[peer], {});
      coming.insert(coming.end(), later.begin(), later.end());
    }
    size_t moved = 0;
    for (const iovec& part : parts) {
      const size_t bytes = std::min(part.iov_len, coming.size());
      if (bytes > 0) std::memcpy(part.iov_base, coming.data(), bytes);
      coming.erase(coming.begin(), coming.begin() + static_cast<std::ptrdiff_t>(bytes));
      moved += bytes;
    }
    return moved;
  }
  bool ended(int) const override { return false; }
  void arm(const Interest& interest) override {
    const std::lock_guard lock(script_.mutex);
    script_.armed = interest.reading.size() + interest.writing.size();
  }
  void sleep(Deadline until, bool) override {
    std::unique_lock lock(script_.mutex);
    script_.asleep = true;
    script_.sleeper = std::this_thread::get_id();
    script_.changed.notify_all();
    if (!script_.changed.wait_until(lock, until, [&] { return wakes_ > 0 || script_.rings; }))
      ++script_.slept_till_the_end;
    wakes_ = 0;
    script_.rings = false;
    script_.asleep = false;
  }
  void wake() override {
    const std::lock_guard lock(script_.mutex);
    ++wakes_;
    ++script_.woken;
    script_.asleep = false;
    script_.changed.notify_all();
  }

 private:
  LinkScript& script_;
  int wakes_ = 0;
};

class ScriptedTransfers : public testing::Test {
 protected:
  static Transfer of(OpKind kind, std::vector<int32_t>& data, int tag) {
    return transfer_of(kind, data, 1, tag);
  }
  // Returns once a thread sleeps on the links for a message with tag 1.
  std::future<Outcome<int>> asleep_in_a_receive(std::vector<int32_t>& data) {
    auto done = std::async(std::launch::async, [&] {
      return engine_.transfer(of(OpKind::recv, data, 1), after(seconds{5}));
    });
    script_.wait_asleep();
    return done;
  }

  LinkScript script_;
  Members members_ = memory_members(3, 0);
  TransferEngine engine_{std::make_unique<ScriptedLinks>(script_), members_};
};

TEST_F(ScriptedTransfers, AThreadIsWokenIfAnotherThreadReadsItsMessage) {
  std::vector<int32_t> got(3);
  std::vector<int32_t> other(1);
  auto receive = asleep_in_a_receive(got);
  script_.bring(1, {4, 5, 6});
  script_.bring(2, {7});
  EXPECT_TRUE(engine_.transfer(transfer_of(OpKind::recv, other, -1, 2), after(seconds{60})));
  const Outcome<int> received = receive.get();
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_EQ(got, (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ(script_.slept_till_the_end, 0);
}

TEST_F(ScriptedTransfers, AThreadIsWokenIfABeginReadsItsMessage) {
  std::vector<int32_t> got(3);
  std::vector<int32_t> other(1);
  auto receive = asleep_in_a_receive(got);
  script_.bring(1, {4, 5, 6});
  EXPECT_TRUE(engine_.begin({transfer_of(OpKind::recv, other, -1, 2)}, after(seconds{60})));
  EXPECT_TRUE(receive.get());
  EXPECT_EQ(script_.slept_till_the_end, 0);
}

// The thread that is to drive next finds its message read by another one, which leaves as well.
TEST_F(ScriptedTransfers, AThreadDrivesIfAnotherThreadReadsTheMessageOfTheNextDriver) {
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<std::vector<int32_t>> got(5, std::vector<int32_t>(1));
    const auto receive = [&](int from, int tag, seconds limit) {
      return std::async(std::launch::async, [&, from, tag, limit] {
        return engine_.transfer(transfer_of(OpKind::recv, got[static_cast<size_t>(tag)], from, tag),
                                after(limit));
      });
    };
    auto driver = receive(1, 1, seconds{60});
    script_.wait_asleep();
    const auto receive_behind = [&](int tag, seconds limit) {  // Wakes the driver once.
      const int woken = script_.woken_so_far();
      auto done = receive(1, tag, limit);
      script_.wait_woken(woken);
      return done;
    };
    auto left = receive_behind(3, seconds{20});
    auto next = receive_behind(2, seconds{10});
    script_.hold_a_read_of({1, {7}});
    auto third = receive(-1, 4, seconds{60});
    test::pause_for(std::chrono::milliseconds(2), "it waits for the engine");
    script_.bring(script_.coming_later[1], 2, {7});
    script_.bring(script_.coming_later[2], 4, {7});
    script_.let_go();
    for (auto* one : {&driver, &next, &third})
      ASSERT_TRUE(one->get());
    ASSERT_TRUE(script_.sleeps_within(seconds{10})) << "no thread drives, in turn " << turn;
    script_.ring_with({3, {7}});
    ASSERT_TRUE(left.get());
  }
}

TEST_F(ScriptedTransfers, AThreadIsWokenIfAnotherThreadsTransferFails) {
  std::vector<int32_t> got(3);
  std::vector<int32_t> sent(1);
  auto receive = asleep_in_a_receive(got);
  {
    const std::lock_guard lock(script_.mutex);
    script_.refuses = true;
  }
  EXPECT_FALSE(engine_.transfer(of(OpKind::send, sent, 2), after(seconds{60})));
  const Outcome<int> received = receive.get();
  ASSERT_FALSE(received);
  EXPECT_EQ(ending(received.error()), "peer_failed: refused");
  EXPECT_EQ(script_.slept_till_the_end, 0);
}

TEST_F(ScriptedTransfers, ACallWakesNoThreadIfNoneSleeps) {
  std::vector<int32_t> data{1};
  script_.bring(1, {7});
  EXPECT_TRUE(engine_.transfer(of(OpKind::send, data, 2), after(seconds{60})));
  EXPECT_TRUE(engine_.transfer(of(OpKind::recv, data, 1), after(seconds{60})));
  EXPECT_TRUE(engine_.begin({of(OpKind::send, data, 3)}, after(seconds{60})));
  EXPECT_EQ(script_.woken, 0);
}

TEST_F(ScriptedTransfers, ACallBehindOthersWakesNoThreadAndTriesNoLink) {
  std::vector<int32_t> sent(1), got(1);
  script_.full = true;
  const auto begin_both = [&] {
    EXPECT_TRUE(engine_.begin({of(OpKind::send, sent, 1)}, after(seconds{60})));
    EXPECT_TRUE(engine_.begin({of(OpKind::recv, got, 2)}, after(seconds{60})));
  };
  begin_both();
  script_.wait_asleep(2);
  const int woken = script_.woken;
  const int writes = script_.writes;
  for (int i = 0; i < 100; ++i)
    begin_both();
  EXPECT_EQ(script_.woken, woken);
  EXPECT_EQ(script_.writes, writes);
}

// Leaves an early message of 3 numbers with tag 1, by receiving the one behind it.
void keep_a_message(TransferEngine& engine, LinkScript& script, const Transfer& wanted) {
  script.bring(1, {1, 2, 3});
  script.bring(wanted.tag, {9});
  ASSERT_TRUE(engine.transfer(wanted, after(seconds{60})));
}

TEST_F(ScriptedTransfers, ABegunReceiveFailsIfAnEarlyMessageDoesNotFit) {
  std::vector<int32_t> one(1);
  std::vector<int32_t> smaller(2, -1);
  keep_a_message(engine_, script_, of(OpKind::recv, one, 2));
  const auto works =
      engine_.begin({of(OpKind::recv, smaller, 1), of(OpKind::recv, one, 5)}, after(seconds{60}));
  ASSERT_TRUE(works);
  for (const auto& work : *works) {
    EXPECT_THAT(ending(work->outcome()), HasSubstr("mismatch: rank 1 (host, pid 101) sent 3 int32 "
                                                   "with tag 1 where rank 0 (host, pid 100) "
                                                   "receives 2 int32; both ends must agree"));
  }
  EXPECT_EQ(smaller, (std::vector<int32_t>{-1, -1}));
}

// The thread for begun requests runs already; it must neither spin nor go on.
TEST_F(ScriptedTransfers, TheThreadForBegunRequestsEndsOnFailure) {
  std::vector<int32_t> one(1);
  std::vector<int32_t> smaller(2);
  keep_a_message(engine_, script_, of(OpKind::recv, one, 2));
  std::vector<int32_t> never(1);
  const auto first = engine_.begin({of(OpKind::recv, never, 6)}, after(seconds{60}));
  ASSERT_TRUE(first);
  script_.wait_asleep();
  const auto second = engine_.begin({of(OpKind::recv, smaller, 1)}, after(seconds{60}));
  ASSERT_TRUE(second);
  EXPECT_THAT(ending(second->front()->outcome()), HasSubstr("mismatch: "));
  EXPECT_THAT(ending(first->front()->wait(after(seconds{60}))), HasSubstr("mismatch: "));
  EXPECT_FALSE(engine_.begin({of(OpKind::recv, never, 6)}, after(seconds{60})));
}

TEST_F(ScriptedTransfers, BeginLeavesNothingUnderWayIfNoThreadStarts) {
  std::vector<int32_t> got(1, -1);
  {
    const NoThreads none;
    const auto works = engine_.begin({of(OpKind::recv, got, 1)}, after(seconds{60}));
    ASSERT_FALSE(works);
    EXPECT_EQ(works.error().code, ErrorCode::system);
    EXPECT_THAT(works.error().message, HasSubstr("starting a thread failed: "));
  }
  script_.bring(1, {8});
  std::vector<int32_t> sent(1);
  EXPECT_FALSE(engine_.transfer(of(OpKind::send, sent, 2), after(seconds{60})));
  EXPECT_EQ(got, std::vector<int32_t>{-1});
}

}  // namespace
}  // namespace muster::worker

// Groups that meet at the program's own store, through the C functions, with threads as ranks. The
// death of a rank needs processes: tests/live/torch_backend_test.py.
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/muster.h"
#include "worker_lib/joining/host_store.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// A program's store: a map, under a lock.
class MapStore {
 public:
  muster_store functions(bool fails = false) {
    muster_store store = MUSTER_STORE;
    store.context = this;
    store.set = fails ? refuse : set;
    store.get = get;
    store.error = [](void*) { return "the map\nis full"; };
    return store;
  }

  std::vector<std::string> keys() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [key, value] : values_)
      names.push_back(key);
    return names;
  }

  void put(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }

 private:
  static int set(void* self, const char* key, const void* value, size_t length) {
    static_cast<MapStore*>(self)->put(key, {static_cast<const char*>(value), length});
    return 0;
  }
  static int refuse(void*, const char*, const void*, size_t) { return -1; }
  static int get(void* context, const char* key, int64_t timeout_ms, void* value, size_t capacity,
                 size_t* length) {
    auto* const self = static_cast<MapStore*>(context);
    std::unique_lock lock(self->mutex_);
    const bool is_there = self->changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                                  [&] { return self->values_.contains(key); });
    if (!is_there) return 1;
    const std::string& found = self->values_[key];
    *length = found.size();
    std::memcpy(value, found.data(), std::min(capacity, found.size()));
    return 0;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

muster_join_options joining(const char* name) {
  muster_join_options options = MUSTER_JOIN_OPTIONS;
  options.name = name;
  options.timeout_ms = 60000;
  return options;
}

template <typename Rank>
void on_ranks(int size, Rank rank) {
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i)
    threads.emplace_back([=] { rank(i); });
  for (std::thread& thread : threads)
    thread.join();
}

int sum_over(muster_group* group, int value) {
  int32_t sum = value;
  EXPECT_EQ(muster_all_reduce(group, &sum, &sum, 1, MUSTER_INT32, MUSTER_SUM, nullptr, nullptr),
            MUSTER_OK)
      << muster_last_error();
  return sum;
}

void leave(muster_group* group) {
  EXPECT_EQ(muster_group_leave(group), MUSTER_OK) << muster_last_error();
  muster_group_free(group);
}

TEST(CAbiJoin, RanksMeetAtAStoreThatRankZeroServes) {
  MapStore map;
  on_ranks(3, [&](int rank) {
    const muster_store store = map.functions();
    const muster_join_options options = joining("three");
    muster_group* group = nullptr;
    ASSERT_EQ(muster_group_join(&store, rank, 3, &options, &group), MUSTER_OK)
        << muster_last_error();
    EXPECT_EQ(muster_group_rank(group), rank);
    EXPECT_EQ(muster_group_size(group), 3);
    EXPECT_STREQ(muster_group_name(group), "three");
    EXPECT_EQ(sum_over(group, 1 << rank), 7);
    muster_group* half = nullptr;
    ASSERT_EQ(muster_split(group, rank % 2, 0, nullptr, &half), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(sum_over(half, 1 << rank), rank % 2 == 0 ? 5 : 2);
    muster_group_free(half);
    EXPECT_EQ(muster_is_initialized(), 0) << "it is not the job";
    leave(group);
  });
  EXPECT_THAT(map.keys(), ElementsAre("muster/meet"));
}

TEST(CAbiJoin, RanksMeetAtTheServerOfTheStoreAndLeaveNothingThere) {
  const auto server = worker::HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(server.has_value());
  MapStore first;
  MapStore second;
  on_ranks(2, [&](int rank) {
    muster_join_options options = joining("one");
    options.server_host = "127.0.0.1";
    options.server_port = (*server)->port();
    muster_store store = first.functions();
    muster_group* one = nullptr;
    ASSERT_EQ(muster_group_join(&store, rank, 2, &options, &one), MUSTER_OK) << muster_last_error();
    // Another group of the same ranks at the same server, in reverse order.
    store = second.functions();
    options.name = "two";
    muster_group* two = nullptr;
    ASSERT_EQ(muster_group_join(&store, 1 - rank, 2, &options, &two), MUSTER_OK)
        << muster_last_error();
    EXPECT_EQ(sum_over(one, rank + 1), 3);
    EXPECT_EQ(muster_group_rank(two), 1 - rank);
    leave(one);
    EXPECT_EQ(sum_over(two, rank + 1), 3) << "the groups are independent";
    EXPECT_EQ(muster_monitored_barrier(two, 1, nullptr), MUSTER_OK) << muster_last_error();
    leave(two);
  });
  worker::Outcome<StoreClient> client = (*server)->connect(std::chrono::seconds(10));
  ASSERT_TRUE(client.has_value());
  const auto keys = client->with_prefix("muster").list_keys();
  ASSERT_TRUE(keys.has_value());
  EXPECT_THAT(*keys, testing::Each(testing::Not(HasSubstr("/rank/"))));
  EXPECT_THAT(*keys, testing::Each(testing::Not(HasSubstr("/owner/"))));
  EXPECT_THAT(*keys, testing::Each(testing::Not(HasSubstr("/joins/"))));
}

int blamed_rank() {
  std::array<int, 2> blamed{-1, -1};
  EXPECT_EQ(muster_last_error_ranks(blamed.data(), 2), 1U);
  return blamed[0];
}

// Rank 1 misses a monitored barrier of rank 0.
void miss_a_barrier(muster_group* group, int rank, const char* in_words, int known_as) {
  if (rank == 0) {
    muster_call_options soon = MUSTER_CALL_OPTIONS;
    soon.timeout_ms = 50;
    EXPECT_EQ(muster_monitored_barrier(group, 1, &soon), MUSTER_ERROR_TIMEOUT);
    EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("of group pair"), HasSubstr(in_words)));
    EXPECT_EQ(blamed_rank(), known_as);
  }
  EXPECT_EQ(sum_over(group, 1), 2);
}

TEST(CAbiJoin, ErrorsNameRanksByTheProgramsNumbers) {
  MapStore first;
  MapStore second;
  on_ranks(2, [&](int rank) {
    const std::array<int, 2> numbers{5, 4};
    const std::array<int, 2> others{7, 8};
    muster_join_options options = joining("pair");
    options.known_as = numbers.data();
    muster_store store = first.functions();
    muster_group* group = nullptr;
    ASSERT_EQ(muster_group_join(&store, rank, 2, &options, &group), MUSTER_OK)
        << muster_last_error();
    // A group of the same name, with other numbers.
    options.known_as = others.data();
    store = second.functions();
    muster_group* other = nullptr;
    ASSERT_EQ(muster_group_join(&store, rank, 2, &options, &other), MUSTER_OK)
        << muster_last_error();
    miss_a_barrier(group, rank, "rank 4 (", 4);
    miss_a_barrier(other, rank, "rank 8 (", 8);
    leave(other);
    miss_a_barrier(group, rank, "rank 4 (", 4);
    leave(group);
  });
}

TEST(CAbiJoin, ErrorsOfAGroupOfOneUseTheProgramsNumber) {
  MapStore map;
  const muster_store store = map.functions();
  const int number = 7;
  muster_join_options options = joining("one");
  options.known_as = &number;
  muster_group* group = nullptr;
  ASSERT_EQ(muster_group_join(&store, 0, 1, &options, &group), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_group_abort(group, "enough"), MUSTER_OK);
  EXPECT_EQ(muster_barrier(group, nullptr, nullptr), MUSTER_ERROR_ABORTED);
  EXPECT_THAT(muster_last_error(), HasSubstr("rank 7 ("));
  EXPECT_EQ(blamed_rank(), 7);
  EXPECT_EQ(muster_group_failure(group), MUSTER_ERROR_ABORTED);
  EXPECT_EQ(blamed_rank(), 7);
  leave(group);
}

TEST(CAbiJoin, AMissingRankIsNamed) {
  MapStore map;
  on_ranks(2, [&](int rank) {
    const muster_store store = map.functions();
    muster_join_options options = joining("four");
    options.timeout_ms = 2000;
    muster_group* group = nullptr;
    EXPECT_EQ(muster_group_join(&store, rank, 3, &options, &group), MUSTER_ERROR_TIMEOUT);
    EXPECT_THAT(muster_last_error(), StartsWith("muster_group_join: "));
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 2 of 3 did not join within 2 s"));
    EXPECT_EQ(blamed_rank(), 2);
    EXPECT_EQ(group, nullptr);
  });
  MapStore empty;
  const std::array<int, 2> numbers{3, 6};
  muster_join_options options = joining("pair");
  options.timeout_ms = 50;
  options.known_as = numbers.data();
  for (const int rank : {0, 1}) {
    const muster_store store = empty.functions();
    muster_group* group = nullptr;
    EXPECT_EQ(muster_group_join(&store, 1 - rank, 2, &options, &group), MUSTER_ERROR_TIMEOUT);
    EXPECT_THAT(muster_last_error(), HasSubstr(fmt::format("rank {} did not join within 50 ms",
                                                           numbers[static_cast<size_t>(rank)])));
    EXPECT_EQ(blamed_rank(), numbers[static_cast<size_t>(rank)]);
  }
}

TEST(CAbiJoin, ReportsAStoreThatFailsOrHoldsOtherData) {
  MapStore map;
  muster_store store = map.functions(true);
  const muster_join_options options = joining("bad");
  muster_group* group = nullptr;
  EXPECT_EQ(muster_group_join(&store, 0, 2, &options, &group), MUSTER_ERROR_RENDEZVOUS);
  EXPECT_STREQ(muster_last_error(),
               "muster_group_join: set() of the store that was given failed for the key "
               "muster/meet: the map?is full");
  map.put("muster/meet", std::string(10000, 'x'));
  store = map.functions();
  EXPECT_EQ(muster_group_join(&store, 1, 2, &options, &group), MUSTER_ERROR_ENVIRONMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("a prefix for each group"));
}

TEST(CAbiJoin, RefusesMembersThatDisagreeAboutTheServer) {
  const auto server = worker::HostStore::serve({{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(server.has_value());
  for (const bool first_is_told : {false, true}) {
    MapStore map;
    on_ranks(2, [&](int rank) {
      const muster_store store = map.functions();
      muster_join_options options = joining("odd");
      options.timeout_ms = rank == 0 ? 300 : 60000;
      if (first_is_told == (rank == 0)) {
        options.server_host = "127.0.0.1";
        options.server_port = (*server)->port();
      }
      muster_group* group = nullptr;
      const muster_status status = muster_group_join(&store, rank, 2, &options, &group);
      EXPECT_EQ(status, rank == 0 ? MUSTER_ERROR_TIMEOUT : MUSTER_ERROR_ENVIRONMENT);
      if (rank == 0) return;
      EXPECT_THAT(muster_last_error(), HasSubstr("server_host on all members, or on none"));
    });
  }
}

TEST(CAbiJoin, WrongArgumentsAreNamed) {
  MapStore map;
  const muster_store store = map.functions();
  muster_group* group = nullptr;
  const auto refused = [&](const muster_store* with, int rank, int size,
                           const muster_join_options& options, const char* part) {
    EXPECT_EQ(muster_group_join(with, rank, size, &options, &group), MUSTER_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(muster_last_error(), AllOf(StartsWith("muster_group_join: "), HasSubstr(part)));
  };
  const muster_join_options good = joining("good");
  refused(nullptr, 0, 1, good, "store is NULL");
  muster_store half = store;
  half.get = nullptr;
  refused(&half, 0, 1, good, "store->set and store->get are needed");
  half.struct_size = 3;
  refused(&half, 0, 1, good, "muster_store.struct_size is 3");
  refused(&store, 0, 0, good, "size is 0");
  refused(&store, -1, 2, good, "rank is -1: it must be from 0 to 1");
  refused(&store, 2, 2, good, "rank is 2: it must be from 0 to 1");
  refused(&store, 0, 1, joining(""), "name: it is empty");
  refused(&store, 0, 1, joining(std::string(65, 'x').c_str()), "65 characters");
  muster_join_options wrong = good;
  wrong.timeout_ms = 0;
  refused(&store, 0, 1, wrong, "timeout_ms is 0");
  wrong = good;
  wrong.server_host = "here";
  refused(&store, 0, 2, wrong, "server_port is 0");
  wrong.server_host = "";
  refused(&store, 0, 2, wrong, "server_host is empty");
  EXPECT_EQ(muster_group_join(&store, 0, 1, &good, nullptr), MUSTER_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(map.keys(), testing::IsEmpty()) << "no call reaches the store";
}

TEST(CAbiJoin, AGroupOfOneNeedsNoStoreAndEndsWhenItIsLeft) {
  MapStore map;
  const muster_store store = map.functions();
  const muster_join_options options = joining("one");
  muster_group* group = nullptr;
  ASSERT_EQ(muster_group_join(&store, 0, 1, &options, &group), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(sum_over(group, 4), 4);
  EXPECT_THAT(map.keys(), testing::IsEmpty());
  EXPECT_EQ(muster_group_leave(group), MUSTER_OK);
  EXPECT_EQ(muster_group_leave(group), MUSTER_OK) << "a second call is allowed";
  EXPECT_EQ(muster_barrier(group, nullptr, nullptr), MUSTER_ERROR_NOT_INITIALIZED);
  EXPECT_THAT(muster_last_error(), HasSubstr("this rank has left the group"));
  muster_group_free(group);
  EXPECT_EQ(muster_group_leave(nullptr), MUSTER_ERROR_INVALID_ARGUMENT);
}

TEST(CAbiJoin, OnlyAJoinedGroupCanBeLeft) {
  muster_init_options alone = MUSTER_INIT_OPTIONS;
  alone.backend = MUSTER_BACKEND_CPU;
  ASSERT_EQ(muster_init(&alone), MUSTER_OK) << muster_last_error();
  muster_group* world = nullptr;
  ASSERT_EQ(muster_world(&world), MUSTER_OK);
  EXPECT_EQ(muster_group_leave(world), MUSTER_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("not made by muster_group_join()"));
  // A joined group beside the job.
  MapStore map;
  const muster_store store = map.functions();
  muster_group* other = nullptr;
  ASSERT_EQ(muster_group_join(&store, 0, 1, nullptr, &other), MUSTER_OK) << muster_last_error();
  muster_destroy();
  EXPECT_EQ(sum_over(other, 3), 3);
  leave(other);
  muster_group_free(world);
}

TEST(CAbiSites, HaveNoNameWithoutALauncher) {
  EXPECT_EQ(muster_name_site("train.py:1"), nullptr);
  EXPECT_EQ(muster_name_site(nullptr), nullptr);
}

}  // namespace
}  // namespace muster

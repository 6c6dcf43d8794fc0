#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "muster/error.h"
#include "muster/gradient_buckets.h"
#include "tests/unit/worker_lib/group/fake_backend.h"

namespace muster {
namespace {

using worker::group_test::FakeJob;
using Floats = std::vector<float>;
using BucketLog = std::vector<std::string>;

// What a rank's buffers hold before a step: whole numbers, whose sums are exact.
float value_of(int rank, size_t buffer, size_t element, int step) {
  return static_cast<float>((rank + 1) * 100 + static_cast<int>(buffer * 10 + element % 7) + step);
}

float average_of(int ranks, size_t buffer, size_t element, int step) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank)
    sum += value_of(rank, buffer, element, step);
  return sum / static_cast<float>(ranks);
}

// A rank's gradients: buffers of floats, one behind the other (a flat vector) or scattered.
struct Gradients {
  Gradients(const std::vector<size_t>& counts, bool flat) {
    const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
    memory.resize(flat ? total : total + counts.size());
    size_t next = 0;
    for (const size_t count : counts) {
      buffers.emplace_back(memory.data() + next, count, DType::float32);
      next += count + (flat ? 0 : 1);
    }
  }
  float* at(size_t buffer) { return static_cast<float*>(buffers[buffer].data); }
  void fill(int rank, int step) {
    for (size_t b = 0; b < buffers.size(); ++b) {
      for (size_t i = 0; i < buffers[b].count; ++i)
        at(b)[i] = value_of(rank, b, i, step);
    }
  }
  // The first wrong element, if any.
  std::optional<std::string> differs_from_average(int ranks, int step) {
    for (size_t b = 0; b < buffers.size(); ++b) {
      for (size_t i = 0; i < buffers[b].count; ++i) {
        if (at(b)[i] == average_of(ranks, b, i, step)) continue;
        return "buffer " + std::to_string(b) + "[" + std::to_string(i) +
               "] = " + std::to_string(at(b)[i]);
      }
    }
    return std::nullopt;
  }
  Floats memory;
  std::vector<Buffer> buffers;
};

// Operations of the buckets, without those of their construction.
BucketLog reductions(FakeJob& job) {
  BucketLog some;
  for (const std::string& line : job.tables().named("world").performed()) {
    if (line.find("float32") != std::string::npos) some.push_back(line);
  }
  return some;
}

const std::vector<size_t> kCounts{10, 3, 20, 1, 8};

class Buckets : public testing::TestWithParam<std::tuple<BucketStrategy, bool>> {};

TEST_P(Buckets, HoldTheAverageOfAllRanksAfterEveryStep) {
  const BucketStrategy strategy = std::get<0>(GetParam());
  const bool flat = std::get<1>(GetParam());
  FakeJob(3).each_world([&](ProcessGroup group) {
    const int rank = group.rank().value;
    Gradients gradients(kCounts, flat);
    GradientBuckets buckets(group, gradients.buffers,
                            {.bucket_bytes = 90, .first_bucket_bytes = 40, .strategy = strategy});
    EXPECT_EQ(buckets.bucket_count(), 3u);
    for (int step = 0; step < 3; ++step) {
      gradients.fill(rank, step);
      for (size_t i = kCounts.size(); i-- > 0;)
        buckets.ready(i);
      buckets.wait();
      EXPECT_EQ(gradients.differs_from_average(3, step), std::nullopt);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWay, Buckets,
                         testing::Combine(testing::Values(BucketStrategy::all_reduce,
                                                          BucketStrategy::reduce_broadcast),
                                          testing::Bool()));

TEST(Buckets, MayBeMadeOfAListInBraces) {
  FakeJob(2).each_world([](ProcessGroup group) {
    Floats first{value_of(group.rank().value, 0, 0, 0)};
    Floats second{value_of(group.rank().value, 1, 0, 0)};
    GradientBuckets buckets(group, {first, second});
    buckets.ready_all();
    buckets.wait();
    EXPECT_EQ(first, Floats{average_of(2, 0, 0, 0)});
    EXPECT_EQ(second, Floats{average_of(2, 1, 0, 0)});
  });
}

TEST(Buckets, AreReducedInOneOrderWhateverOrderTheyAreReadyIn) {
  FakeJob job(2);
  job.each_world([](ProcessGroup group) {
    Gradients gradients(kCounts, false);
    GradientBuckets buckets(group, gradients.buffers,
                            {.bucket_bytes = 90, .first_bucket_bytes = 40});
    gradients.fill(group.rank().value, 0);
    std::vector<size_t> order(kCounts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (group.rank().value == 1) std::reverse(order.begin(), order.end());
    for (const size_t i : order)
      buckets.ready(i);
    buckets.wait();
    EXPECT_EQ(gradients.differs_from_average(2, 0), std::nullopt);
  });
  EXPECT_EQ(reductions(job),
            (BucketLog{"all_reduce 9 float32", "all_reduce 20 float32", "all_reduce 13 float32"}));
}

TEST(Buckets, BeginAsSoonAsTheyAreFull) {
  FakeJob job(2);
  job.each_world([&](ProcessGroup group) {
    Gradients gradients(kCounts, false);
    GradientBuckets buckets(group, gradients.buffers,
                            {.bucket_bytes = 90, .first_bucket_bytes = 40});
    gradients.fill(group.rank().value, 0);
    buckets.ready(4);
    EXPECT_EQ(reductions(job), BucketLog{});
    buckets.ready(3);
    // It completes while this thread does something else.
    while (reductions(job).empty())
      std::this_thread::yield();
    EXPECT_EQ(reductions(job), (BucketLog{"all_reduce 9 float32"}));
    buckets.wait();
  });
}

TEST(Buckets, ReduceAndBroadcastIfAsked) {
  FakeJob job(2);
  job.each_world([](ProcessGroup group) {
    Gradients gradients({4}, true);
    GradientBuckets buckets(group, gradients.buffers,
                            {.strategy = BucketStrategy::reduce_broadcast});
    buckets.ready(0);
    buckets.wait();
  });
  EXPECT_EQ(reductions(job), (BucketLog{"reduce 4 float32", "broadcast 4 float32"}));
}

TEST(Buckets, CountABufferThatIsNotReadyAsZeros) {
  for (const bool flat : {false, true}) {
    FakeJob(2).each_world([flat](ProcessGroup group) {
      const int rank = group.rank().value;
      Gradients gradients({2, 2, 2}, flat);
      GradientBuckets buckets(group, gradients.buffers);
      gradients.fill(rank, 0);
      buckets.ready(2);
      if (rank == 1) buckets.ready(1);  // Rank 0 skips that layer; both skip buffer 0.
      buckets.wait();
      EXPECT_EQ(gradients.at(2)[0], average_of(2, 2, 0, 0));
      EXPECT_EQ(gradients.at(1)[1], value_of(1, 1, 1, 0) / 2);
      EXPECT_EQ(gradients.at(0)[0], 0);
    });
  }
}

TEST(Buckets, AreReducedAlikeIfAllAreReadyAtOnce) {
  FakeJob(2).each_world([](ProcessGroup group) {
    Gradients gradients(kCounts, false);
    GradientBuckets buckets(group, gradients.buffers);
    gradients.fill(group.rank().value, 0);
    buckets.ready(2);
    buckets.ready_all();
    buckets.wait();
    EXPECT_EQ(gradients.differs_from_average(2, 0), std::nullopt);
  });
}

TEST(Buckets, AreUnderWayOnceFlushed) {
  FakeJob job(2);
  job.each_world([&](ProcessGroup group) {
    Gradients gradients({2, 2}, false);
    GradientBuckets buckets(group, gradients.buffers, {.bucket_bytes = 8, .first_bucket_bytes = 8});
    buckets.flush();
    while (reductions(job).size() < 2)
      std::this_thread::yield();
    buckets.wait();
    EXPECT_EQ(gradients.memory, Floats(6));
  });
}

TEST(Buckets, ReduceEachTypeSeparately) {
  FakeJob(2).each_world([](ProcessGroup group) {
    const int rank = group.rank().value;
    std::vector<int32_t> whole{rank, 7};
    std::vector<double> fine{0.5 * rank};
    Floats coarse{static_cast<float>(rank)};
    const std::vector<Buffer> list{whole, fine, coarse};
    GradientBuckets buckets(group, list, {.op = ReduceOp::sum});
    EXPECT_EQ(buckets.bucket_count(), 3u);
    EXPECT_EQ(buckets.bucket_of(0), 2u);
    EXPECT_EQ(buckets.bucket_of(2), 0u);
    buckets.ready_all();
    buckets.wait();
    EXPECT_EQ(whole, (std::vector<int32_t>{1, 14}));
    EXPECT_EQ(fine, (std::vector<double>{0.5}));
    EXPECT_EQ(coarse, (Floats{1}));
  });
}

TEST(Buckets, HaveNothingToDoForNoOrEmptyBuffers) {
  FakeJob(2).each_world([](ProcessGroup group) {
    GradientBuckets nothing(group, {});
    nothing.wait();
    EXPECT_EQ(nothing.bucket_count(), 0u);
    const std::vector<Buffer> empty(2, Buffer(nullptr, 0, DType::float32));
    GradientBuckets buckets(group, empty);
    buckets.ready(1);
    buckets.wait();
    EXPECT_EQ(buckets.bucket_count(), 1u);
  });
}

TEST(Buckets, CopyNothingOfAFlatVector) {
  FakeJob(2).each_world([](ProcessGroup group) {
    for (const bool flat : {true, false}) {
      Gradients gradients(kCounts, flat);
      GradientBuckets buckets(group, gradients.buffers);
      buckets.ready_all();
      buckets.wait();
      EXPECT_EQ(buckets.last_copy() == std::chrono::nanoseconds(0), flat);
      EXPECT_GT(buckets.last_wait(), std::chrono::nanoseconds(0));
    }
  });
}

// One rank's vector is flat, the other's is not.
TEST(Buckets, MayLieDifferentlyOnEachRank) {
  FakeJob(2).each_world([](ProcessGroup group) {
    Gradients gradients(kCounts, group.rank().value == 0);
    GradientBuckets buckets(group, gradients.buffers);
    gradients.fill(group.rank().value, 0);
    buckets.ready_all();
    buckets.wait();
    EXPECT_EQ(gradients.differs_from_average(2, 0), std::nullopt);
  });
}

TEST(Buckets, MoveWithTheirOperations) {
  FakeJob(2).each_world([](ProcessGroup group) {
    Gradients gradients({4, 4}, false);
    GradientBuckets first(group, gradients.buffers);
    gradients.fill(group.rank().value, 0);
    first.ready_all();
    GradientBuckets second(std::move(first));
    second.wait();
    EXPECT_EQ(gradients.differs_from_average(2, 0), std::nullopt);
  });
}

// The sanitizers would report an operation that still writes to freed memory.
TEST(Buckets, WaitForTheirOperationsOnDestruction) {
  FakeJob(2).each_world([](ProcessGroup group) {
    Gradients gradients({4, 4}, false);
    {
      GradientBuckets buckets(group, gradients.buffers,
                              {.bucket_bytes = 16, .first_bucket_bytes = 16});
      buckets.ready(1);
    }
    group.barrier();
  });
}

// ---- what is refused

template <typename Call>
std::string refusal(ErrorCode code, Call&& call) {
  try {
    call();
  } catch (const DistributedError& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.operation(), "GradientBuckets");
    EXPECT_EQ(error.group(), "world");
    return error.what();
  }
  return "nothing was refused";
}

TEST(Buckets, RefuseABufferThatIsReadyTwiceInAStep) {
  FakeJob(1).each_world([](ProcessGroup group) {
    Gradients gradients({2, 2}, false);
    GradientBuckets buckets(group, gradients.buffers);
    buckets.ready(1);
    EXPECT_EQ(refusal(ErrorCode::invalid_argument, [&] { buckets.ready(1); }),
              "GradientBuckets: buffer 1 is ready for the second time in this step; call wait() "
              "between two steps");
    buckets.wait();
    buckets.ready(1);  // The next step.
    buckets.wait();
  });
}

TEST(Buckets, RefuseABufferThatIsNotInTheList) {
  FakeJob(1).each_world([](ProcessGroup group) {
    Gradients gradients({2, 2}, false);
    GradientBuckets buckets(group, gradients.buffers);
    const std::string said = "GradientBuckets: buffer 2 of a list of 2";
    EXPECT_EQ(refusal(ErrorCode::invalid_argument, [&] { buckets.ready(2); }), said);
    EXPECT_EQ(refusal(ErrorCode::invalid_argument, [&] { (void)buckets.bucket_of(2); }), said);
  });
}

TEST(Buckets, ReportOnAllRanksTheRankWhoseListDiffers) {
  FakeJob(3).each_world([](ProcessGroup group) {
    const bool odd_one = group.rank().value == 2;
    Gradients gradients(odd_one ? std::vector<size_t>{2} : std::vector<size_t>{2, 3}, false);
    try {
      GradientBuckets buckets(group, gradients.buffers);
      ADD_FAILURE() << "taken";
    } catch (const DistributedError& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.failed_ranks(), (std::vector<GlobalRank>{{2}}));
      EXPECT_STREQ(error.what(),
                   "GradientBuckets: the lists differ: rank 0 has 2 buffers in 1 buckets, rank 2 "
                   "has 1 in 1; buffer 1: rank 0 has 3 float32, rank 2 has none; give all ranks "
                   "the same counts, dtypes and options in the same order");
    }
    group.barrier();  // The group goes on.
  });
}

TEST(Buckets, NameTheFirstBufferThatDiffers) {
  const auto said = [](const std::function<void(std::vector<Buffer>&, BucketOptions&)>& change) {
    std::string text;
    FakeJob(2).each_world([&](ProcessGroup group) {
      Gradients gradients({2, 6}, false);
      BucketOptions options;
      if (group.rank().value == 1) change(gradients.buffers, options);
      try {
        GradientBuckets buckets(group, gradients.buffers, options);
      } catch (const DistributedError& error) {
        if (group.rank().value == 0) text = error.what();
      }
    });
    return text;
  };
  const std::string end = "; give all ranks the same counts, dtypes and options in the same order";
  EXPECT_EQ(said([](auto& buffers, BucketOptions&) { buffers[1].count = 5; }),
            "GradientBuckets: the lists differ: buffer 1: rank 0 has 6 float32, rank 1 has 5 "
            "float32" +
                end);
  EXPECT_EQ(
      said([](auto& buffers, BucketOptions&) { buffers[0].dtype = DType::int32; }).substr(0, 32),
      "GradientBuckets: the lists diffe");
  EXPECT_EQ(said([](auto&, BucketOptions& options) { options.op = ReduceOp::sum; }),
            "GradientBuckets: the lists differ: the options (op, strategy, sizes of buckets) of "
            "rank 0 and rank 1" +
                end);
}

TEST(Buckets, DetectDifferencesOfEqualTotals) {
  const auto differs = [](auto&& change) {
    std::atomic<int> refusals{0};
    FakeJob(2).each_world([&](ProcessGroup group) {
      Gradients gradients({4, 4}, false);
      BucketOptions options;
      if (group.rank().value == 1) change(gradients, options);
      try {
        GradientBuckets buckets(group, gradients.buffers, options);
      } catch (const DistributedError& error) {
        EXPECT_EQ(error.code(), ErrorCode::mismatch);
        ++refusals;
      }
    });
    EXPECT_TRUE(refusals == 0 || refusals == 2) << "the ranks do not agree";
    return refusals == 2;
  };
  EXPECT_TRUE(differs([](Gradients& g, BucketOptions&) {
    g.buffers[0].count = 3;  // 3 and 5 instead of 4 and 4.
    g.buffers[1] = Buffer(g.memory.data() + 3, 5, DType::float32);
  }));
  EXPECT_TRUE(differs([](Gradients& g, BucketOptions&) {
    g.buffers[1].dtype = g.buffers[0].dtype = DType::int32;
  }));
  EXPECT_TRUE(differs([](Gradients&, BucketOptions& o) { o.op = ReduceOp::sum; }));
  EXPECT_TRUE(
      differs([](Gradients&, BucketOptions& o) { o.strategy = BucketStrategy::reduce_broadcast; }));
  EXPECT_TRUE(differs([](Gradients&, BucketOptions& o) { o.first_bucket_bytes = 1; }));
  EXPECT_FALSE(
      differs([](Gradients&, BucketOptions& o) { o.bucket_bytes = 1; }));  // One bucket holds both.
}

// ---- when an operation fails

TEST(Buckets, PassOnTheFailureOfAnOperation) {
  FakeJob job(2, worker::group_test::without_news);
  job.each_world([&](ProcessGroup group) {
    Gradients gradients({4, 4}, false);
    GradientBuckets buckets(group, gradients.buffers,
                            {.bucket_bytes = 16, .first_bucket_bytes = 16});
    group.barrier();
    // The constructor took one all_gather; this barrier was the second operation.
    job.tables().named("world").fail_at(
        3, {ErrorCode::peer_failed, "rank 1 (testhost, pid 7) died", {GlobalRank{1}}});
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        buckets.ready_all();
        buckets.wait();
        ADD_FAILURE() << "went well";
      } catch (const DistributedError& error) {
        EXPECT_EQ(error.code(), ErrorCode::peer_failed);
        EXPECT_EQ(error.failed_ranks(), (std::vector<GlobalRank>{{1}}));
        EXPECT_NE(std::string(error.what()).find("died"), std::string::npos) << error.what();
      }
    }
  });
}

// ---- everything at once

RC_GTEST_PROP(BucketsProperty, AverageAnyListInAnyOrder, ()) {
  const auto counts = *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, 50));
  const int ranks = *rc::gen::inRange(1, 5);
  const auto seed = *rc::gen::arbitrary<uint32_t>();
  const BucketOptions options{
      .bucket_bytes = *rc::gen::inRange<size_t>(0, 400),
      .first_bucket_bytes = *rc::gen::inRange<size_t>(0, 200),
      .strategy = *rc::gen::element(BucketStrategy::all_reduce, BucketStrategy::reduce_broadcast)};
  std::atomic<int> wrong{0};
  FakeJob(ranks).each_world([&](ProcessGroup group) {
    const int rank = group.rank().value;
    std::mt19937 random(seed + static_cast<uint32_t>(rank));
    Gradients gradients(counts, random() % 2 == 0);
    GradientBuckets buckets(group, gradients.buffers, options);
    std::vector<size_t> order(counts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (int step = 0; step < 3; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      gradients.fill(rank, step);
      for (const size_t i : order)
        buckets.ready(i);
      buckets.wait();
      if (gradients.differs_from_average(ranks, step)) ++wrong;
    }
  });
  RC_ASSERT(wrong == 0);
}

}  // namespace
}  // namespace muster

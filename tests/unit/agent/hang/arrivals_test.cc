#include "agent/hang/arrivals.h"

#include <array>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;
using testing::SizeIs;

// A rank's ring, with a writer whose ticks are nanoseconds; times are set by hand.
class RecordingRank {
 public:
  RecordingRank() { attach(); }
  // A new process of the rank begins to record.
  void attach() {
    writer_.reset();
    writer_ =
        ring::RingWriter::attach(ring_.text(), ring::Source::worker_lib, ring_.why, /*tsc=*/false);
    CHECK(writer_ != nullptr);
    ring_->head.attached_ticks = 1;
    ring_->head.attached_ns = 1;
  }
  int32_t open(const std::string& name, int size, bool is_on_device = false) {
    const int32_t group = writer_->open_group(
        {.id = name, .name = name, .size = size, .own_rank = 0, .is_on_device = is_on_device});
    writer_->set_state(group, ring::GroupState::ready);
    return group;
  }
  // `took` not set: the call is still pending.
  void call(int32_t group, uint64_t ordinal, Duration at,
            std::optional<Duration> took = Duration(1), bool is_synchronous = true) {
    const ring::Pending pending = writer_->called(
        group, ordinal,
        {.kind = ring::CallKind::all_reduce, .is_synchronous = is_synchronous, .count = 8},
        nullptr);
    ring::Record& record = ring_->records[pending.record % ring::kRecords];
    record.called_ticks = static_cast<uint64_t>(at.count());
    last_ = pending;
    if (took) finish(*took);
  }
  void finish(Duration took) {
    writer_->completed(last_);
    ring_->records[last_.record % ring::kRecords].completed =
        (last_.record / ring::kRecords) << 48 | static_cast<uint64_t>(took.count());
  }
  void read_by(ArrivalSampler& sampler, int rank) const {
    sampler.read(rank, *reader_.state(), reader_);
  }

 private:
  ring::TestRing ring_;
  const RingReader reader_ = RingReader::open({ring_.fd(), ring::kTestNonce}).value();
  std::unique_ptr<ring::RingWriter> writer_;
  ring::Pending last_;
};

// A node with ranks 4 and 5 of a group of four.
class ArrivalSamplerTest : public testing::Test {
 protected:
  std::vector<Arrivals> look(Instant now = {}) {
    for (int i = 0; i < 2; ++i)
      ranks_[static_cast<size_t>(i)].read_by(sampler_, 4 + i);
    return sampler_.take(now);
  }
  std::vector<Arrivals> look_at_dp() {
    std::vector<Arrivals> arrivals = look();
    std::erase_if(arrivals, [](const Arrivals& one) { return one.group != "dp"; });
    return arrivals;
  }

  std::array<RecordingRank, 2> ranks_;
  ArrivalSampler sampler_{1};
  const int32_t first_ = ranks_[0].open("dp", 4);
  const int32_t second_ = ranks_[1].open("dp", 4);
};

TEST_F(ArrivalSamplerTest, ReportsACallOnceForAllRanksOfTheNode) {
  ranks_[0].call(first_, 1, milliseconds(1));
  ranks_[1].call(second_, 1, milliseconds(1));
  ranks_[0].call(first_, 2, milliseconds(10));
  ranks_[1].call(second_, 2, milliseconds(30));
  const auto arrivals = look();
  ASSERT_THAT(arrivals, SizeIs(1)) << "the first call follows the start-up and is left out";
  EXPECT_EQ(arrivals[0], (Arrivals{.group = "dp",
                                   .name = "dp",
                                   .ordinal = 2,
                                   .number = 2,
                                   .size = 4,
                                   .ranks = 2,
                                   .mean = Instant(milliseconds(20)),
                                   .last_rank = 5,
                                   .last = Instant(milliseconds(30))}));
  EXPECT_THAT(look(), IsEmpty());
}

TEST_F(ArrivalSamplerTest, LeavesOutCallsOnADevice) {
  for (size_t i = 0; i < 2; ++i) {
    const int32_t group = ranks_[i].open("nccl", 2, /*is_on_device=*/true);
    ranks_[i].call(group, 2, milliseconds(10), std::nullopt);
  }
  EXPECT_THAT(look(), IsEmpty());
}

// DDP's buckets are such calls: the others wait once, for all of them together.
TEST_F(ArrivalSamplerTest, LeavesOutAsynchronousCalls) {
  for (uint64_t ordinal = 2; ordinal <= 20; ++ordinal) {
    ranks_[0].call(first_, ordinal, milliseconds(ordinal), milliseconds(1), false);
    ranks_[1].call(second_, ordinal, milliseconds(ordinal + 2), milliseconds(1), false);
  }
  EXPECT_THAT(look(), IsEmpty());
}

TEST_F(ArrivalSamplerTest, NumbersTheSynchronousCallsAlone) {
  for (uint64_t ordinal = 1; ordinal <= 20; ++ordinal) {
    const bool is_synchronous = ordinal % 10 == 0;
    ranks_[0].call(first_, ordinal, milliseconds(ordinal), milliseconds(1), is_synchronous);
    ranks_[1].call(second_, ordinal, milliseconds(ordinal), milliseconds(1), is_synchronous);
  }
  const auto arrivals = look();
  ASSERT_THAT(arrivals, SizeIs(2));
  EXPECT_EQ(arrivals[0].number, 1U);
  EXPECT_EQ(arrivals[1].number, 2U);
}

TEST_F(ArrivalSamplerTest, ReportsOnlyValidArrivalsOfAnInvalidRing) {
  for (int i = 0; i < 6; ++i)
    ranks_[0].call(first_, 2, milliseconds(10));  // One rank cannot be all of them.
  ranks_[1].call(second_, 2, milliseconds(30));
  const int32_t alone = ranks_[0].open("none", 0);
  ranks_[0].call(alone, 2, milliseconds(10));
  const auto arrivals = look();
  ASSERT_THAT(arrivals, SizeIs(1));
  EXPECT_EQ(arrivals[0].ranks, 2);
  EXPECT_TRUE(decode_arrivals(encode_arrivals(arrivals, Instant(seconds(1)), 1000), Instant{}));
}

TEST_F(ArrivalSamplerTest, CountsConcurrentWaitsOfThreadsOnce) {
  const int32_t tp = ranks_[1].open("tp", 8);
  const int32_t pp = ranks_[1].open("pp", 8);
  ranks_[0].call(first_, 2, milliseconds(1));
  ranks_[1].call(tp, 2, milliseconds(1), milliseconds(100));
  ranks_[1].call(pp, 2, milliseconds(2), milliseconds(100));
  ranks_[1].call(second_, 2, milliseconds(110));
  const std::vector<Arrivals> of_group = look_at_dp();
  ASSERT_THAT(of_group, SizeIs(1));
  EXPECT_EQ(of_group[0].last_blocked, milliseconds(101));
}

TEST_F(ArrivalSamplerTest, WaitsForLateRanks) {
  ranks_[0].call(first_, 2, milliseconds(10), std::nullopt);
  EXPECT_THAT(look(), IsEmpty());
  ranks_[1].call(second_, 2, milliseconds(30));
  EXPECT_THAT(look(), IsEmpty()) << "the call of the first rank is not over";
  ranks_[0].finish(milliseconds(25));
  const auto arrivals = look();
  ASSERT_THAT(arrivals, SizeIs(1));
  EXPECT_EQ(arrivals[0].last_rank, 5);
}

TEST_F(ArrivalSamplerTest, ReportsWaitsInOtherGroupsSinceTheCallBefore) {
  const int32_t other = ranks_[1].open("tp", 8);
  ranks_[0].call(first_, 2, milliseconds(1));
  ranks_[1].call(other, 2, milliseconds(1), milliseconds(100));
  ranks_[1].call(second_, 2, milliseconds(102));
  ranks_[1].call(other, 3, milliseconds(103), milliseconds(40));
  ranks_[0].call(first_, 3, milliseconds(110), milliseconds(90));
  ranks_[1].call(second_, 3, milliseconds(150));
  const std::vector<Arrivals> of_group = look_at_dp();
  ASSERT_THAT(of_group, SizeIs(2));
  EXPECT_EQ(of_group[0].last_blocked, milliseconds(100));
  EXPECT_EQ(of_group[0].mean_blocked, milliseconds(50));
  EXPECT_EQ(of_group[1].last_blocked, milliseconds(40)) << "not in calls of this group";
  EXPECT_EQ(of_group[1].mean_blocked, milliseconds(20));
}

TEST_F(ArrivalSamplerTest, SamplesTheSameCallsOfABusyGroupOnAllNodes) {
  ArrivalSampler far(1000);
  Instant now{};
  uint64_t ordinal = 1;
  std::vector<Arrivals> near_told;
  std::vector<Arrivals> far_told;
  for (int second = 0; second < 4; ++second, now += seconds(1)) {
    near_told.clear();
    far_told.clear();
    for (int part = 0; part < 4; ++part) {
      for (int i = 0; i < 500; ++i)
        ranks_[0].call(first_, ++ordinal, milliseconds(ordinal));
      ranks_[0].read_by(sampler_, 4);
      ranks_[0].read_by(far, 4);
      for (auto* const told : {&near_told, &far_told}) {
        const auto more = (told == &near_told ? sampler_ : far).take(now);
        told->insert(told->end(), more.begin(), more.end());
      }
    }
  }
  EXPECT_LE(near_told.size(), 300U);
  EXPECT_GE(near_told.size(), 30U);
  EXPECT_LE(far_told.size(), 30U);
  for (const Arrivals& one : far_told) {
    EXPECT_GT(one.stride, near_told.front().stride);
    EXPECT_TRUE(std::ranges::any_of(near_told, [&](const Arrivals& other) {
      return other.ordinal == one.ordinal;
    })) << one.ordinal;
  }
}

TEST_F(ArrivalSamplerTest, StartsOverWithANewProcessOfARank) {
  ranks_[0].call(first_, 2, milliseconds(10));
  ranks_[1].call(second_, 2, milliseconds(30));
  EXPECT_THAT(look(), SizeIs(1));
  ranks_[0].call(first_, 3, milliseconds(40));
  look();
  ranks_[1].attach();
  EXPECT_THAT(look(), IsEmpty());
  const int32_t group = ranks_[1].open("dp", 4);
  ranks_[0].call(first_, 4, milliseconds(50));
  EXPECT_THAT(look(), IsEmpty()) << "the other rank is a member again";
  ranks_[1].call(group, 4, milliseconds(60));
  EXPECT_THAT(look(), SizeIs(1));
}

Arrivals sample() {
  return {.group = "id-7",
          .name = "dp",
          .ordinal = 1042,
          .number = 521,
          .stride = 8,
          .size = 16,
          .ranks = 2,
          .mean = Instant(seconds(99)),
          .mean_blocked = milliseconds(3),
          .last_rank = 5,
          .last = Instant(seconds(99) + milliseconds(7)),
          .last_blocked = milliseconds(4)};
}

TEST(Arrivals, AreDecodedInTheReadersClock) {
  const std::string bytes = encode_arrivals({sample(), sample()}, Instant(seconds(100)), 1000);
  const auto decoded = decode_arrivals(bytes, Instant(seconds(500)));
  ASSERT_TRUE(decoded);
  Arrivals moved = sample();
  moved.mean += seconds(400);
  moved.last += seconds(400);
  EXPECT_EQ(*decoded, (std::vector<Arrivals>{moved, moved}));
}

TEST(Arrivals, AreEncodedAsFarAsTheyFit) {
  const std::vector<Arrivals> many(1000, sample());
  const std::string bytes = encode_arrivals(many, Instant(seconds(100)), 16'000);
  EXPECT_LE(bytes.size(), 16'000U);
  const auto decoded = decode_arrivals(bytes, Instant(seconds(100)));
  ASSERT_TRUE(decoded);
  EXPECT_GT(decoded->size(), 150U);
}

TEST(Arrivals, AreRefusedIfInvalid) {
  const auto is_refused = [](auto&& change) {
    Arrivals one = sample();
    change(one);
    return !decode_arrivals(encode_arrivals({one}, Instant(seconds(100)), 1000),
                            Instant(seconds(100)));
  };
  EXPECT_FALSE(is_refused([](Arrivals&) {}));
  EXPECT_TRUE(is_refused([](Arrivals& one) { one.stride = 3; }));
  EXPECT_TRUE(is_refused([](Arrivals& one) { one.stride = 0; }));
  EXPECT_TRUE(is_refused([](Arrivals& one) { one.ranks = 17; }));
  EXPECT_TRUE(is_refused([](Arrivals& one) { one.last = one.mean - seconds(1); }));
  EXPECT_TRUE(is_refused([](Arrivals& one) { one.last_blocked = std::chrono::hours(25); }));
  const std::string bytes = encode_arrivals({sample()}, Instant(seconds(100)), 1000);
  EXPECT_FALSE(decode_arrivals(bytes.substr(0, bytes.size() - 1), Instant(seconds(100))));
}

}  // namespace
}  // namespace muster::hang

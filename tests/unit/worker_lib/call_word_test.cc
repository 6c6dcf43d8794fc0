#include "worker_lib/call_word.h"

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::worker {
namespace {

// Group ranks 0, 1, 2 are ranks 5, 3, 4 of the job.
Members three_callers() {
  Members members;
  for (const int rank : {5, 3, 4})
    members.peers.push_back({GlobalRank{rank}, "n", "node" + std::to_string(rank), 100 + rank, ""});
  members.me = 0;
  return members;
}

auto parts_of(const CallWord& word) {
  return std::tuple(word.kind, word.dtype, word.reduce, word.source, word.is_v, word.had_counts,
                    word.purpose, word.root);
}

// ---- packing

// No bit of a word is lost, so words that differ never compare equal.
RC_GTEST_PROP(CallWord, EveryNumberUnpacksAndPacksToItself, (uint64_t word)) {
  RC_ASSERT(CallWord::unpack(word).pack() == word);
}

RC_GTEST_PROP(CallWord, SurvivesPacking, ()) {
  const auto below = [](int end) { return *rc::gen::inRange(0, end); };
  CallWord word;
  word.kind = static_cast<OpKind>(below(int{ring::kCallRows.size()}));
  word.dtype = static_cast<DType>(below(9));
  word.reduce = static_cast<ReduceOp>(below(8));
  word.source = static_cast<DataSource>(below(4));
  word.is_v = below(2) == 1;
  word.had_counts = below(2) == 1;
  word.purpose = static_cast<CallPurpose>(below(11));
  word.root = *rc::gen::arbitrary<uint32_t>();
  RC_ASSERT(parts_of(CallWord::unpack(word.pack())) == parts_of(word));
}

TEST(CallWord, SourceAndCountsUseTheBitsThatTheSignatureNames) {
  CallWord word{.kind = OpKind::all_reduce, .dtype = DType::float64, .root = 7};
  const uint64_t plain = word.pack();
  word.source = DataSource::region;
  EXPECT_EQ(word.pack(), plain | CallSignature::kSource);
  word.source = DataSource::nowhere;
  word.had_counts = true;
  EXPECT_EQ(word.pack(), plain | CallSignature::kHadCounts);
}

// ---- signatures

TEST(CallWord, ASignatureIgnoresUnusedFields) {
  const Operation dirty{.count = 9, .dtype = DType::float64, .reduce = ReduceOp::max, .root = 2};
  const auto of_kind = [](Operation operation, OpKind kind) {
    operation.kind = kind;
    return signature_of(operation);
  };
  EXPECT_EQ(of_kind(dirty, OpKind::barrier), signature_of({.kind = OpKind::barrier}));
  Operation other_root = dirty;
  other_root.root = 0;
  EXPECT_EQ(of_kind(dirty, OpKind::all_reduce), of_kind(other_root, OpKind::all_reduce));
  EXPECT_FALSE(of_kind(dirty, OpKind::reduce) == of_kind(other_root, OpKind::reduce));
  Operation other_reduction = dirty;
  other_reduction.reduce = ReduceOp::min;
  EXPECT_EQ(of_kind(dirty, OpKind::broadcast), of_kind(other_reduction, OpKind::broadcast));
  EXPECT_FALSE(of_kind(dirty, OpKind::reduce) == of_kind(other_reduction, OpKind::reduce));
}

TEST(CallWord, CountsKnownToAllRanksAreComparedInOrder) {
  Operation operation{.kind = OpKind::all_gather, .is_v = true, .recv_counts = {1, 2, 3}};
  const CallSignature ascending = signature_of(operation);
  EXPECT_EQ(ascending.count, 6U);
  operation.recv_counts = {3, 2, 1};
  const CallSignature descending = signature_of(operation);
  EXPECT_EQ(descending.count, 6U);
  EXPECT_NE(descending.counts_hash, ascending.counts_hash);
  Operation scattered{.kind = OpKind::reduce_scatter, .is_v = true, .send_counts = {1, 2, 3}};
  EXPECT_EQ(signature_of(scattered).counts_hash, ascending.counts_hash);
}

// Only the root of a gather_v has all counts, and in an all_to_all_v each rank has its own.
TEST(CallWord, CountsKnownToOneRankOnlyAreNotCompared) {
  for (const OpKind kind : {OpKind::gather, OpKind::scatter, OpKind::all_to_all}) {
    const Operation with_all{
        .kind = kind, .is_v = true, .send_counts = {1, 2, 3}, .recv_counts = {4, 5, 6}};
    const Operation with_own{.kind = kind, .count = 2, .is_v = true};
    EXPECT_EQ(signature_of(with_all), signature_of(with_own)) << name_of(kind);
    EXPECT_EQ(signature_of(with_all).count, 0U) << name_of(kind);
  }
}

// ---- descriptions

TEST(CallWord, DescribesACallAsTheProgramMadeIt) {
  struct Case {
    Operation operation;
    const char* text;
  };
  const std::vector<Case> cases{
      {{.kind = OpKind::barrier}, "barrier"},
      {{.kind = OpKind::all_reduce, .count = 8, .dtype = DType::float32},
       "all_reduce (sum) of 8 float32"},
      {{.kind = OpKind::broadcast, .count = 1, .dtype = DType::int64, .root = 2},
       "broadcast of 1 int64 from rank 4 (node4, pid 104)"},
      {{.kind = OpKind::reduce, .count = 2, .reduce = ReduceOp::max, .root = 0},
       "reduce (max) of 2 uint8 to rank 5 (node5, pid 105)"},
      {{.kind = OpKind::reduce, .count = 2, .root = 3},
       "reduce (sum) of 2 uint8 to the group's rank 0"},
      {{.kind = OpKind::scatter, .count = 3, .is_v = true, .send_counts = {1, 1, 1}},
       "scatter_v of uint8 from rank 5 (node5, pid 105)"},
      {{.kind = OpKind::gather, .count = 3, .root = 1},
       "gather of 3 uint8 to rank 3 (node3, pid 103)"},
      {{.kind = OpKind::all_gather, .is_v = true, .recv_counts = {0, 2, 2}},
       "all_gather_v of 4 uint8 in all"},
      {{.kind = OpKind::all_gather, .count = 4, .had_counts = true}, "all_gather_v of 4 uint8"},
      {{.kind = OpKind::all_reduce, .count = 1, .purpose = CallPurpose::should_stop},
       "should_stop()"},
      {{.kind = OpKind::allocate_shared, .count = 64}, "allocate_shared of 64 bytes"},
  };
  for (const Case& one : cases)
    EXPECT_EQ(describe_call(signature_of(one.operation), three_callers()), one.text);
}

// ---- mismatches

CallSignature sum_of(size_t count) {
  return signature_of({.kind = OpKind::all_reduce, .count = count, .dtype = DType::float32});
}

TEST(CallWord, EqualCallsWithAndWithoutCountsMatch) {
  const CallSignature plain = signature_of({.kind = OpKind::all_gather, .count = 4});
  const CallSignature counted =
      signature_of({.kind = OpKind::all_gather, .count = 4, .had_counts = true});
  EXPECT_EQ(find_mismatch({plain, counted, plain}, three_callers()), std::nullopt);
}

TEST(CallWord, AMismatchNamesTheRankThatDiffersFromMost) {
  const CallSignature barrier = signature_of({.kind = OpKind::barrier});
  EXPECT_EQ(
      find_mismatch({sum_of(8), barrier, sum_of(8)}, three_callers()),
      (Failure{
          ErrorCode::mismatch,
          "rank 3 (node3, pid 103) called barrier, but rank 5 (node5, pid 105) called "
          "all_reduce (sum) of 8 float32; all ranks must make the same calls in the same order",
          {{3}}}));
}

// The ranks are ascending, as every Failure's are, whatever their order in the group.
TEST(CallWord, ATieNamesAllRanks) {
  const std::optional<Failure> failure =
      find_mismatch({sum_of(1), sum_of(2), sum_of(3)}, three_callers());
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->ranks, (std::vector<GlobalRank>{{3}, {4}, {5}}));
  EXPECT_EQ(failure->message,
            "rank 3 (node3, pid 103) called all_reduce (sum) of 2 float32, rank 4 (node4, pid 104) "
            "called all_reduce (sum) of 3 float32, but rank 5 (node5, pid 105) called all_reduce "
            "(sum) of 1 float32; all ranks must make the same calls in the same order");
}

TEST(CallWord, AMismatchOfEqualNamesNamesWhatDiffers) {
  const auto gathering = [](std::vector<size_t> counts) {
    return signature_of(
        {.kind = OpKind::all_gather, .is_v = true, .recv_counts = std::move(counts)});
  };
  EXPECT_EQ(
      find_mismatch({gathering({1, 3}), gathering({2, 2}), gathering({1, 3})}, three_callers())
          ->message,
      "rank 3 (node3, pid 103) called all_gather_v of 4 uint8 in all with other counts, but rank 5 "
      "(node5, pid 105) called all_gather_v of 4 uint8 in all; all ranks must make the same calls "
      "in the same order");
  const auto saving = [](OpKind kind) {
    return signature_of({.kind = kind, .count = 1, .purpose = CallPurpose::save_checkpoint});
  };
  const CallSignature reducing = saving(OpKind::all_reduce);
  EXPECT_EQ(find_mismatch({reducing, saving(OpKind::barrier), reducing}, three_callers())->message,
            "rank 3 (node3, pid 103) called save_checkpoint() (its barrier), but rank 5 (node5, "
            "pid 105) called save_checkpoint() (its all_reduce (sum) of 1 uint8); all ranks must "
            "make the same calls in the same order");
}

}  // namespace
}  // namespace muster::worker

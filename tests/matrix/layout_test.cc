#include "tests/matrix/layout.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include <gtest/gtest.h>

namespace muster::matrix {
namespace {

const Setting kSetting{.backend = Backend::cpu, .worlds = {1, 2, 3, 4, 5}};

std::vector<Layout> layouts_of(const Case& what, uint64_t seed) {
  std::vector<Layout> layouts;
  for (int me = 0; me < what.members; ++me)
    layouts.push_back(layout_of(what, seed, me));
  return layouts;
}

// Returns `count` elements of a buffer in a block, from `first` on.
std::vector<std::byte> part_of_layout(const Layout& layout, const std::vector<std::byte>& block,
                                      const Piece& piece, size_t first, size_t count) {
  const size_t element = size_of(layout.dtype);
  const auto from = block.begin() + static_cast<std::ptrdiff_t>(piece.at + first * element);
  return {from, from + static_cast<std::ptrdiff_t>(count * element)};
}

std::vector<std::byte> brought(const Layout& layout, size_t first, size_t count) {
  return part_of_layout(layout, layout.before, layout.in, first, count);
}

std::vector<std::byte> result(const Layout& layout, size_t first, size_t count) {
  return part_of_layout(layout, layout.after, layout.out, first, count);
}

const std::vector<Case>& chosen_cases() {
  static const std::vector<Case> chosen = [] {
    std::vector<Case> all;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const Cases some = cases_of(kSetting, seed, false);
      all.insert(all.end(), some.cases.begin(), some.cases.end());
    }
    return all;
  }();
  return chosen;
}

std::vector<Case> cases_with(Op op) {
  std::vector<Case> found;
  for (const Case& each : chosen_cases()) {
    if (each.op == op && each.size <= 4099) found.push_back(each);
  }
  return found;
}

// Operations that only move data, checked against the blocks of all ranks.

TEST(Layout, GatherAndAllGatherPutTheInputsInOrder) {
  size_t checked = 0;
  for (const Op op : {Op::gather, Op::gather_v, Op::all_gather, Op::all_gather_v}) {
    for (const Case& what : cases_with(op)) {
      const auto all = layouts_of(what, 5);
      const bool rooted = op == Op::gather || op == Op::gather_v;
      for (int me = 0; me < what.members; ++me) {
        const Layout& mine = all[static_cast<size_t>(me)];
        if (rooted && me != what.root_rank()) {
          EXPECT_EQ(mine.before, mine.after) << describe(what);
          continue;
        }
        size_t at = 0;
        for (const Layout& from : all) {
          EXPECT_EQ(result(mine, at, from.in.count), brought(from, 0, from.in.count))
              << describe(what);
          at += from.in.count;
        }
        EXPECT_EQ(at, mine.out.count);
        ++checked;
      }
    }
  }
  std::printf("%zu results\n", checked);
  EXPECT_GT(checked, 50u);
}

TEST(Layout, ScatterDealsOutTheRootsInput) {
  for (const Op op : {Op::scatter, Op::scatter_v}) {
    for (const Case& what : cases_with(op)) {
      const auto all = layouts_of(what, 6);
      const Layout& root = all[static_cast<size_t>(what.root_rank())];
      size_t at = 0;
      for (const Layout& mine : all) {
        EXPECT_EQ(result(mine, 0, mine.out.count), brought(root, at, mine.out.count))
            << describe(what);
        at += mine.out.count;
      }
      EXPECT_EQ(at, root.in.count);
    }
  }
}

TEST(Layout, AllToAllTransposesTheBlocks) {
  for (const Op op : {Op::all_to_all, Op::all_to_all_v}) {
    for (const Case& what : cases_with(op)) {
      const auto all = layouts_of(what, 7);
      const auto sent = [&](size_t from, size_t to) {
        return op == Op::all_to_all ? what.size : all[from].send_counts[to];
      };
      for (size_t to = 0; to < all.size(); ++to) {
        size_t out_at = 0;
        for (size_t from = 0; from < all.size(); ++from) {
          size_t in_at = 0;
          for (size_t before = 0; before < to; ++before)
            in_at += sent(from, before);
          EXPECT_EQ(result(all[to], out_at, sent(from, to)),
                    brought(all[from], in_at, sent(from, to)))
              << describe(what);
          out_at += sent(from, to);
        }
      }
    }
  }
}

TEST(Layout, BroadcastGivesAllTheRootsData) {
  for (const Case& what : cases_with(Op::broadcast)) {
    const auto all = layouts_of(what, 8);
    const Layout& root = all[static_cast<size_t>(what.root_rank())];
    EXPECT_EQ(root.before, root.after);
    for (const Layout& mine : all) {
      EXPECT_EQ(result(mine, 0, what.size), result(root, 0, what.size)) << describe(what);
    }
  }
}

// Reduces in doubles, for values that these hold exactly.
double reduced(ReduceOp op, const std::vector<double>& values) {
  double all = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    const double x = values[i];
    if (op == ReduceOp::sum || op == ReduceOp::average) all += x;
    if (op == ReduceOp::product) all *= x;
    if (op == ReduceOp::min) all = std::min(all, x);
    if (op == ReduceOp::max) all = std::max(all, x);
  }
  return op == ReduceOp::average ? all / static_cast<double>(values.size()) : all;
}

// Excludes integer reductions that can wrap.
bool holds_exactly(const Case& what) {
  const bool can_wrap = what.reduce == ReduceOp::sum || what.reduce == ReduceOp::product;
  return what.is_float() || !can_wrap;
}

size_t check_numbers(const Case& what) {
  const auto all = layouts_of(what, 9);
  const size_t element = size_of(what.dtype);
  size_t checked = 0;
  for (size_t i = 0; i < what.size; ++i) {
    std::vector<double> values;
    for (const Layout& from : all) {
      values.push_back(as_double(what.dtype, &from.before[from.in.at + i * element]));
    }
    double wanted = reduced(what.reduce, values);
    if (!what.is_float()) wanted = std::trunc(wanted);
    const double is = as_double(what.dtype, &all[0].after[all[0].out.at + i * element]);
    const double slack = what.reduce == ReduceOp::average && what.is_float() ? 0.01 : 0.0;
    EXPECT_NEAR(is, wanted, slack) << describe(what) << ", element " << i;
    ++checked;
  }
  return checked;
}

TEST(Layout, ReductionsEqualThoseOfDoubles) {
  size_t checked = 0;
  for (int reduce = 0; reduce <= static_cast<int>(ReduceOp::max); ++reduce) {
    for (int dtype = 0; dtype <= static_cast<int>(DType::float64); ++dtype) {
      const Case what{.op = Op::all_reduce,
                      .dtype = static_cast<DType>(dtype),
                      .reduce = static_cast<ReduceOp>(reduce),
                      .members = 4,
                      .size = 50};
      if (holds_exactly(what) && what.dtype != DType::int64) checked += check_numbers(what);
    }
  }
  std::printf("%zu elements\n", checked);
  EXPECT_EQ(checked, 50u * (5 * 4 + 3 * 4));
}

TEST(Layout, IntegersWrapAsTwosComplement) {
  Case what{.op = Op::all_reduce, .dtype = DType::int8, .members = 5, .size = 1000};
  const auto all = layouts_of(what, 10);
  size_t wrapped = 0;
  for (size_t i = 0; i < what.size; ++i) {
    int sum = 0;
    for (const Layout& from : all)
      sum += static_cast<int8_t>(from.before[from.in.at + i]);
    EXPECT_EQ(static_cast<int8_t>(all[2].after[all[2].out.at + i]), static_cast<int8_t>(sum));
    wrapped += sum > 127 || sum < -128 ? 1 : 0;
  }
  EXPECT_GT(wrapped, 100u);
}

TEST(Layout, EveryStrayByteIsAFault) {
  size_t flipped = 0;
  for (const Case& what : chosen_cases()) {
    if (what.size > 7 || what.values == Values::reals || flipped > 20000) continue;
    const Layout layout = layout_of(what, 11, what.members / 2);
    EXPECT_EQ(layout.fault_of(layout.after), std::nullopt);
    for (size_t i = 0; i < layout.after.size(); ++i) {
      std::vector<std::byte> block = layout.after;
      block[i] ^= std::byte{0x10};
      EXPECT_NE(layout.fault_of(block), std::nullopt) << describe(what) << ", byte " << i;
      ++flipped;
    }
  }
  std::printf("%zu bytes flipped\n", flipped);
  EXPECT_GT(flipped, 1000u);
}

TEST(Layout, AMissingResultIsAFault) {
  size_t checked = 0;
  for (const Case& what : chosen_cases()) {
    if (what.size < 7 || what.size > 4099 || what.members < 2) continue;
    const Layout layout = layout_of(what, 12, what.root_rank());
    if (layout.before == layout.after && layout.rough.empty()) continue;
    EXPECT_NE(layout.fault_of(layout.before), std::nullopt) << describe(what);
    ++checked;
  }
  EXPECT_GT(checked, 50u);
}

TEST(Layout, RealsAreHeldToTheirTolerance) {
  Case what{.op = Op::all_reduce, .dtype = DType::float32, .members = 4, .size = 100};
  what.values = Values::reals;
  const Layout layout = layout_of(what, 13, 0);
  ASSERT_EQ(layout.rough.size(), 100u);
  std::vector<std::byte> block = layout.after;
  const auto put = [&](double times_slack) {
    for (size_t i = 0; i < 100; ++i) {
      const Tolerated& each = layout.rough[i];
      const float value = static_cast<float>(each.value + times_slack * each.slack);
      std::memcpy(&block[layout.out.at + i * 4], &value, 4);
    }
  };
  put(0.0);
  EXPECT_EQ(layout.fault_of(block), std::nullopt);
  put(1.5);
  EXPECT_NE(layout.fault_of(block), std::nullopt);
  // One wrong input would change the result by far more.
  for (const Tolerated& each : layout.rough)
    EXPECT_LT(each.slack, 1e-5);
}

TEST(Layout, AFaultNamesThePlaceAndBothValues) {
  Case what{.op = Op::all_reduce, .dtype = DType::int32, .members = 2, .size = 7};
  const Layout layout = layout_of(what, 14, 0);
  std::vector<std::byte> block = layout.after;
  const int32_t wrong = -5;
  std::memcpy(&block[layout.out.at + 3 * 4], &wrong, 4);
  EXPECT_TRUE(
      layout.fault_of(block)->starts_with("output element 3 is -5 (fffffffb) and should be "));
  block = layout.after;
  block[0] ^= std::byte{1};
  EXPECT_TRUE(layout.fault_of(block)->starts_with("outside the buffers, byte 0 is "));
}

}  // namespace
}  // namespace muster::matrix

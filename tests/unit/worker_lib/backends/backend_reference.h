// Expected results of every collective, computed in one place: a case describes one call of all
// ranks, a CaseRank holds one rank's buffers, the Operation on them, and what they must contain
// afterwards. Values are small integers, so that sums and products of them are exact in every
// dtype.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "muster/process_group.h"
#include "muster/types.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

struct BackendCase {
  OpKind kind = OpKind::barrier;
  DType dtype = DType::float32;
  ReduceOp reduce = ReduceOp::sum;
  int ranks = 1;
  int root = 0;
  size_t count = 0;
  bool in_place = false;
  bool is_v = false;

  std::string text() const {
    return fmt::format("{}{} {} {} of {} ranks, root {}, count {}{}", name_of(kind),
                       is_v ? "_v" : "", name_of(dtype), name_of(reduce), ranks, root, count,
                       in_place ? ", in place" : "");
  }
};

inline bool reduces(OpKind kind) {
  return kind == OpKind::reduce || kind == OpKind::all_reduce || kind == OpKind::reduce_scatter;
}

inline bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
}

inline bool is_float(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32 ||
         dtype == DType::float64;
}

namespace reference {

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// Stores `value` as an element of `dtype`; integers wrap around.
inline void store(DType dtype, std::byte* at, double value) {
  switch (dtype) {
    case DType::int8:
    case DType::uint8:
      return put(at, static_cast<uint8_t>(static_cast<int64_t>(value)));
    case DType::int16:
      return put(at, static_cast<int16_t>(static_cast<int64_t>(value)));
    case DType::int32:
      return put(at, static_cast<int32_t>(value));
    case DType::int64:
      return put(at, static_cast<int64_t>(value));
    case DType::float16:
      return put(at, float16(static_cast<float>(value)));
    case DType::bfloat16:
      return put(at, bfloat16(static_cast<float>(value)));
    case DType::float32:
      return put(at, static_cast<float>(value));
    case DType::float64:
      return put(at, value);
  }
}

// Factor of the inputs of an average: two of the narrow types' inputs add up to more than fits.
inline double scale_of(DType dtype) {
  switch (dtype) {
    case DType::int8:
      return 40;
    case DType::uint8:
      return 80;
    case DType::int16:
      return 10'000;
    case DType::int32:
      return 700'000'000;
    case DType::float16:
      return 16'384;
    default:
      return 1;
  }
}

// Element `index` of the input of `rank`: 1, 2 or 3, some negative if the dtype is signed; scaled
// in averages.
inline double brought(const BackendCase& c, int rank, size_t index) {
  const double value = 1 + static_cast<double>((static_cast<size_t>(rank) * 7 + index * 5) % 3);
  const bool negative = c.dtype != DType::uint8 && (index + static_cast<size_t>(rank)) % 4 == 3;
  const double scale = c.reduce == ReduceOp::average ? scale_of(c.dtype) : 1;
  return scale * (negative ? -value : value);
}

inline double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return a + b;
    case ReduceOp::product:
      return a * b;
    case ReduceOp::min:
      return a < b ? a : b;
    case ReduceOp::max:
      return a > b ? a : b;
    case ReduceOp::band:
      return static_cast<double>(static_cast<int64_t>(a) & static_cast<int64_t>(b));
    case ReduceOp::bor:
      return static_cast<double>(static_cast<int64_t>(a) | static_cast<int64_t>(b));
    case ReduceOp::bxor:
      return static_cast<double>(static_cast<int64_t>(a) ^ static_cast<int64_t>(b));
  }
  return 0;
}

inline double reduced(const BackendCase& c, size_t index) {
  double value = brought(c, 0, index);
  for (int rank = 1; rank < c.ranks; ++rank)
    value = combine(c.reduce, value, brought(c, rank, index));
  if (c.reduce != ReduceOp::average) return value;
  if (is_float(c.dtype) && c.dtype != DType::float64)
    return static_cast<double>(static_cast<float>(value) / static_cast<float>(c.ranks));
  const double mean = value / c.ranks;
  return is_float(c.dtype) ? mean : static_cast<double>(static_cast<int64_t>(mean));
}

}  // namespace reference

class CaseRank {
 public:
  CaseRank(const BackendCase& c, int rank) : case_(c), rank_(rank), width_(size_of(c.dtype)) {
    for (int peer = 0; peer < c.ranks; ++peer)
      counts_.push_back(c.is_v ? (c.count + static_cast<size_t>(peer) * 3) % 5 : c.count);
    lay_out();
  }

  Operation operation(uint64_t sequence) {
    Operation op{.kind = case_.kind,
                 .in = in_,
                 .out = out_,
                 .count = case_.count,
                 .dtype = case_.dtype,
                 .reduce = case_.reduce,
                 .root = case_.root,
                 .is_v = case_.is_v,
                 .sequence = sequence};
    if (!case_.is_v) return op;
    const bool at_root = rank_ == case_.root;
    op.count = counts_[static_cast<size_t>(rank_)];
    if (case_.kind == OpKind::gather && at_root) op.recv_counts = counts_;
    if (case_.kind == OpKind::scatter && at_root) op.send_counts = counts_;
    if (case_.kind == OpKind::all_gather) op.recv_counts = counts_;
    if (case_.kind == OpKind::reduce_scatter) op.send_counts = counts_;
    if (case_.kind == OpKind::all_to_all) {
      for (int peer = 0; peer < case_.ranks; ++peer) {
        op.send_counts.push_back(pair_count(rank_, peer));
        op.recv_counts.push_back(pair_count(peer, rank_));
      }
    }
    return op;
  }

  // Returns what is wrong with the result, or an empty string.
  std::string check() const {
    const std::vector<std::byte> expected = expect();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (out_[i] != expected[i])
        return fmt::format("{}: rank {} differs in element {}", case_.text(), rank_, i / width_);
    }
    return {};
  }

  // All memory of this rank, for tests that move it. REQUIRES: no operation uses it.
  std::vector<std::byte>& memory() { return memory_; }

 private:
  size_t sum(const std::vector<size_t>& counts, int until) const {
    return std::accumulate(counts.begin(), counts.begin() + until, size_t{0});
  }
  size_t total() const { return sum(counts_, case_.ranks); }
  size_t mine() const { return counts_[static_cast<size_t>(rank_)]; }
  size_t pair_count(int from, int to) const {
    return case_.is_v ? (case_.count + static_cast<size_t>(from * 2 + to)) % 4 : case_.count;
  }
  size_t sent(int from) const {
    size_t all = 0;
    for (int to = 0; to < case_.ranks; ++to)
      all += pair_count(from, to);
    return all;
  }
  size_t received(int to) const {
    size_t all = 0;
    for (int from = 0; from < case_.ranks; ++from)
      all += pair_count(from, to);
    return all;
  }

  size_t in_count() const {
    switch (case_.kind) {
      case OpKind::gather:
      case OpKind::all_gather:
        return mine();
      case OpKind::scatter:
        return rank_ == case_.root ? total() : 0;
      case OpKind::reduce_scatter:
        return total();
      case OpKind::all_to_all:
        return sent(rank_);
      case OpKind::barrier:
        return 0;
      default:
        return case_.count;
    }
  }

  size_t out_count() const {
    switch (case_.kind) {
      case OpKind::reduce:
        return rank_ == case_.root ? case_.count : 0;
      case OpKind::gather:
        return rank_ == case_.root ? total() : 0;
      case OpKind::all_gather:
        return total();
      case OpKind::scatter:
      case OpKind::reduce_scatter:
        return mine();
      case OpKind::all_to_all:
        return received(rank_);
      case OpKind::barrier:
        return 0;
      default:
        return case_.count;
    }
  }

  // Both buffers in one piece of memory: side by side, or the smaller inside the larger.
  void lay_out() {
    const size_t in = in_count() * width_;
    const size_t out = out_count() * width_;
    const bool shared = case_.kind == OpKind::broadcast || case_.in_place;
    memory_.resize((shared ? std::max(in, out) : in + out) + 1, std::byte{0x5a});
    const size_t offset = sum(counts_, rank_) * width_;
    in_ = memory_.data();
    out_ = memory_.data();
    if (!shared) {
      out_ += in;
    } else if (out > in) {
      if (case_.kind == OpKind::gather || case_.kind == OpKind::all_gather) in_ += offset;
    } else if (in > out) {
      if (case_.kind == OpKind::scatter || case_.kind == OpKind::reduce_scatter) out_ += offset;
    }
    if (shared && in == out && case_.ranks > 1 && in > 0 && in_count() != case_.count) out_ = in_;
    const bool brings = case_.kind != OpKind::broadcast || rank_ == case_.root;
    for (size_t i = 0; brings && i < in_count(); ++i)
      reference::store(case_.dtype, in_ + i * width_, reference::brought(case_, rank_, i));
  }

  std::vector<std::byte> expect() const {
    std::vector<double> values;
    const auto bring = [&](int rank, size_t from, size_t count) {
      for (size_t i = 0; i < count; ++i)
        values.push_back(reference::brought(case_, rank, from + i));
    };
    switch (case_.kind) {
      case OpKind::broadcast:
        bring(case_.root, 0, case_.count);
        break;
      case OpKind::reduce:
      case OpKind::all_reduce:
        for (size_t i = 0; i < out_count(); ++i)
          values.push_back(reference::reduced(case_, i));
        break;
      case OpKind::reduce_scatter:
        for (size_t i = 0; i < mine(); ++i)
          values.push_back(reference::reduced(case_, sum(counts_, rank_) + i));
        break;
      case OpKind::gather:
      case OpKind::all_gather:
        for (int rank = 0; out_count() > 0 && rank < case_.ranks; ++rank)
          bring(rank, 0, counts_[static_cast<size_t>(rank)]);
        break;
      case OpKind::scatter:
        bring(case_.root, sum(counts_, rank_), mine());
        break;
      case OpKind::all_to_all:
        for (int from = 0; from < case_.ranks; ++from) {
          size_t before = 0;
          for (int to = 0; to < rank_; ++to)
            before += pair_count(from, to);
          bring(from, before, pair_count(from, rank_));
        }
        break;
      default:
        break;
    }
    std::vector<std::byte> bytes(values.size() * width_);
    for (size_t i = 0; i < values.size(); ++i)
      reference::store(case_.dtype, bytes.data() + i * width_, values[i]);
    return bytes;
  }

  BackendCase case_;
  int rank_;
  size_t width_;
  std::vector<size_t> counts_;
  std::vector<std::byte> memory_;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
};

// Calls run(mine, sequence) for one rank's part of each case; fails the test if a result is wrong,
// and ends at the first call that fails.
template <typename Run>
void run_cases(const std::vector<BackendCase>& cases, int rank, const Run& run) {
  uint64_t sequence = 0;
  int wrong = 0;
  for (const BackendCase& one : cases) {
    CaseRank mine(one, rank);
    const Outcome<> done = run(mine, ++sequence);
    const std::string problem = done ? mine.check() : one.text() + ": " + done.error().message;
    if (!problem.empty() && ++wrong <= 3) ADD_FAILURE() << problem;
    if (!done) return;
  }
}

// Every kind, dtype and reduction, in and out of place, for each root and these counts.
inline std::vector<BackendCase> every_case(int ranks, const std::vector<size_t>& counts) {
  std::vector<BackendCase> cases;
  for (const OpKind kind : ring::kCollectives) {
    for (int dtype = 0; dtype <= static_cast<int>(DType::float64); ++dtype) {
      for (int op = 0; op <= static_cast<int>(ReduceOp::bxor); ++op) {
        for (const size_t count : counts) {
          for (int variant = 0; variant < 4; ++variant) {
            BackendCase c{kind,
                          static_cast<DType>(dtype),
                          static_cast<ReduceOp>(op),
                          ranks,
                          static_cast<int>(count + static_cast<size_t>(dtype)) % ranks,
                          count,
                          (variant & 1) != 0,
                          (variant & 2) != 0};
            if (!reduces(c.kind) && op != 0) continue;
            if (is_bitwise(c.reduce) && is_float(c.dtype)) continue;
            if (c.kind == OpKind::barrier && (dtype != 0 || variant != 0)) continue;
            if (c.kind == OpKind::all_to_all && c.in_place) continue;
            const bool has_v = c.kind == OpKind::gather || c.kind == OpKind::all_gather ||
                               c.kind == OpKind::scatter || c.kind == OpKind::reduce_scatter ||
                               c.kind == OpKind::all_to_all;
            if (c.is_v && !has_v) continue;
            cases.push_back(c);
          }
        }
      }
    }
  }
  return cases;
}

// Every `stride`th case. REQUIRES: an odd stride, so that all 4 variants occur.
inline std::vector<BackendCase> some_of(const std::vector<BackendCase>& cases, size_t stride) {
  std::vector<BackendCase> some;
  for (size_t i = 0; i < cases.size(); i += stride)
    some.push_back(cases[i]);
  return some;
}

}  // namespace muster::worker

#include "tests/matrix/case.h"

#include <algorithm>
#include <array>

#include "rendezvous/base/prng.h"

namespace muster::matrix {
namespace {

enum Dimension : size_t {
  kOp,
  kDType,
  kReduce,
  kMembers,
  kSize,
  kRoot,
  kCall,
  kPlace,
  kMemory,
  kGroup,
  kValues,
  kDimensions
};

// None, one, fewer than any vector register holds, a few cache lines, just over a page of bytes,
// and more than any buffer on the way.
constexpr std::array<size_t, 6> kSizes{0, 1, 7, 1000, 4099, 150001};

// Which dimensions apply to an operation.
struct Traits {
  const char* name;
  bool reduces = false;
  bool rooted = false;
  bool typed = true;  // Has a dtype, a kind of memory and a size.
  bool apart = true;
  bool in_place = true;
  bool async = true;
  int members_min = 1;
};

constexpr std::array<Traits, 20> kTraits{{
    {.name = "barrier", .typed = false, .in_place = false},
    {.name = "monitored_barrier", .typed = false, .in_place = false, .async = false},
    {.name = "broadcast", .rooted = true, .apart = false},
    {.name = "reduce", .reduces = true, .rooted = true},
    {.name = "all_reduce", .reduces = true},
    {.name = "gather", .rooted = true},
    {.name = "gather_v", .rooted = true},
    {.name = "all_gather"},
    {.name = "all_gather_v"},
    {.name = "scatter", .rooted = true},
    {.name = "scatter_v", .rooted = true},
    {.name = "reduce_scatter", .reduces = true},
    {.name = "reduce_scatter_v", .reduces = true},
    {.name = "all_to_all", .in_place = false},
    {.name = "all_to_all_v", .in_place = false},
    {.name = "send_recv", .rooted = true, .in_place = false, .members_min = 2},
    {.name = "recv_any", .rooted = true, .in_place = false, .members_min = 2},
    {.name = "batch", .in_place = false, .members_min = 2},
    {.name = "broadcast_bytes", .rooted = true, .typed = false, .in_place = false, .async = false},
    {.name = "all_gather_bytes", .typed = false, .in_place = false, .async = false},
}};

const Traits& traits_of(Op op) {
  return kTraits[static_cast<size_t>(op)];
}

bool is_barrier(Op op) {
  return op == Op::barrier || op == Op::monitored_barrier;
}

// Typed access to the values of a row that are set.
struct Partial {
  explicit Partial(const Row& row) : row_(row) {}

  template <typename Value>
  std::optional<Value> get(Dimension d) const {
    return row_[d] == kUnset ? std::nullopt : std::optional<Value>(static_cast<Value>(row_[d]));
  }
  bool is(Dimension d, int value) const { return row_[d] == kUnset || row_[d] == value; }
  template <typename Value>
  bool is(Dimension d, Value value) const {
    return is(d, static_cast<int>(value));
  }
  std::optional<int> members() const {
    return row_[kMembers] == kUnset ? std::nullopt : std::optional<int>(row_[kMembers] + 1);
  }

 private:
  const Row& row_;
};

bool operation_allows(const Partial& row, const Traits& op, Op which) {
  if (!op.reduces && !(row.is(kReduce, ReduceOp::sum) && row.is(kValues, Values::exact))) {
    return false;
  }
  if (!op.rooted && !row.is(kRoot, RootChoice::first)) return false;
  if (!op.typed && !(row.is(kDType, DType::uint8) && row.is(kMemory, MemoryKind::plain))) {
    return false;
  }
  if (is_barrier(which) && !row.is(kSize, 0)) return false;
  if (!op.async && !row.is(kCall, CallKind::sync)) return false;
  if (!op.apart && row.is(kPlace, Place::apart) && row.get<Place>(kPlace)) return false;
  if (!op.in_place && !row.is(kPlace, Place::apart)) return false;
  return !row.members() || *row.members() >= op.members_min;
}

bool reduction_allows(const Partial& row, ReduceOp reduce) {
  const auto dtype = row.get<DType>(kDType);
  const bool of_bits = reduce >= ReduceOp::band;
  if (of_bits && dtype && *dtype >= DType::float16) return false;
  const bool rounds =
      reduce == ReduceOp::sum || reduce == ReduceOp::average || reduce == ReduceOp::product;
  return rounds || row.is(kValues, Values::exact);
}

bool members_allow(const Partial& row, int members, const Setting& setting) {
  if (members == 1 && !row.is(kRoot, RootChoice::first)) return false;
  const auto root = row.get<RootChoice>(kRoot);
  if (members == 2 && root == RootChoice::middle) return false;
  const bool is_world = std::ranges::find(setting.worlds, members) != setting.worlds.end();
  return is_world || row.is(kGroup, GroupKind::subset);
}

// NCCL lacks reductions of int16 and of bits, receives from any rank, and shared memory. Its
// average of floats multiplies by 1/n, which rounds.
bool nccl_allows(const Partial& row) {
  const auto dtype = row.get<DType>(kDType);
  const auto reduce = row.get<ReduceOp>(kReduce);
  if (const auto op = row.get<Op>(kOp)) {
    const bool host_only = !traits_of(*op).typed && !is_barrier(*op);
    if (host_only || *op == Op::recv_any) return false;
    if (traits_of(*op).reduces && dtype == DType::int16) return false;
  }
  if (reduce && *reduce >= ReduceOp::band) return false;
  const bool of_floats = dtype && *dtype >= DType::float16;
  if (reduce == ReduceOp::average && of_floats && !row.is(kValues, Values::reals)) return false;
  const auto memory = row.get<MemoryKind>(kMemory);
  return memory != MemoryKind::shared && memory != MemoryKind::mixed;
}

bool allowed(const Row& indices, const Setting& setting) {
  const Partial row(indices);
  if (const auto op = row.get<Op>(kOp); op && !operation_allows(row, traits_of(*op), *op)) {
    return false;
  }
  if (const auto reduce = row.get<ReduceOp>(kReduce); reduce && !reduction_allows(row, *reduce)) {
    return false;
  }
  if (row.members() && !members_allow(row, *row.members(), setting)) return false;
  const auto dtype = row.get<DType>(kDType);
  if (dtype && *dtype < DType::float16 && !row.is(kValues, Values::exact)) return false;
  return setting.backend != Backend::nccl || nccl_allows(row);
}

// True for the dimensions of which --all performs every combination.
bool is_of_the_operation(size_t d) {
  return d <= kPlace;
}

Row drawn_rest(const std::vector<int>& sizes, const Allows& rules, Row row, Prng& prng) {
  for (size_t d = 0; d < row.size(); ++d) {
    if (row[d] != kUnset) continue;
    do {
      row[d] = static_cast<int>(prng.below(static_cast<uint64_t>(sizes[d])));
    } while (!can_be_completed(sizes, rules, row));
  }
  return row;
}

std::vector<Case> all_cases(const std::vector<int>& sizes, const Allows& rules, uint64_t seed) {
  // The other dimensions stay unset, so that the rules ignore them.
  std::vector<int> walked = sizes;
  std::vector<Case> cases;
  Prng prng(seed);
  const size_t rest =
      static_cast<size_t>(std::count_if(walked.begin(), walked.end(), [d = size_t{0}](int) mutable {
        return is_of_the_operation(d++);
      }));
  walked.resize(rest);
  const auto padded = [&](Row row) {
    row.resize(sizes.size(), kUnset);
    return row;
  };
  for_each_row(
      walked, [&](const Row& row) { return rules(padded(row)); },
      [&](const Row& row) {
        const Row whole = padded(row);
        if (!can_be_completed(sizes, rules, whole)) return;
        cases.push_back(case_of(drawn_rest(sizes, rules, whole, prng)));
      });
  return cases;
}

const char* text_of(CallKind call) {
  constexpr std::array<const char*, 3> kNames{"sync", "async", "overlapped"};
  return kNames[static_cast<size_t>(call)];
}

const char* text_of(MemoryKind memory) {
  constexpr std::array<const char*, 4> kNames{"plain", "unaligned", "shared", "mixed"};
  return kNames[static_cast<size_t>(memory)];
}

}  // namespace

int Case::root_rank() const {
  if (root == RootChoice::first) return 0;
  return root == RootChoice::middle ? members / 2 : members - 1;
}

const char* name_of(Op op) {
  return traits_of(op).name;
}

std::string describe(const Case& what) {
  const Traits& op = traits_of(what.op);
  std::string text = op.name;
  if (op.reduces) text += std::string(" ") + muster::name_of(what.reduce);
  if (!is_barrier(what.op)) {
    text += " of " + std::to_string(what.size) + " " + muster::name_of(what.dtype);
  }
  if (what.values == Values::reals) text += " reals";
  text += " between " + std::to_string(what.members) +
          (what.group == GroupKind::world ? " of the world" : " drawn ranks");
  if (op.rooted) text += ", root " + std::to_string(what.root_rank());
  text += std::string(", ") + text_of(what.call);
  if (op.typed) {
    text += what.place == Place::in_place ? ", in place, " : ", apart, ";
    text += std::string(text_of(what.memory)) + " memory";
  }
  return text;
}

int Setting::world_max() const {
  return *std::ranges::max_element(worlds);
}

std::vector<int> sizes_of(const Setting& setting) {
  std::vector<int> sizes(kDimensions, 2);
  sizes[kOp] = static_cast<int>(kTraits.size());
  sizes[kDType] = 9;
  sizes[kReduce] = 8;
  sizes[kMembers] = setting.world_max();
  sizes[kSize] = static_cast<int>(kSizes.size());
  sizes[kRoot] = 3;
  sizes[kCall] = 3;
  sizes[kMemory] = 4;
  return sizes;
}

Allows rules_of(const Setting& setting) {
  return [setting](const Row& row) { return allowed(row, setting); };
}

Case case_of(const Row& row) {
  return {.op = static_cast<Op>(row[kOp]),
          .dtype = static_cast<DType>(row[kDType]),
          .reduce = static_cast<ReduceOp>(row[kReduce]),
          .members = row[kMembers] + 1,
          .size = kSizes[static_cast<size_t>(row[kSize])],
          .root = static_cast<RootChoice>(row[kRoot]),
          .call = static_cast<CallKind>(row[kCall]),
          .place = static_cast<Place>(row[kPlace]),
          .memory = static_cast<MemoryKind>(row[kMemory]),
          .group = static_cast<GroupKind>(row[kGroup]),
          .values = static_cast<Values>(row[kValues])};
}

Cases cases_of(const Setting& setting, uint64_t seed, bool everything) {
  const std::vector<int> sizes = sizes_of(setting);
  const Allows rules = rules_of(setting);
  if (everything) return {all_cases(sizes, rules, seed), 0};
  // One cover for the world and one for drawn groups: a fault of one may not show in the other.
  Cases made;
  for (const GroupKind kind : {GroupKind::world, GroupKind::subset}) {
    const Allows narrowed = [&](const Row& row) {
      return (row[kGroup] == kUnset || row[kGroup] == static_cast<int>(kind)) && rules(row);
    };
    const Cover cover = cover_pairs(sizes, narrowed, seed);
    made.pairs += cover.pairs;
    for (const Row& row : cover.rows)
      made.cases.push_back(case_of(row));
  }
  return made;
}

}  // namespace muster::matrix

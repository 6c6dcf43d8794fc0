#include "rendezvous/ring/call_rules.h"

#include <array>
#include <cstddef>

#include <fmt/format.h>

namespace muster::ring {
namespace {

struct ElementOfCall {
  const char* name;
  uint64_t bytes;
};

constexpr auto kElements = std::to_array<ElementOfCall>({
    {"unknown", 0},
    {"int8", 1},
    {"uint8", 1},
    {"int16", 2},
    {"uint16", 2},
    {"int32", 4},
    {"uint32", 4},
    {"int64", 8},
    {"uint64", 8},
    {"float8_e4m3", 1},
    {"float8_e5m2", 1},
    {"float16", 2},
    {"bfloat16", 2},
    {"float32", 4},
    {"float64", 8},
    {"complex64", 8},
    {"complex128", 16},
    {"boolean", 1},
});
static_assert(kElements.size() == static_cast<size_t>(ElementType::boolean) + 1);

constexpr auto kReductions =
    std::to_array<const char*>({"unknown", "sum", "average", "product", "min", "max", "band", "bor",
                                "bxor", "premultiplied_sum"});
static_assert(kReductions.size() == static_cast<size_t>(Reduction::premultiplied_sum) + 1);

// Maps invalid values, which a worker's memory may hold, to the first entry, "unknown".
template <typename Table>
constexpr const auto& table_entry(const Table& table, auto value) {
  const auto i = static_cast<size_t>(value);
  return table[i < table.size() ? i : 0];
}

InCommon common_of(const Call& call) {
  return call.is_v ? InCommon::kind : row_of(call.kind).common;
}

uint64_t compared_bytes(const Call& call) {
  return call.count * bytes_of(call.type);
}

template <typename Value>
bool differ(Value a, Value b, Value unknown) {
  return a != b && a != unknown && b != unknown;
}

Difference difference_of_reductions(const Call& a, const Call& b) {
  if (differ(a.reduction, b.reduction, Reduction::unknown)) return Difference::reduction;
  if (differ(a.type, b.type, ElementType::unknown)) return Difference::type;
  return a.count != b.count ? Difference::count : Difference::none;
}

std::string describe_partner(const Call& call) {
  const RootRole root = row_of(call.kind).root;
  if (root == RootRole::none && !is_message(call.kind)) return {};
  const bool takes = root == RootRole::takes || call.kind == CallKind::send;
  if (call.root >= 0)
    return fmt::format(" {} rank {} of the group", takes ? "to" : "from", call.root);
  return call.kind == CallKind::recv ? " from any rank of the group" : "";
}

}  // namespace

const char* name_of(ElementType type) {
  return table_entry(kElements, type).name;
}

const char* name_of(Reduction reduction) {
  return table_entry(kReductions, reduction);
}

uint64_t bytes_of(ElementType type) {
  return table_entry(kElements, type).bytes;
}

Difference difference_of(const Call& a, const Call& b) {
  if (is_message(a.kind) || is_message(b.kind)) return Difference::none;
  if (differ(a.kind, b.kind, CallKind::unknown)) return Difference::kind;
  const bool have_roots = has_root(a.kind) && has_root(b.kind) && a.root >= 0 && b.root >= 0;
  if (have_roots && a.root != b.root) return Difference::root;
  const InCommon common = common_of(a);
  if (common != common_of(b)) return Difference::none;
  if (common == InCommon::reduction) return difference_of_reductions(a, b);
  const bool are_known = a.type != ElementType::unknown && b.type != ElementType::unknown;
  return common == InCommon::bytes && are_known && compared_bytes(a) != compared_bytes(b)
             ? Difference::bytes
             : Difference::none;
}

// Each step (a product with an odd number, an xor with its own shift) is invertible, and spreads
// each bit over the upper half and then over the lower half.
uint64_t mixed_in(uint64_t hash, const Call& call) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
  const InCommon common = common_of(call);
  auto what = static_cast<uint64_t>(call.kind);
  uint64_t size = 0;
  if (has_root(call.kind)) what |= static_cast<uint64_t>(call.root) << 32;
  if (common == InCommon::reduction) {
    what |= static_cast<uint64_t>(call.type) << 8 | static_cast<uint64_t>(call.reduction) << 16;
    size = call.count;
  }
  if (common == InCommon::bytes) size = compared_bytes(call);
  for (const uint64_t word : {what, size}) {
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 32;
  }
  return hash;
}

std::string describe_data(const Call& call) {
  if (call.kind == CallKind::allocate_shared) return fmt::format("{} bytes", call.count);
  const CallRow& row = row_of(call.kind);
  if (row.in == Extent::none && row.out == Extent::none) return {};
  const bool has_type = call.type != ElementType::unknown;
  const char* const element = has_type ? name_of(call.type) : "elements";
  return (call.is_v ? fmt::format("{} in several parts", element)
                    : fmt::format("{} {}", call.count, element)) +
         describe_partner(call);
}

std::string describe(const Call& call) {
  const std::string data = describe_data(call);
  if (data.empty()) return name_of(call.kind);
  const bool reduces = call.reduction != Reduction::unknown;
  return fmt::format("{}{} of {}", name_of(call.kind),
                     reduces ? fmt::format(" ({})", name_of(call.reduction)) : "", data);
}

}  // namespace muster::ring

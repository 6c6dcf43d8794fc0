#include "worker_lib/recorder/nccl_profiler/nccl_words.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace muster::nccl {
namespace {

struct Type {
  std::string_view name;
  ring::ElementType value;
};

constexpr std::array kDatatypes{Type{"ncclBfloat16", ring::ElementType::bfloat16},
                                Type{"ncclFloat32", ring::ElementType::float32},
                                Type{"ncclFloat16", ring::ElementType::float16},
                                Type{"ncclInt8", ring::ElementType::int8},
                                Type{"ncclInt64", ring::ElementType::int64},
                                Type{"ncclInt32", ring::ElementType::int32},
                                Type{"ncclFloat64", ring::ElementType::float64},
                                Type{"ncclFloat8e4m3", ring::ElementType::float8_e4m3},
                                Type{"ncclFloat8e5m2", ring::ElementType::float8_e5m2},
                                Type{"ncclUint8", ring::ElementType::uint8},
                                Type{"ncclUint32", ring::ElementType::uint32},
                                Type{"ncclUint64", ring::ElementType::uint64}};

std::string_view nccl_text(const char* text) {
  return text == nullptr ? std::string_view() : text;
}

}  // namespace

ring::CallKind kind_in(const char* function) {
  const std::string_view name = nccl_text(function);
  const auto row = std::ranges::find(ring::kCallRows, name, &ring::CallRow::nccl_name);
  return row == ring::kCallRows.end() ? ring::CallKind::unknown : row->kind;
}

ring::ElementType type_in(const char* datatype) {
  const auto known = std::ranges::find(kDatatypes, nccl_text(datatype), &Type::name);
  return known == kDatatypes.end() ? ring::ElementType::unknown : known->value;
}

}  // namespace muster::nccl

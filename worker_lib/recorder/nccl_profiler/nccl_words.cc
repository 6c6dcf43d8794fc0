#include "worker_lib/recorder/nccl_profiler/nccl_words.h"

#include <array>
#include <string_view>

namespace muster::nccl {
namespace {

template <typename Value>
struct NcclWord {
  std::string_view name;
  Value value;
};

using Kind = NcclWord<ring::CallKind>;
constexpr std::array kFunctions{Kind{"AllReduce", ring::CallKind::all_reduce},
                                Kind{"AllGather", ring::CallKind::all_gather},
                                Kind{"ReduceScatter", ring::CallKind::reduce_scatter},
                                Kind{"Broadcast", ring::CallKind::broadcast},
                                Kind{"Send", ring::CallKind::send},
                                Kind{"Recv", ring::CallKind::recv},
                                Kind{"Reduce", ring::CallKind::reduce},
                                Kind{"AlltoAll", ring::CallKind::all_to_all},
                                Kind{"Gather", ring::CallKind::gather},
                                Kind{"Scatter", ring::CallKind::scatter}};

using Type = NcclWord<ring::ElementType>;
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

template <typename Table>
auto value_in(const Table& table, const char* name) -> decltype(table[0].value) {
  const std::string_view text = name == nullptr ? std::string_view() : name;
  for (const auto& word : table) {
    if (word.name == text) return word.value;
  }
  return {};
}

}  // namespace

ring::CallKind kind_in(const char* function) {
  return value_in(kFunctions, function);
}

ring::ElementType type_in(const char* datatype) {
  return value_in(kDatatypes, datatype);
}

}  // namespace muster::nccl

#include "muster/types.h"

#include <array>
#include <bit>
#include <cmath>

#include "muster/process_group.h"

namespace muster {
namespace {

struct DTypeFacts {
  size_t bytes;
  const char* name;
};

constexpr std::array<DTypeFacts, 9> kDTypes{{
    {1, "int8"},
    {1, "uint8"},
    {2, "int16"},
    {4, "int32"},
    {8, "int64"},
    {2, "float16"},
    {2, "bfloat16"},
    {4, "float32"},
    {8, "float64"},
}};

constexpr std::array<const char*, 8> kReduceOps{"sum", "average", "product", "min",
                                                "max", "band",    "bor",     "bxor"};

constexpr std::array<const char*, 4> kBackends{"automatic", "cpu", "nccl", "gloo"};

// Numbers from the wire or the C ABI may be out of range.
template <typename Enum, size_t n>
const char* name_in(const std::array<const char*, n>& names, Enum value) {
  const auto i = static_cast<size_t>(value);
  return i < n ? names[i] : "unknown";
}

}  // namespace

size_t size_of(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  return i < kDTypes.size() ? kDTypes[i].bytes : 0;
}

const char* name_of(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  return i < kDTypes.size() ? kDTypes[i].name : "unknown";
}

const char* name_of(ReduceOp op) {
  return name_in(kReduceOps, op);
}

const char* name_of(Backend backend) {
  return name_in(kBackends, backend);
}

// Adds just under half of the part cut off from the float32's bits, and one more if the kept part
// is odd (ties to even). A carry correctly goes into the exponent, up to infinity.
bfloat16::bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    bits_ = static_cast<uint16_t>(bits >> 16 | 0x40);  // Quiet: the payload may be cut away.
    return;
  }
  bits_ = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

bfloat16::operator float() const {
  return std::bit_cast<float>(uint32_t{bits_} << 16);
}

// Uses integers and one float addition, which rounds as IEEE 754 says (in likely rounding modes).
float16::float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN
    bits_ = static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  } else if (magnitude >= 0x477ff000) {  // 65520 and above: infinity.
    bits_ = sign | 0x7c00;
  } else if (magnitude < 0x38800000) {  // Below 2^-14: in units of 2^-24. Adding 0.5 lets the
    // float adder shift and round.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    bits_ = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  } else {  // The exponent's bias goes from 127 to 15.
    const uint32_t rounded = magnitude - (uint32_t{112} << 23) + 0xfff + (magnitude >> 13 & 1);
    bits_ = static_cast<uint16_t>(sign | rounded >> 13);
  }
}

float16::operator float() const {
  const uint32_t sign = uint32_t{bits_} << 16 & 0x80000000;
  const uint32_t exponent = bits_ >> 10 & 0x1f;
  const uint32_t fraction = bits_ & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

}  // namespace muster

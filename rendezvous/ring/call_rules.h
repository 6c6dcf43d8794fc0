// One rank's call as every source of records describes it, and the rules that compare the calls of
// two members at the same place. Pure.
//
// Sources differ in what they can see: a field that a source does not know is `unknown`, which
// matches everything. Backends that compare calls themselves (Frame, CallSignature) are stricter.
//
//   broadcast, reduce, gather, scatter            the root
//   reduce, all_reduce, reduce_scatter            count, element type, reduction
//   broadcast, all_gather, all_to_all             bytes (count x size of the element)
//   send, recv                                    never compared with one another
//   all                                           kind; with `is_v` kind and root only
//
// Counts may differ by rank in gather and scatter and in operations with unequal counts (MPI: A
// Message-Passing Interface Standard 4.1, section 6, names what must agree).
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/ring/call_kinds.h"

namespace muster::ring {

enum class ElementType : uint8_t {
  unknown = 0,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float8_e4m3,
  float8_e5m2,
  float16,
  bfloat16,
  float32,
  float64,
  complex64,
  complex128,
  boolean,
};

enum class Reduction : uint8_t {
  unknown = 0,
  sum,
  average,
  product,
  min,
  max,
  band,
  bor,
  bxor,
  premultiplied_sum,
};

const char* name_of(ElementType type);     // "float32"
const char* name_of(Reduction reduction);  // "sum"
uint64_t bytes_of(ElementType type);       // 0: unknown.

struct Call {
  CallKind kind = CallKind::unknown;
  ElementType type = ElementType::unknown;
  Reduction reduction = Reduction::unknown;
  bool is_v = false;            // True with counts by rank or a list of tensors.
  bool is_synchronous = false;  // True if the caller waits for it. Not compared.
  int32_t root = -1;            // Group rank of the root or peer; -1: none, any or unknown.
  uint64_t count = 0;           // Elements.

  friend bool operator==(const Call&, const Call&) = default;
};

// The first of these, in this order, that must agree but differs.
enum class Difference : uint8_t { none, kind, root, reduction, type, count, bytes };
Difference difference_of(const Call& a, const Call& b);

// Mixes the compared part of `call` into the hash of the calls before it. The result is equal on
// all members with the same source as long as their calls agree. Order matters.
uint64_t mixed_in(uint64_t hash, const Call& call);

// "262144 float32", "1 int64 from rank 2 of the group"; empty if no data moves or it is unknown.
std::string describe_data(const Call& call);
// "all_reduce (sum) of 262144 float32", "broadcast of 1 int64 from rank 2 of the group".
std::string describe(const Call& call);

}  // namespace muster::ring

// The part of PMIx's API that we need, declared from its standard: most machines lack the header,
// and the ABI has been stable since version 2. Version 2's value is shorter, without `widest`: it
// touches only part of ours, and we read no more of its values than it has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rendezvous/base/symbols.h"

namespace muster::pmix {

using Status = int;

inline constexpr Status kSuccess = 0;
inline constexpr uint32_t kAnyRank = UINT32_MAX - 1;  // PMIX_RANK_WILDCARD
inline constexpr uint8_t kGlobalScope = 3;
inline constexpr uint16_t kBool = 1;
inline constexpr uint16_t kString = 3;
inline constexpr uint16_t kUint32 = 14;
inline constexpr const char* kCollectData = "pmix.collect";
inline constexpr const char* kJobSize = "pmix.job.size";

struct Proc {
  char name_space[256];
  uint32_t rank;
};

struct Value {
  uint16_t type;
  union {
    bool flag;
    char* string;
    uint32_t uint32;
    struct {
      char* name;
      char* value;
      char separator;
    } widest;
  } data;
};

struct Info {
  char key[512];
  uint32_t flags;
  Value value;
};

struct Api {
  Symbols symbols;
  Status (*init)(Proc*, Info*, size_t) = symbols["PMIx_Init"];
  Status (*put)(uint8_t scope, const char* key, Value*) = symbols["PMIx_Put"];
  Status (*commit)() = symbols["PMIx_Commit"];
  Status (*fence)(const Proc*, size_t, const Info*, size_t) = symbols["PMIx_Fence"];
  Status (*get)(const Proc*, const char* key, const Info*, size_t, Value**) = symbols["PMIx_Get"];
  Status (*finalize)(const Info*, size_t) = symbols["PMIx_Finalize"];
  const char* (*error_string)(Status) = symbols["PMIx_Error_string"];
};

}  // namespace muster::pmix

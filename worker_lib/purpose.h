// The library call that an operation is part of, if its user did not call the operation itself:
// should_stop() is an all_reduce of a byte. Messages name the call, and ranks compare it with the
// rest of the operation, so that a step of a helper never matches a plain operation.
//
// A PurposeScope applies to the calls of its thread while it lives; the outermost counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace muster::worker {

// The numbers go over the wire, in 4 bits.
enum class CallPurpose : uint8_t {
  itself = 0,  // The operation is what was called.
  broadcast_bytes = 1,
  all_gather_bytes = 2,
  split = 3,
  allocate_shared = 4,
  zero_first = 5,
  local_zero_first = 6,
  should_stop = 7,
  save_checkpoint = 8,
  load_checkpoint = 9,
  gradient_buckets = 10,
};

// "should_stop"; empty for `itself`.
constexpr const char* name_of(CallPurpose purpose) {
  constexpr std::array<const char*, 11> kNames{"",
                                               "broadcast_bytes",
                                               "all_gather_bytes",
                                               "split",
                                               "allocate_shared",
                                               "zero_first",
                                               "local_zero_first",
                                               "should_stop",
                                               "save_checkpoint",
                                               "load_checkpoint",
                                               "GradientBuckets"};
  const auto i = static_cast<size_t>(purpose);
  return i < kNames.size() ? kNames[i] : "unknown";
}

namespace detail {
// One byte: fits even if the library is opened late (dlopen). Reading it is a load, not a call.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local CallPurpose current_purpose =
    CallPurpose::itself;
}  // namespace detail

inline CallPurpose current_purpose() {
  return detail::current_purpose;
}

class PurposeScope {
 public:
  explicit PurposeScope(CallPurpose purpose) : before_(detail::current_purpose) {
    if (before_ == CallPurpose::itself) detail::current_purpose = purpose;
  }
  ~PurposeScope() { detail::current_purpose = before_; }
  PurposeScope(PurposeScope&&) = delete;

 private:
  const CallPurpose before_;
};

}  // namespace muster::worker

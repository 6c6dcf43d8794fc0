// The place in the program of a public call: its return address, which the recorder keeps with the
// call. Every public function that calls operations begins with a CallSite; if they nest (the C
// function, the helper that it calls, the helper's operation), the outermost counts, since its
// caller is the program. Thread-local; costs a few loads and stores.
#pragma once

#include <utility>

namespace muster::worker {

namespace detail {
// Two words: fit even if the library is opened late (dlopen), and an access is a load, not a call.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local const void* call_site = nullptr;
[[gnu::tls_model("initial-exec")]] inline constinit thread_local int call_depth = 0;
}  // namespace detail

class CallSite {
 public:
  // The default argument is evaluated in the function that declares the CallSite, so it is that
  // function's return address; if that one is always_inline, the address of the function around it.
  explicit CallSite(const void* site = __builtin_return_address(0)) : before_(detail::call_site) {
    if (before_ == nullptr) detail::call_site = site;
    ++detail::call_depth;
  }
  ~CallSite() {
    --detail::call_depth;
    detail::call_site = before_;
  }
  CallSite(CallSite&&) = delete;

  // Overrides the site of the outermost call, for a caller that knows better.
  static void replace(const void* site) {
    if (detail::call_depth == 1) detail::call_site = site;
  }
  // Returns nullptr if no public call is in progress.
  static const void* current() { return detail::call_site; }

 private:
  const void* const before_;
};

// Lives while a public call has called back into the program: calls there have their own sites.
class CalledBack {
 public:
  CalledBack()
      : site_(std::exchange(detail::call_site, nullptr)),
        depth_(std::exchange(detail::call_depth, 0)) {}
  ~CalledBack() {
    detail::call_site = site_;
    detail::call_depth = depth_;
  }
  CalledBack(CalledBack&&) = delete;

 private:
  const void* const site_;
  const int depth_;
};

}  // namespace muster::worker

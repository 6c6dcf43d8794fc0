// Where in the program a public call was made: its return address, which the recorder keeps with
// the call. Every public function that calls operations begins with a CallSite, and of several in
// one another (the C function, the helper that it calls, the helper's operation) the outermost
// counts, since its caller is the program. A thread's own; costs two loads and two stores.
#pragma once

namespace muster::worker {

namespace detail {
// One word, for which the loader finds room even if the library is opened late (dlopen), and which
// costs a load and no call.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local const void* call_site = nullptr;
}  // namespace detail

class CallSite {
 public:
  // The default is evaluated where a CallSite stands, so it is the return address of the function
  // that has it, or, if that one is always_inline, of the function around it.
  explicit CallSite(const void* site = __builtin_return_address(0)) : before_(detail::call_site) {
    if (before_ == nullptr) detail::call_site = site;
  }
  ~CallSite() { detail::call_site = before_; }
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  // For a caller that knows better. REQUIRES: a CallSite stands.
  static void replace(const void* site) { detail::call_site = site; }
  // nullptr: the call was not a public one.
  static const void* current() { return detail::call_site; }

 private:
  const void* const before_;
};

}  // namespace muster::worker

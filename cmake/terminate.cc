// Instead of the static library's own handler, whose printing of an exception's name takes a
// quarter of a small library's size with libstdc++, and half of it with libc++.
#include <cstdlib>
#include <exception>
#include <new>

#if defined(_LIBCPP_VERSION)

// All of libc++abi's cxa_default_handlers.cpp that others use, so that it is not linked in.
extern "C" {
std::terminate_handler __cxa_terminate_handler = std::abort;
std::terminate_handler __cxa_unexpected_handler = std::abort;
std::new_handler __cxa_new_handler = nullptr;
}

#else

namespace muster {

void terminate_handler() __asm__("_ZN9__gnu_cxx27__verbose_terminate_handlerEv");
void terminate_handler() {
  std::abort();
}

}  // namespace muster

#endif

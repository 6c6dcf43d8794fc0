// Instead of the static libstdc++'s own handler, whose printing of an exception's name takes a
// quarter of a small library's size.
#include <cstdlib>

namespace muster {

void terminate_handler() __asm__("_ZN9__gnu_cxx27__verbose_terminate_handlerEv");
void terminate_handler() {
  std::abort();
}

}  // namespace muster

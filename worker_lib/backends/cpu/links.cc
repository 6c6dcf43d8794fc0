#include "worker_lib/backends/cpu/links.h"

#include "worker_lib/backends/cpu/waiting.h"

namespace muster::worker {

void ByteLinks::linger(std::chrono::nanoseconds idle) {
  constexpr std::chrono::microseconds kAlone{5};
  if (idle < kAlone) {
    pause_cpu();
  } else {
    detail::yield_cpu();
  }
}

}  // namespace muster::worker

// Waits without wake-ups until a process attaches to one of several rings, so that the agent of a
// job whose workers record nothing sleeps. A thread blocks in futex_waitv(2) on the counters of all
// rings (Head::futex); kernels before 5.16 lack the call, so there it polls twice a second.
//
// Owned by the control loop's thread. `attached` is called on the waiting thread, once; the rings
// must stay mapped until the object is destroyed, which ends the wait and joins the thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace muster::hang {

class AttachWait {
 public:
  // `words`: lower halves of the counters, expected to be 0. At most 127 are watched:
  // FUTEX_WAITV_MAX less the one that ends the wait.
  AttachWait(std::vector<const std::atomic<uint32_t>*> words, std::function<void()> attached);
  ~AttachWait();
  AttachWait(AttachWait&&) = delete;

 private:
  void wait();
  bool any_attached() const;

  const std::vector<const std::atomic<uint32_t>*> words_;
  const std::function<void()> attached_;
  std::atomic<uint32_t> ending_{0};
  std::thread thread_;
};

}  // namespace muster::hang

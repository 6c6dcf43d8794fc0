#include "agent/hang/attach_wait.h"

#include <future>

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::hang {
namespace {

using Counter = std::atomic<uint32_t>;

// A page that other processes may share, like a ring.
class SharedPage {
 public:
  SharedPage()
      : at_(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedPage() { munmap(at_, 4096); }
  Counter* counter(size_t i) const { return static_cast<Counter*>(at_) + i; }

 private:
  void* at_;
};

void attach(Counter* counter) {
  counter->fetch_add(1);
  syscall(SYS_futex, counter, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

TEST(AttachWait, ReportsAnAttachmentByAnotherProcess) {
  const SharedPage page;
  std::promise<void> told;
  const AttachWait wait({page.counter(0), page.counter(1)}, [&] { told.set_value(); });
  const pid_t child = fork();
  if (child == 0) {
    attach(page.counter(1));
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  told.get_future().wait();
}

TEST(AttachWait, ReportsAnAttachmentThatPrecedesTheWait) {
  const SharedPage page;
  attach(page.counter(0));
  std::promise<void> told;
  const AttachWait wait({page.counter(0)}, [&] { told.set_value(); });
  told.get_future().wait();
}

TEST(AttachWait, ReportsNothingIfNoProcessAttaches) {
  const SharedPage page;
  std::atomic<int> told{0};
  {
    const AttachWait wait({page.counter(0)}, [&] { ++told; });
  }
  EXPECT_EQ(told, 0);
}

TEST(AttachWait, WatchesAsManyRingsAsTheKernelAllows) {
  const SharedPage page;
  std::vector<const Counter*> words;
  for (size_t i = 0; i < 300; ++i)
    words.push_back(page.counter(i));
  std::promise<void> told;
  const AttachWait wait(words, [&] { told.set_value(); });
  attach(page.counter(126));
  told.get_future().wait();
}

}  // namespace
}  // namespace muster::hang

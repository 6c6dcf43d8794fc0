#include "rendezvous/backends/helper_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <pthread.h>

namespace muster {

struct HelperThread::State : std::enable_shared_from_this<State> {
  struct Job {
    std::function<void()> work;
    std::function<void()> done;
  };

  void main() {
    pthread_setname_np(pthread_self(), "muster-disk");
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [this] { return io == nullptr || !jobs.empty(); });
      if (io == nullptr) return;
      Job job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job.work();
      job.work = nullptr;
      lock.lock();
      if (io != nullptr) answer(std::move(job.done));
    }
  }

  // REQUIRES: mutex is held, so that the loop still exists.
  void answer(std::function<void()> done) {
    boost::asio::post(*io, [self = shared_from_this(), done = std::move(done)] {
      {
        const std::lock_guard held(self->mutex);
        if (self->io == nullptr) return;
      }
      done();
    });
  }

  std::mutex mutex;
  std::condition_variable wake;
  boost::asio::io_context* io = nullptr;  // Null once abandoned.
  std::deque<Job> jobs;
  bool started = false;
};

HelperThread::HelperThread(boost::asio::io_context& io) : state_(std::make_shared<State>()) {
  state_->io = &io;
}

HelperThread::~HelperThread() {
  const std::lock_guard held(state_->mutex);
  state_->io = nullptr;
  state_->jobs.clear();
  state_->wake.notify_all();
}

void HelperThread::run(std::function<void()> work, std::function<void()> done) {
  const std::lock_guard held(state_->mutex);
  state_->jobs.push_back({std::move(work), std::move(done)});
  state_->wake.notify_all();
  if (std::exchange(state_->started, true)) return;
  // The thread inherits the signal mask of the loop's thread, which blocks all signals.
  try {
    std::thread([state = state_] { state->main(); }).detach();
  } catch (const std::system_error&) {  // No thread to be had: the loop does the work.
    state_->started = false;
    State::Job job = std::move(state_->jobs.front());
    state_->jobs.pop_front();
    job.work();
    state_->answer(std::move(job.done));
  }
}

}  // namespace muster

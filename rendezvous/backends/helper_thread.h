// Runs work that may block for long (a shared disk) on a thread of its own and posts the answers to
// the loop. One job at a time. After the destructor, answers are dropped and the thread is left to
// finish alone: a disk that hangs delays no exit.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

namespace muster {

class HelperThread {
 public:
  explicit HelperThread(boost::asio::io_context& io);
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;
  ~HelperThread();

  // `work` runs on the thread, then `done` on the loop. `work` may outlive this: it owns its data.
  void run(std::function<void()> work, std::function<void()> done);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster

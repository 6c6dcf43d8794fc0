// Runs work that may block for long (a shared disk) on its own thread, one job at a time, and posts
// the answers to the loop. The destructor abandons a running job, so a hung disk delays no exit.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

namespace muster {

class HelperThread {
 public:
  explicit HelperThread(boost::asio::io_context& io);
  HelperThread(HelperThread&&) = delete;
  ~HelperThread();

  // Runs `work` on the thread, then `done` on the loop. `work` may outlive this: it owns its data.
  void run(std::function<void()> work, std::function<void()> done);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster

// Runs what may block for long (a shared disk) on a thread of its own and brings the answers back
// to the loop. One job at a time. When the helper goes, answers are dropped and the thread is left
// to finish alone: a disk that hangs holds up nobody's exit.
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

  // `work` runs there, then `done` here. `work` may outlive this object: it owns what it uses.
  void run(std::function<void()> work, std::function<void()> done);
  bool is_busy() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster

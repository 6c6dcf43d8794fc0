// Names the native call sites of recorded calls from /proc/PID/maps of the processes that record.
// Reading that file takes the process's mmap_lock, which one that hangs in a driver or on a disk
// may hold forever; so a thread reads it, and after a second the answer has bare addresses.
//
// Owned by the agent's loop; control loop only.
#pragma once

#include <functional>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/hang/records_text.h"
#include "rendezvous/backends/helper_thread.h"

namespace muster {

class SiteNames {
 public:
  explicit SiteNames(boost::asio::io_context& io) : io_(io), thread_(io) {}

  // Calls `done` once, immediately or later. Processes that have ended have no names any more.
  void name(std::vector<RankRing> rings, std::function<void(std::vector<RankRing>)> done);

 private:
  boost::asio::io_context& io_;
  HelperThread thread_;
};

}  // namespace muster

// Finds the host through a file on a file system that all nodes share. The host listens on a port
// of its choice and writes its addresses and a random number into the file. The others read it,
// connect there, and accept no host that does not know that number. The record of a dead host is
// followed by that of the node that wins (record_file.h). Dead means unreachable, and either its
// port refuses us on the same machine or its beat has stood still: a cut cable creates no second
// host. One thread, the loop's; only a helper touches the disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/backends/helper_thread.h"
#include "rendezvous/backends/host_finder.h"
#include "rendezvous/backends/record_file.h"

namespace muster {

class FileFinder : public HostFinder {
 public:
  // REQUIRES: an instance.
  struct Options : HostFinder::Options {
    Options() { dial_limit = std::chrono::seconds(3); }

    std::string path;
    std::string host_name;
    std::optional<std::string> local_addr;
    std::string interface;
    Duration beat_every = std::chrono::seconds(1);
    Duration dead_after = std::chrono::seconds(4);  // Without a beat.
  };

  FileFinder(boost::asio::io_context& io, Options options, OnHost on_host);

  void distrust() override;
  void doubt() override;
  void retire(std::function<void()> done) override;

 private:
  // The last sign of life of a host that cannot be reached.
  struct Suspect {
    uint64_t instance = 0;
    uint64_t beat = 0;
    std::chrono::steady_clock::time_point since{};
  };

  void find() override;
  void look();
  void on_look(const Result<RecordFound>& found);
  void call(const RecordFound& found);
  void on_unreachable(const RecordFound& found, const member::ConnectionFailed& failed);
  void watch_beat(const HostRecord& record);
  bool is_dead(const HostRecord& record, bool refused) const;
  void take(const RecordFound& found);
  void on_taken(const Result<bool>& won, std::unique_ptr<Listener> listener);
  HostRecord own_record(const Listener& listener) const;
  void beat();
  // Runs `work` on the helper; `done` is dropped once this dial is cancelled or replaced.
  void on_disk(std::function<void()> work, std::function<void()> done);

  Options options_;
  std::string machine_;
  std::shared_ptr<RecordFile> file_;  // Shared with the helper.
  HelperThread helper_;
  boost::asio::steady_timer beat_timer_;
  boost::asio::steady_timer retire_timer_;
  uint64_t beats_ = 0;
  Suspect suspect_;
  uint64_t called_instance_ = 0;
  uint64_t distrusted_instance_ = 0;
  uint64_t doubted_instance_ = 0;
  bool looked_again_ = false;
};

}  // namespace muster

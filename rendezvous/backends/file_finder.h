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
#include "rendezvous/net/connect.h"

namespace muster {

class FileFinder : public HostFinder {
 public:
  struct Options {
    std::string path;
    int port = 0;  // 0: any free one.
    uint64_t instance = 0;
    std::string host_name;
    std::optional<bool> is_host;  // nullopt: the first node.
    std::optional<std::string> local_addr;
    std::string interface;
    Duration dial_limit = std::chrono::seconds(3);
    Duration beat_every = std::chrono::seconds(1);
    Duration dead_after = std::chrono::seconds(4);        // Without a beat.
    Duration dead_peer_after = std::chrono::seconds(30);  // As in EndpointFinder.
  };

  FileFinder(boost::asio::io_context& io, Options options, OnHost on_host);
  ~FileFinder() override;

  void dial(std::function<void(DialOutcome)> done) override;
  void cancel() override;
  void distrust() override;
  void retire(std::function<void()> done) override;

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  // The last sign of life of a host that cannot be reached.
  struct Suspect {
    uint64_t instance = 0;
    uint64_t beat = 0;
    SteadyTime since{};
  };

  void look();
  void on_look(const Result<RecordFound>& found);
  void call(const RecordFound& found);
  void on_unreachable(const RecordFound& found, const member::ConnectionFailed& failed);
  void watch_beat(const HostRecord& record);
  bool is_dead(const HostRecord& record, bool refused) const;
  void take(const RecordFound& found);
  void on_taken(const Result<bool>& won, std::unique_ptr<Listener> listener);
  HostRecord own_record(const Listener& listener) const;
  void call_own_host();
  void beat();
  void finish(DialOutcome outcome);
  void fail_dial(Error error, bool refused);
  // Runs `work` on the helper; `done` is dropped once this dial is cancelled or replaced.
  void on_disk(std::function<void()> work, std::function<void()> done);

  boost::asio::io_context& io_;
  Options options_;
  OnHost on_host_;
  std::string machine_;
  std::shared_ptr<RecordFile> file_;  // Shared with the helper.
  HelperThread helper_;
  boost::asio::steady_timer beat_timer_;
  boost::asio::steady_timer retire_timer_;
  std::optional<SocketAddress> own_host_;  // Set once we host.
  uint64_t beats_ = 0;
  Suspect suspect_;
  uint64_t called_instance_ = 0;
  uint64_t distrusted_instance_ = 0;
  bool looked_again_ = false;
  std::function<void(DialOutcome)> done_;
  Connecting connecting_;
  std::shared_ptr<int> dial_;
};

}  // namespace muster

// The Rendezvous of one node alone: every round forms at once. Only keeps the workers' store: a new
// one for each round, at a fresh port unless the user chose one. No timers or heartbeats: between
// two rounds it costs nothing. The worker group alone decides what follows a failure.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "rendezvous/backends/rendezvous.h"
#include "rendezvous/membership/job_store.h"

namespace muster {

class SoloRendezvous : public Rendezvous {
 public:
  // Fails if the store's address or a port that was asked for is not available.
  static Result<std::unique_ptr<Rendezvous>> make(boost::asio::io_context& io,
                                                  const RendezvousOptions& options,
                                                  Handlers handlers);

  void tell(News news) override {
    std::visit([this](const auto& one) { on(one); }, news);
  }
  std::string status() override;
  void nodes(std::function<void(std::vector<membership::NodeLine>)> done) override;
  void close(std::function<void()> closed) override;

 private:
  struct StoreAddress {
    std::vector<SocketAddress> addresses;
    JobStore::Allowed allowed;
    std::string master_addr;
  };
  static StoreAddress place_of(const RendezvousOptions& options);
  static JobStore::Options store_options(const RendezvousOptions& options,
                                         const StoreAddress& place, const Handlers& handlers);
  SoloRendezvous(boost::asio::io_context& io, const RendezvousOptions& options, StoreAddress place,
                 Handlers handlers);
  // A single node judges its failures itself.
  void on(const member::EvidenceFound&) {}
  void on(const member::Testified&) {}
  void on(const member::ReadyForRound&);
  void on(const member::WorkersDone& news);
  void on(const member::WorkerFailed& news);
  void on(const member::Leaving& news);
  void end_round();

  RendezvousOptions options_;
  StoreAddress place_;
  Handlers handlers_;
  JobStore store_;
  membership::Epoch epoch_ = 0;
  int restarts_ = 0;
  bool round_runs_ = false;
  bool failed_ = false;  // A worker of the running round failed.
  bool leaving_ = false;
};

}  // namespace muster

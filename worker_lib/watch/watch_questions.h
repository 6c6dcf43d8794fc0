// Asking other ranks where they are, each over a connection of its own to where its watch listens:
// so no rank that is stopped is in the way of another's answer. Blocking calls of one thread; the
// connections end with it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker_lib/members.h"
#include "worker_lib/watch/process_life.h"
#include "worker_lib/watch/watch.h"
#include "worker_lib/watch/watch_sockets.h"
#include "worker_lib/watch/watch_wire.h"

namespace muster::worker::watch {

class SocketQuestions final : public Watch::Questions {
 public:
  // Where the ranks are; outlives it.
  struct Directory {
    const Members& world;
    const std::vector<ProcessLife>& lives;  // By rank, where known.
    const Nonce& nonce;
    const std::vector<uint16_t>& ports;  // By rank: for other nodes.
  };

  explicit SocketQuestions(const Directory& directory) : directory_(directory) {}

  void ask(int rank) override;
  std::vector<Reply> wait(Deadline until) override;
  ProcessState state_of(int rank) const override;

 private:
  struct Asked {
    Socket socket;
    std::string output;
    Decoder input;
  };
  enum class Progress : uint8_t { open, said, refused, lost };
  static Progress progress(Asked& asked, std::string& said);

  const Directory directory_;
  std::map<int, Asked> asked_;  // And not over.
  std::vector<Reply> replies_;  // For the next wait().
};

}  // namespace muster::worker::watch

// Queries other ranks' watches for their progress, each over its own connection, so that a stopped
// rank does not delay another's answer. Blocking calls of one thread, which owns the connections.
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
  // Addresses of the ranks; must outlive this object.
  struct Directory {
    const Members& world;
    const std::vector<ProcessLife>& lives;  // Indexed by rank, if known.
    const WatchKeys& keys;
    const std::vector<uint16_t>& ports;  // Indexed by rank; for other nodes.
  };

  explicit SocketQuestions(const Directory& directory) : directory_(directory) {}

  void ask(int rank) override;
  std::vector<Reply> wait(Deadline until) override;
  ProcessState state_of(int rank) const override;

 private:
  struct Asked {
    GuardedFd socket;
    std::string output;
    Decoder input;
    LinkTerms terms;
    bool is_proved = false;  // The peer has authenticated.
  };
  enum class Progress : uint8_t { open, said, refused, lost };
  Progress progress(Asked& asked, std::string& said) const;
  Progress hear(Asked& asked, std::string& said) const;

  const Directory directory_;
  std::map<int, Asked> asked_;  // Unanswered.
  std::vector<Reply> replies_;  // Returned by the next wait().
};

}  // namespace muster::worker::watch

// Asks other ranks for their progress, each over a connection of its own to its watch, so that a
// rank that is stopped does not delay another's answer. Blocking calls of one thread; the
// connections end with this object.
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
  // Where the ranks are; what it refers to must outlive this object.
  struct Directory {
    const Members& world;
    const std::vector<ProcessLife>& lives;  // By rank, if known.
    const WatchKeys& keys;
    const std::vector<uint16_t>& ports;  // By rank: for other nodes.
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
    bool is_proved = false;  // That it is the rank.
  };
  enum class Progress : uint8_t { open, said, refused, lost };
  Progress progress(Asked& asked, std::string& said) const;
  Progress hear(Asked& asked, std::string& said) const;

  const Directory directory_;
  std::map<int, Asked> asked_;  // Without an answer so far.
  std::vector<Reply> replies_;  // For the next wait().
};

}  // namespace muster::worker::watch

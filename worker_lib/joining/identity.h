// This process's place in the job and where the ranks meet, as far as options and environment tell;
// once the ranks have met, also its place among the ranks of its node if that was not given. Plain
// values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker_lib/members.h"

namespace muster::worker {

class CallersStore;

// A world of one without a launcher: there is no rank to meet.
struct MeetNobody {
  friend bool operator==(const MeetNobody&, const MeetNobody&) = default;
};

// The store at host:port: an agent serves it, or rank 0 does.
struct MeetAtAddress {
  std::string host;
  uint16_t port = 0;
  bool agent_serves = false;
  friend bool operator==(const MeetAtAddress&, const MeetAtAddress&) = default;
};

// Rank 0 serves the store on a port of its choice and writes the address into this file.
struct MeetAtFile {
  std::string path;
  // Derived from the launcher's job id rather than named by the user: it lies in a folder of this
  // node, and rank 0 makes the folder.
  bool derived = false;
  friend bool operator==(const MeetAtFile&, const MeetAtFile&) = default;
};

// Rank 0 writes into the program's own store where the ranks meet: at the server of that store, if
// it has one that all of them reach, else at a store that rank 0 serves.
struct MeetThroughStore {
  CallersStore* store = nullptr;  // Not null until the ranks have met.
  std::optional<MeetAtAddress> server = std::nullopt;
  friend bool operator==(const MeetThroughStore&, const MeetThroughStore&) = default;
};

using MeetingPoint = std::variant<MeetNobody, MeetAtAddress, MeetAtFile, MeetThroughStore>;

// The server in a meeting point, which may be const; nullptr: it has none.
template <typename Point>
auto server_of(Point& point) -> decltype(std::get_if<MeetAtAddress>(&point)) {
  if (auto* const at = std::get_if<MeetAtAddress>(&point)) return at;
  auto* const through = std::get_if<MeetThroughStore>(&point);
  return through != nullptr && through->server ? &*through->server : nullptr;
}

enum class Launcher : uint8_t {
  none,      // Started by hand, or with explicit options.
  contract,  // RANK and WORLD_SIZE: muster, torchrun, or a person.
  open_mpi,  // mpirun of Open MPI and its descendants.
  hydra,     // mpiexec of MPICH and Intel MPI.
  slurm,     // srun.
};

// Which parts of a rank's place were given by options or variables.
struct PlaceTold {
  bool local_rank = false;
  bool local_world_size = false;
  bool node_rank = false;
  friend bool operator==(const PlaceTold&, const PlaceTold&) = default;
};

struct Identity {
  int rank = 0;
  std::vector<int> known_as = {};  // By rank, of Peer; empty: their ranks.
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  PlaceTold place_told;
  int restart_count = 0;
  std::string run_id;
  std::string secret;  // The job's, if this rank was given one; see job_secret.h.
  Launcher launcher = Launcher::none;
  MeetingPoint meeting_point = MeetNobody{};

  friend bool operator==(const Identity&, const Identity&) = default;
};

// The number by which messages name the rank.
inline int known_rank(const Identity& self, int rank) {
  return self.known_as.empty() ? rank : self.known_as[static_cast<size_t>(rank)];
}

// Sets the parts of this rank's place that were not given: its index among the ranks of its node,
// their number, and the node's index in the order of lowest ranks. REQUIRES: `world` holds the
// ranks of the job, and this one is self.rank.
void complete_place(Identity& self, const Members& world);

}  // namespace muster::worker

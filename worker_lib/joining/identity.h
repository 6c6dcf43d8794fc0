// This process's place in the job and the ranks' meeting point, from options and environment; once
// the ranks have met, also its place on its node if that was not given. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker_lib/members.h"

namespace muster::worker {

class CallersStore;

// A world of one without a launcher: no rank to meet.
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
  // True if derived from the launcher's job id: then rank 0 also makes its folder, on this node.
  bool derived = false;
  friend bool operator==(const MeetAtFile&, const MeetAtFile&) = default;
};

// Rank 0 writes the meeting point into the program's own store: the server of that store, if it has
// one that all ranks reach, else a store that rank 0 serves.
struct MeetThroughStore {
  CallersStore* store = nullptr;  // Set until the ranks have met.
  std::optional<MeetAtAddress> server = std::nullopt;
  bool is_one_node = false;  // All ranks are known to be on one node.
  friend bool operator==(const MeetThroughStore&, const MeetThroughStore&) = default;
};

using MeetingPoint = std::variant<MeetNobody, MeetAtAddress, MeetAtFile, MeetThroughStore>;

// Returns the server in a meeting point, which may be const; nullptr: none.
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

// Parts of a rank's place that options or variables gave.
struct PlaceTold {
  bool local_rank = false;
  bool local_world_size = false;
  bool node_rank = false;
  friend bool operator==(const PlaceTold&, const PlaceTold&) = default;
};

struct Identity {
  int rank = 0;
  std::vector<int> known_as = {};  // Peer::known_as by rank; empty: the ranks.
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  PlaceTold place_told;
  int restart_count = 0;
  std::string run_id;
  std::string secret;  // The job's secret, if given to this rank; see job_secret.h.
  Launcher launcher = Launcher::none;
  MeetingPoint meeting_point = MeetNobody{};

  friend bool operator==(const Identity&, const Identity&) = default;
};

// Returns the number by which messages name the rank.
inline int known_rank(const Identity& self, int rank) {
  return self.known_as.empty() ? rank : self.known_as[static_cast<size_t>(rank)];
}

// Sets what is not given of this rank's place: its index among the ranks of its node, their number,
// and the node's index by lowest ranks. REQUIRES: `world` holds all ranks; self.rank is this one.
void complete_place(Identity& self, const Members& world);

}  // namespace muster::worker

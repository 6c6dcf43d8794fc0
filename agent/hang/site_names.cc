#include "agent/hang/site_names.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/steady_timer.hpp>
#include <fcntl.h>
#include <fmt/format.h>

#include "agent/hang/native_site.h"
#include "rendezvous/base/process_stat.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

constexpr auto kMapsPatience = std::chrono::seconds(1);
constexpr size_t kMapsBytesMax = 4 << 20;  // About 40,000 mappings.

bool has_native_site(const RecordedCall& call) {
  return call.site.empty() && call.site_address != 0;
}

// A process that records: its pid, and when it was started.
using Owner = std::pair<pid_t, uint64_t>;
using MapsByOwner = std::map<Owner, std::string>;

Owner owner_of(const RecordedState& state) {
  return {state.owner, state.owner_started};
}

// Owners whose maps are needed, with nothing read yet.
MapsByOwner owners_of(const std::vector<RankRing>& rings) {
  MapsByOwner maps;
  for (const RankRing& ring : rings) {
    if (ring.state && std::ranges::any_of(ring.calls, has_native_site)) maps[owner_of(*ring.state)];
  }
  return maps;
}

// Empty: it has ended. A later process with its pid has a later start.
std::string maps_of(const Owner& owner) {
  const UniqueFd fd(open(fmt::format("/proc/{}/maps", owner.first).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text = fd ? read_up_to(fd.get(), kMapsBytesMax) : "";
  return start_ticks(stat_fields(owner.first)) == owner.second ? text : "";
}

struct Naming {
  std::vector<RankRing> rings;
  std::function<void(std::vector<RankRing>)> done;  // Empty: it has been called.
  boost::asio::steady_timer limit;

  void finish() {
    limit.cancel();
    if (done) std::exchange(done, nullptr)(std::move(rings));
  }
};

}  // namespace

void SiteNames::name(std::vector<RankRing> rings, std::function<void(std::vector<RankRing>)> done) {
  const auto maps = std::make_shared<MapsByOwner>(owners_of(rings));
  if (maps->empty()) return done(std::move(rings));
  const auto naming = std::make_shared<Naming>(
      Naming{std::move(rings), std::move(done), boost::asio::steady_timer(io_)});
  call_after(naming->limit, kMapsPatience, [naming] { naming->finish(); });
  thread_.run(
      [maps] {
        for (auto& [owner, text] : *maps)
          text = maps_of(owner);
      },
      [maps, naming] {
        for (RankRing& ring : naming->rings) {
          if (ring.state) name_native_sites(ring.calls, (*maps)[owner_of(*ring.state)]);
        }
        naming->finish();
      });
}

}  // namespace muster

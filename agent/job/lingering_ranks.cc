#include "agent/job/lingering_ranks.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/cgroup.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr Duration kSaidAfter = std::chrono::seconds(10);
constexpr Duration kIdleFor = std::chrono::seconds(10);
constexpr Duration kSampleEvery = std::chrono::seconds(1);
constexpr uint64_t kWakeupsMax = 10;  // Between two samples; the hook's own thread has 4.
constexpr size_t kRaisedMax = 200;

// Voluntary context switches of the process's threads so far: what is sent to a socket is not in
// /proc/PID/io (proc(5)), but its threads wake.
std::optional<uint64_t> thread_wakeups(pid_t pid) {
  uint64_t all = 0;
  std::error_code ignored;
  for (const auto& task :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ignored)) {
    const std::string path = (task.path() / "status").string();
    all += static_cast<uint64_t>(number_in_file(path, "voluntary_ctxt_switches:").value_or(0));
  }
  return all == 0 ? std::nullopt : std::optional(all);
}

// "it waits for its thread Thread-1 (sleep)", "it is blocked in read() of a pipe (descriptor 5)"
std::string reason_text(const Departure& departure, const hang::Life& life) {
  if (!departure.threads.empty())
    return fmt::format("it waits for its thread {}", clean_line(departure.threads));
  const std::string state = describe(life);
  return state.empty() ? "its state is unknown" : "it is " + state;
}

}  // namespace

void LingeringRanks::look() {
  for (int i = 0; i < job_.round().local_world_size; ++i) {
    const std::optional<Departure> departure = own_ranks_.departure(i);
    if (departure && departure->kind == DepartureKind::uncaught) {
      look_at(i, *departure);
    } else {
      ranks_.erase(i);
    }
  }
}

void LingeringRanks::look_at(int local_rank, const Departure& departure) {
  const Instant now = steady_now();
  const Instant raised{std::chrono::nanoseconds(departure.time_ns)};
  const auto [entry, is_new] = ranks_.try_emplace(local_rank);
  Rank& rank = entry->second;
  if (is_new) rank.since = rank.busy_at = now;
  sample(rank, local_rank, now);
  if (now - rank.since < kSaidAfter || rank.life.state == hang::LifeState::gone) return;
  if (!std::exchange(rank.is_said, true)) {
    const std::string line = text(local_rank, departure, rank, now - raised);
    record_.note(JobEventKind::note, line);
    job_.say(line);
  }
  const bool is_due = now - rank.since >= patience() && now - rank.busy_at >= kIdleFor;
  if (!is_due || !acts() || std::exchange(rank.has_failed, true)) return;
  job_.post(
      group::FailWorker{job_.attempt(), local_rank,
                        fmt::format("did not end within {} of its error; {}",
                                    duration_text(patience()), reason_text(departure, rank.life)),
                        spec_.hang.on_hang != OnHang::stop});
}

// A state takes two samples; while our stack reader holds the process, it has none of its own.
void LingeringRanks::sample(Rank& rank, int local_rank, Instant now) {
  if (now < rank.next_look || own_ranks_.is_held(local_rank)) return;
  rank.next_look = now + kSampleEvery;
  hang::LifeLook look = hang::look_at(own_ranks_.pid(local_rank));
  if (rank.look) rank.life = hang::life_of(*rank.look, look);
  rank.look = std::move(look);
  const std::optional<uint64_t> before =
      std::exchange(rank.wakeups, thread_wakeups(own_ranks_.pid(local_rank)));
  const bool wakes = before && rank.wakeups && *rank.wakeups > *before + kWakeupsMax;
  using enum hang::LifeState;
  if (wakes || !is_one_of(rank.life.state, {blocked, sleeping, asking})) rank.busy_at = now;
}

Duration LingeringRanks::patience() const {
  return std::max(from_seconds(spec_.shutdown_timeout_s), kSaidAfter);
}

std::string LingeringRanks::text(int local_rank, const Departure& departure, const Rank& rank,
                                 Duration since) const {
  const std::string site =
      departure.site.empty() ? "" : fmt::format(" at {}", clean_line(departure.site));
  return fmt::format("rank {} (pid {}) raised {}{} {} ago and has not ended: {}{}",
                     job_.round().base_rank + local_rank, own_ranks_.pid(local_rank),
                     clean_line(departure.error, kRaisedMax), site, duration_text(since),
                     reason_text(departure, rank.life),
                     acts() ? fmt::format("; if it stays idle, it counts as failed {} after that",
                                          duration_text(patience()))
                            : "");
}

}  // namespace muster

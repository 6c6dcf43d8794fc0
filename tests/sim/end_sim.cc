#include "tests/sim/end_sim.h"

#include <chrono>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "agent/job/drain.h"
#include "agent/job/ending.h"
#include "rendezvous/base/prng.h"

namespace muster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kSlack = milliseconds{1};
constexpr Duration kPromptAnswer = milliseconds{50};
constexpr Duration kLateAnswer = seconds{20};

// How long each part of the world takes to answer a request; nullopt: for ever.
struct EndPlan {
  std::optional<Duration> read;     // Reading the workers' output.
  Duration explained{};             // Explaining the first failure, from the workers' end.
  std::optional<Duration> written;  // Writing the last files.
  Duration parted{};                // Parting from the other nodes and the engine.
  std::optional<Duration> printed;  // Printing the last output on the console.
  bool waits_for_teller = false;
  std::multimap<Duration, bool> signals;  // By time from the workers' end; true: a kill.
};

EndPlan end_plan_for(uint64_t seed) {
  Prng prng(seed);
  const auto up_to = [&prng](Duration most) {
    return milliseconds(prng.below(static_cast<uint64_t>(most / milliseconds{1}) + 1));
  };
  const auto answer = [&]() -> std::optional<Duration> {
    if (prng.chance(10, 100)) return std::nullopt;
    return up_to(prng.chance(15, 100) ? kLateAnswer : kPromptAnswer);
  };
  EndPlan plan;
  plan.read = answer();
  if (prng.chance(20, 100)) plan.explained = up_to(seconds{5});
  plan.written = answer();
  plan.parted = up_to(prng.chance(15, 100) ? Duration(seconds{12}) : kPromptAnswer);
  plan.printed = answer();
  plan.waits_for_teller = prng.chance(30, 100);
  for (int left = prng.chance(50, 100) ? 0 : 3; left > 0; --left)
    plan.signals.emplace(up_to(seconds{15}), prng.chance(30, 100));
  return plan;
}

class EndWorld {
 public:
  explicit EndWorld(uint64_t seed)
      : plan_(end_plan_for(seed)),
        drain_({.read = [this] { later(plan_.read, "all is read", [this] { drain_.finish({}); }); },
                .is_settling = [this] { return now_ < begun_ + plan_.explained; },
                .take = [this](const AttemptRemains&) { trace("the remains are taken"); }}) {}

  EndReport run();

 private:
  void later(std::optional<Duration> wait, std::string what, std::function<void()> happen) {
    if (!wait) return;
    agenda_.emplace(now_ + *wait, [this, what = std::move(what), happen = std::move(happen)] {
      trace(what);
      happen();
    });
  }
  void trace(const std::string& line) {
    const auto at = std::chrono::duration<double>(now_ - begun_).count();
    report_.trace.push_back(fmt::format("{:8.3f} {}", at, line));
  }
  void hear(const Ending::Event& event);
  void perform(const Ending::Effect& effect);
  void signal(bool kills);
  void end();
  void check(bool holds, const std::string& promise) {
    if (!holds && !report_.violation) report_.violation = promise;
  }
  void check_waiting();
  void check_leaving(const Ending::Leave& leave);
  Duration since(const std::optional<Instant>& then) const { return now_ - then.value_or(now_); }

  const EndPlan plan_;
  Drain drain_;
  Ending machine_;
  EndReport report_;
  const Instant begun_{seconds{1000}};
  Instant now_ = begun_;
  std::multimap<Instant, std::function<void()>> agenda_;
  std::set<Ending::Notice> notices_;
  std::optional<Instant> ended_, written_, parted_, printed_, killed_;
  int signals_after_end_ = 0;
};

void EndWorld::hear(const Ending::Event& event) {
  std::vector<Ending::Effect> effects;
  machine_.step(now_, event, effects);
  for (const Ending::Effect& effect : effects)
    perform(effect);
}

void EndWorld::perform(const Ending::Effect& effect) {
  check(!report_.has_left, "nothing follows a Leave");
  if (std::holds_alternative<Ending::CutDrain>(effect)) {
    trace("CutDrain");
    return drain_.finish({});
  }
  if (const auto* const say = std::get_if<Ending::Say>(&effect)) {
    trace(fmt::format("Say {}", static_cast<int>(say->what)));
    notices_.insert(say->what);
    return;
  }
  if (std::holds_alternative<Ending::FinishOutput>(effect)) {
    trace("FinishOutput");
    if (!plan_.written || !plan_.printed) return;  // The output thread does them in turn.
    const Duration written_in = std::max(Duration{0}, *ended_ + *plan_.written - now_);
    return later(written_in + *plan_.printed, "the last output is printed", [this] {
      printed_ = now_;
      hear(Ending::OutputFinished{});
    });
  }
  const auto& leave = std::get<Ending::Leave>(effect);
  trace(leave.abandons_output ? "Leave, the output is abandoned" : "Leave");
  report_.has_left = true;
  report_.abandons_output = leave.abandons_output;
  report_.has_lost_files = !written_;
  check_leaving(leave);
}

void EndWorld::signal(bool kills) {
  signals_after_end_ += ended_.has_value();
  if (kills) killed_ = killed_.value_or(now_);
  if (kills)
    hear(Ending::Killed{});
  else if (ended_)  // Until then it goes to the workers (AgentLoop::request_stop).
    hear(Ending::Signalled{});
}

void EndWorld::end() {
  trace("the verdict is known");
  ended_ = now_;
  check(now_ - begun_ <=
            std::max(Duration(Ending::kSilence + Ending::kFilesPatience), plan_.explained) + kSlack,
        "neither a console nor a disk keeps the verdict back for more than 8 s");
  later(plan_.written, "the files are written", [this] {
    written_ = now_;
    hear(Ending::FilesWritten{});
  });
  later(plan_.parted, "the other nodes have parted", [this] {
    parted_ = now_;
    hear(Ending::Parted{});
  });
  hear(Ending::Ended{plan_.waits_for_teller});
}

void EndWorld::check_leaving(const Ending::Leave& leave) {
  if (!leave.abandons_output)
    check(written_ && printed_, "an agent that abandons nothing has written and printed all");
  const bool disk_had_its_time =
      since(begun_) + kSlack >= Ending::kSilence + Ending::kFilesPatience;
  if (!written_) {
    check(killed_ || signals_after_end_ > 1 || disk_had_its_time,
          "the last files are given up for a silent disk, a kill or a second signal alone");
    check(killed_ || signals_after_end_ > 1 || notices_.contains(Ending::Notice::files_are_lost),
          "lost files are reported to the user");
  }
  if (!printed_ && written_ && signals_after_end_ == 0 && !killed_) {
    check(notices_.contains(Ending::Notice::files_are_lost),
          "output that is read is printed to its end");
  }
  if (killed_ && ended_) {
    check(now_ <= std::max(*killed_, *ended_) + Ending::kLastOutput + kSlack,
          "a kill waits for nothing but the console, and briefly");
  }
}

// Checks the final state: no event is left.
void EndWorld::check_waiting() {
  check(ended_.has_value(), "the verdict comes");
  if (report_.has_left) return;
  check(parted_ && !plan_.printed && !killed_ && signals_after_end_ == 0,
        "only a console that is not read keeps an agent, and a signal ends that");
  check(notices_.contains(Ending::Notice::output_is_unread), "the user learns what it waits for");
}

EndReport EndWorld::run() {
  for (const auto& [when, kills] : plan_.signals)
    later(when, kills ? "a kill" : "a signal", [this, kills] { signal(kills); });
  if (plan_.explained > Duration::zero())
    later(plan_.explained, "the failure is explained", [this] { drain_.settled(); });
  drain_.open();
  drain_.begin();
  hear(Ending::WorkersOver{});
  drain_.when_done([this] { end(); });
  while (!report_.violation && !report_.has_left) {
    const Instant due = machine_.next_deadline();
    if (agenda_.empty() && due == kNever) break;
    if (agenda_.empty() || due < agenda_.begin()->first) {
      now_ = std::max(now_, due);
      hear(Ending::Tick{});
      continue;
    }
    const auto next = agenda_.begin();
    now_ = next->first;
    const auto happen = std::move(next->second);
    agenda_.erase(next);
    happen();
  }
  check_waiting();
  return report_;
}

}  // namespace

EndReport simulate_end(uint64_t seed) {
  return EndWorld(seed).run();
}

std::string end_transcript(uint64_t seed, const EndReport& report) {
  return fmt::format("seed {}\n{}\nbroken promise: {}\n", seed, fmt::join(report.trace, "\n"),
                     report.violation.value_or("none"));
}

}  // namespace muster::sim

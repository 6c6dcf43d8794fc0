#include "tests/transcripts/hosting_transcript.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/transcripts/seconds.h"

namespace muster::hosting {

namespace {

std::string job_text(const JobRecord& job) {
  std::vector<std::string> members;
  for (const membership::AgentId& member : job.members)
    members.push_back(fmt::format("{}.{}", member.high, member.low));
  return fmt::format("epoch {} of {:04x}, {} restarts, {} changes, [{}]{}", job.epoch,
                     job.instance & 0xffff, job.restarts, job.changes, fmt::join(members, " "),
                     job.ending ? ", ended: " + job.ending->text : "");
}

std::string host_text(const HostRecord& host) {
  return fmt::format("{:04x} at {}, beat {}", host.instance & 0xffff, host.host_name, host.beat);
}

std::string seen_text(const Keeper::Seen& seen) {
  return fmt::format("version {}: host {}; {}", seen.version,
                     seen.host ? host_text(*seen.host) : "none", job_text(seen.job));
}

std::string describe_event(const Wanted& e) {
  return fmt::format("Wanted{{{}}}", e.reaped ? "" : "not reaped");
}
std::string describe_event(const Dropped&) {
  return "Dropped";
}
std::string describe_event(const Looked& e) {
  return fmt::format("Looked{{{}}}", e.seen ? seen_text(*e.seen) : e.seen.error().message);
}
std::string describe_event(const Awaited&) {
  return "Awaited";
}
std::string describe_event(const Called& e) {
  constexpr std::array kWords{"answered", "refused", "silent", "no name"};
  return fmt::format("Called{{{}}}", kWords.at(static_cast<size_t>(e.how)));
}
std::string describe_event(const Doubted& e) {
  return fmt::format("Doubted{{{}}}", e.is_another ? "is another" : "hung up");
}
std::string describe_event(const Taken& e) {
  constexpr std::array kWords{"won", "lost", "not ours", "failed"};
  return fmt::format("Taken{{{}}}", kWords.at(static_cast<size_t>(e.how)));
}
std::string describe_event(const Beaten& e) {
  constexpr std::array kWords{"kept", "gone", "replaced"};
  return fmt::format("Beaten{{{}}}",
                     e.beat ? kWords.at(static_cast<size_t>(*e.beat)) : e.beat.error().message);
}
std::string describe_event(const RoundWanted& e) {
  return fmt::format("RoundWanted{{{}}}", job_text(e.job));
}
std::string describe_event(const Written& e) {
  if (!e.written) return fmt::format("Written{{{}}}", e.written.error().message);
  return fmt::format("Written{{{}}}", *e.written);
}
std::string describe_event(const Ended& e) {
  return fmt::format("Ended{{{}}}", e.ending.text);
}
std::string describe_event(const Retired&) {
  return "Retired";
}
std::string describe_event(const Left&) {
  return "Left";
}
std::string describe_event(const Tick&) {
  return "Tick";
}

std::string describe_effect(const Look&) {
  return "Look";
}
std::string describe_effect(const Await& e) {
  return fmt::format("Await{{version {}, {}}}", e.seen.version, seconds_text(e.patience));
}
std::string describe_effect(const Call& e) {
  return fmt::format("Call{{{}}}", host_text(e.host));
}
std::string describe_effect(const Take& e) {
  return fmt::format("Take{{version {}}}", e.seen.version);
}
std::string describe_effect(const Found&) {
  return "Found";
}
std::string describe_effect(const NotFound& e) {
  return fmt::format("NotFound{{{}{}{}}}", e.error.message, e.refused ? ", refused" : "",
                     e.ending ? ", ended: " + e.ending->text : "");
}
std::string describe_effect(const Host& e) {
  return fmt::format("Host{{{}, {} expected}}", job_text(e.job), e.expected);
}
std::string describe_effect(const Beat&) {
  return "Beat";
}
std::string describe_effect(const Write& e) {
  return fmt::format("Write{{after {}: {}, kept {}}}", e.before.epoch, job_text(e.now),
                     seconds_text(e.remember));
}
std::string describe_effect(const RoundGranted& e) {
  return fmt::format("RoundGranted{{{}}}", e.epoch);
}
std::string describe_effect(const EndingGranted&) {
  return "EndingGranted";
}
std::string describe_effect(const StepDown&) {
  return "StepDown";
}
std::string describe_effect(const Leave&) {
  return "Leave";
}
std::string describe_effect(const Retire&) {
  return "Retire";
}
std::string describe_effect(const Say& e) {
  return fmt::format("Say{{{}}}", e.text);
}

}  // namespace

std::string to_text(const Hosting::Event& event) {
  return std::visit([](const auto& e) { return describe_event(e); }, event);
}

std::string to_text(const Hosting::Effect& effect) {
  return std::visit([](const auto& e) { return describe_effect(e); }, effect);
}

}  // namespace muster::hosting

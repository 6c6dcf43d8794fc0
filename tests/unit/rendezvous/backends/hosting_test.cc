#include "rendezvous/backends/hosting.h"

#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/transcripts/hosting_transcript.h"

namespace muster::hosting {

void PrintTo(const Hosting::Effect& effect, std::ostream* out) {
  *out << to_text(effect);
}

namespace {

using membership::AgentId;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using Effects = std::vector<Hosting::Effect>;

constexpr AgentId kUs{1, 1};
constexpr AgentId kOldHost{2, 1};
constexpr AgentId kThird{3, 1};

const Error kCallRefused{ExitCode::rendezvous, "connect to node2:4711: connection refused"};
const Error kCallTimedOut{ExitCode::rendezvous, "connect to node2:4711: timed out"};
const Error kKeeperSilent{ExitCode::rendezvous, "the keeper gave no answer for 2 s"};
const Error kNoHostYet{ExitCode::rendezvous, "no host has written its address to the keeper yet"};
const Error kNotThere{ExitCode::rendezvous,
                      "the host node2 named in the keeper does not answer there"};

Hosting::Options with_a_file() {
  Hosting::Options options;
  options.place = "the keeper";
  options.agent = kUs;
  options.machine = "here";
  return options;
}

Hosting::Options with_etcd() {
  Hosting::Options options = with_a_file();
  options.keeper_ends_leases = true;
  return options;
}

HostRecord record_of(const AgentId& agent, uint64_t instance = 22) {
  HostRecord record;
  record.instance = instance;
  record.agent = agent;
  record.machine = agent == kUs ? "here" : "there";
  record.host_name = "node" + std::to_string(agent.high);
  record.addresses.resize(1);
  return record;
}

JobRecord job_after(membership::Epoch epoch, std::vector<AgentId> members = {kOldHost, kUs}) {
  JobRecord job;
  job.epoch = epoch;
  job.instance = 22;
  job.host = kOldHost;
  job.changes = static_cast<int>(epoch) - 1;
  job.members = std::move(members);
  return job;
}

// The round that our host asks for, and below it the record that the keeper must then hold.
JobRecord wanted_round(membership::Epoch epoch) {
  JobRecord job = job_after(epoch);
  job.instance = 11;
  job.host = {};
  return job;
}

JobRecord written_round(membership::Epoch epoch) {
  JobRecord job = wanted_round(epoch);
  job.host = kUs;
  return job;
}

NotFound not_found(const Error& error, bool refused = false) {
  return {error, refused, std::nullopt};
}

class Driver {
 public:
  explicit Driver(Hosting::Options options) : hosting_(std::move(options)) {}

  Effects step(const Hosting::Event& event) {
    Effects effects;
    hosting_.step(now_, event, effects);
    return effects;
  }
  Effects pass(Duration time) {
    now_ += time;
    return step(Tick{});
  }
  void wait(Duration time) { now_ += time; }
  Instant now() const { return now_; }
  const Hosting& machine() const { return hosting_; }

  // Becomes the host of the job that the keeper holds.
  void host(const Keeper::Seen& seen) {
    EXPECT_EQ(step(Wanted{}), Effects{Look{}});
    EXPECT_EQ(step(Looked{seen}), Effects{Take{seen}});
    EXPECT_EQ(step(Taken{Taken::How::won, {}}).size(), 1u);
    EXPECT_NE(machine().next_deadline(), kNever);
  }

 private:
  Hosting hosting_;
  Instant now_{seconds{1000}};
};

Called called(Called::How how, const Error& error = {}) {
  return {how, error};
}

const Taken kTakenByUs{Taken::How::won, {}};
const Taken kTakenByAnother{Taken::How::lost, {}};

// ---- An endpoint.

Hosting::Options at_an_endpoint() {
  Hosting::Options options = with_a_file();
  options.has_keeper = false;
  options.place = "node2:29400";
  return options;
}

TEST(HostingAtEndpoint, CallsTheProcessThatListens) {
  Driver node(at_an_endpoint());
  EXPECT_EQ(node.step(Wanted{}), Effects{Call{}});
  EXPECT_EQ(node.step(called(Called::How::answered)), Effects{Found{}});
  EXPECT_EQ(node.machine().next_deadline(), kNever);
}

TEST(HostingAtEndpoint, ListensAndHostsIfNoProcessListens) {
  Driver node(at_an_endpoint());
  EXPECT_EQ(node.step(Wanted{}), Effects{Call{}});
  EXPECT_EQ(node.step(called(Called::How::refused, kCallRefused)), Effects{Take{}});
  EXPECT_EQ(node.step(kTakenByUs), (Effects{Host{JobRecord{}, 0}}));
  EXPECT_EQ(node.step(RoundWanted{wanted_round(1)}), Effects{RoundGranted{1}});
  EXPECT_EQ(node.step(Wanted{}), Effects{Found{}});
  EXPECT_EQ(node.step(Retired{}), Effects{Retire{}});
}

TEST(HostingAtEndpoint, CallsAgainIfAnotherNodeWasFaster) {
  Driver node(at_an_endpoint());
  node.step(Wanted{});
  node.step(called(Called::How::refused, kCallRefused));
  EXPECT_EQ(node.step(kTakenByAnother), Effects{Call{}});
  EXPECT_EQ(node.step(called(Called::How::refused, kCallRefused)),
            Effects{not_found(kCallRefused, true)});
}

TEST(HostingAtEndpoint, SaysWhyTheCallFailedIfOnlyAnotherMachineCanListenThere) {
  Driver node(at_an_endpoint());
  node.step(Wanted{});
  node.step(called(Called::How::refused, kCallRefused));
  EXPECT_EQ(node.step(Taken{Taken::How::not_ours, {}}), Effects{not_found(kCallRefused, true)});
}

TEST(HostingAtEndpoint, TriesToListenFirstAfterAnAnswerOfNoHost) {
  Driver node(at_an_endpoint());
  node.step(Wanted{});
  node.step(called(Called::How::answered));
  EXPECT_EQ(node.step(Doubted{}), Effects{});
  node.step(Dropped{});
  EXPECT_EQ(node.step(Wanted{}), Effects{Take{}});
  EXPECT_EQ(node.step(kTakenByAnother), Effects{Call{}});
}

TEST(HostingAtEndpoint, ListensOnlyIfTheNodeMayHost) {
  Hosting::Options options = at_an_endpoint();
  options.may_host = true;
  Driver host(options);
  EXPECT_EQ(host.step(Wanted{}), Effects{Take{}});
  options.may_host = false;
  Driver guest(options);
  EXPECT_EQ(guest.step(Wanted{}), Effects{Call{}});
  EXPECT_EQ(guest.step(called(Called::How::silent, kCallTimedOut)),
            Effects{not_found(kCallTimedOut)});
}

// ---- Finding the host that a keeper names.

TEST(Hosting, TakesAJobThatHasNoHostAndNoRound) {
  Driver node(with_a_file());
  const Keeper::Seen empty{"1", {}, {}};
  EXPECT_EQ(node.step(Wanted{}), Effects{Look{}});
  EXPECT_EQ(node.step(Looked{empty}), Effects{Take{empty}});
  EXPECT_EQ(node.step(kTakenByUs), (Effects{Host{JobRecord{}, 0}}));
  EXPECT_EQ(node.machine().next_deadline(), node.now() + seconds{1});
  EXPECT_EQ(node.pass(seconds{1}), Effects{Beat{}});
}

TEST(Hosting, LooksAgainOnceIfAnotherNodeWasFaster) {
  Driver node(with_a_file());
  const Keeper::Seen empty{"1", {}, {}};
  node.step(Wanted{});
  node.step(Looked{empty});
  EXPECT_EQ(node.step(kTakenByAnother), Effects{Look{}});
  const Keeper::Seen taken{"2", record_of(kOldHost), {}};
  EXPECT_EQ(node.step(Looked{taken}), Effects{Call{record_of(kOldHost)}});
  EXPECT_EQ(node.step(called(Called::How::answered)), Effects{Found{}});
}

TEST(Hosting, AMemberReplacesARefusingHostOnceItsWorkersAreGone) {
  Driver node(with_a_file());
  const Keeper::Seen seen{"5", record_of(kOldHost), job_after(3)};
  node.step(Wanted{false});
  node.step(Looked{seen});
  EXPECT_EQ(node.step(called(Called::How::refused, kCallRefused)),
            Effects{not_found(kCallRefused, true)});
  node.step(Dropped{});
  EXPECT_EQ(node.step(Wanted{true}), Effects{Look{}});
  node.step(Looked{seen});
  EXPECT_EQ(node.step(called(Called::How::refused, kCallRefused)), Effects{Take{seen}});
  // One of that round's two nodes, its host, is gone.
  EXPECT_EQ(node.step(kTakenByUs), (Effects{Host{job_after(3), 1}}));
}

TEST(Hosting, ANonMemberReplacesARefusingHostOnlyOnItsMachine) {
  Driver node(with_a_file());
  const JobRecord job = job_after(3, {kOldHost, kThird});
  Keeper::Seen seen{"5", record_of(kOldHost), job};
  node.step(Wanted{});
  node.step(Looked{seen});
  EXPECT_EQ(node.step(called(Called::How::refused, kCallRefused)),
            Effects{not_found(kCallRefused, true)});
  seen.host->machine = "here";
  node.step(Dropped{});
  node.step(Wanted{});
  node.step(Looked{seen});
  EXPECT_EQ(node.step(called(Called::How::refused, kCallRefused)), Effects{Take{seen}});
  // A non-member starts a new job, since a file may be reused.
  EXPECT_EQ(node.step(kTakenByUs), Effects{Host{}});
}

TEST(Hosting, ANonMemberContinuesAJobInEtcd) {
  Driver node(with_etcd());
  const JobRecord job = job_after(3, {kOldHost, kThird});
  Keeper::Seen seen{"5", record_of(kOldHost), job};
  seen.host->machine = "here";
  node.step(Wanted{});
  node.step(Looked{seen});
  EXPECT_EQ(node.step(called(Called::How::refused, kCallRefused)), Effects{Take{seen}});
  EXPECT_EQ(node.step(kTakenByUs), (Effects{Host{job, 2}}));
}

// Looks once, `after` the previous look, for a host that does not answer.
Effects look_at(Driver& node, const Keeper::Seen& seen, Duration after) {
  node.wait(after);
  node.step(Dropped{});
  node.step(Wanted{});
  const Effects effects = node.step(Looked{seen});
  if (effects != Effects{Call{*seen.host}}) return effects;
  return node.step(called(Called::How::silent, kCallTimedOut));
}

TEST(Hosting, AMemberReplacesASilentHostAfterALeaseWithoutBeats) {
  Driver node(with_a_file());
  Keeper::Seen seen{"5", record_of(kOldHost), job_after(3)};
  EXPECT_EQ(look_at(node, seen, {}), Effects{not_found(kCallTimedOut)});
  seen.host->beat = 1;
  EXPECT_EQ(look_at(node, seen, seconds{3}), Effects{not_found(kCallTimedOut)});
  EXPECT_EQ(look_at(node, seen, milliseconds{3999}), Effects{not_found(kCallTimedOut)});
  EXPECT_EQ(look_at(node, seen, milliseconds{1}), Effects{Take{seen}});
}

TEST(Hosting, ANonMemberWaitsTwoLeasesMore) {
  Driver node(with_a_file());
  const Keeper::Seen seen{"5", record_of(kOldHost), job_after(3, {kOldHost, kThird})};
  EXPECT_EQ(look_at(node, seen, {}), Effects{not_found(kCallTimedOut)});
  EXPECT_EQ(look_at(node, seen, milliseconds{11'999}), Effects{not_found(kCallTimedOut)});
  EXPECT_EQ(look_at(node, seen, milliseconds{1}), Effects{Take{seen}});
}

// The simulator's seed 519: a call that takes longer than a lease shows no beats of that time.
TEST(Hosting, ALeaseEndsOnlyByLooksAtTheKeeper) {
  Driver node(with_a_file());
  const Keeper::Seen seen{"5", record_of(kOldHost), job_after(3)};
  node.step(Wanted{});
  node.step(Looked{seen});
  node.wait(seconds{5});
  EXPECT_EQ(node.step(called(Called::How::silent, kCallTimedOut)),
            Effects{not_found(kCallTimedOut)});
}

// Otherwise a node that a host turns away would replace that host.
TEST(Hosting, AnotherHostsAnswerDoesNotProveTheHostsDeath) {
  Driver node(with_a_file());
  Keeper::Seen seen{"5", record_of(kOldHost), job_after(3)};
  seen.host->machine = "here";
  node.step(Wanted{});
  node.step(Looked{seen});
  EXPECT_EQ(node.step(called(Called::How::answered)), Effects{Found{}});
  node.step(Doubted{true});
  node.step(Dropped{});
  node.step(Wanted{});
  EXPECT_NE(node.step(Looked{seen}), Effects{Take{seen}});
  node.wait(seconds{5});
  node.step(Dropped{});
  node.step(Wanted{});
  EXPECT_EQ(node.step(Looked{seen}), Effects{Take{seen}});
}

TEST(Hosting, ANodeTakesItsOwnRecordOfAnUnansweredTakeAgain) {
  Driver node(with_a_file());
  const Keeper::Seen empty{"1", {}, {}};
  node.step(Wanted{});
  node.step(Looked{empty});
  EXPECT_EQ(node.step(Taken{Taken::How::failed, kKeeperSilent}), Effects{not_found(kKeeperSilent)});
  node.step(Dropped{});
  node.step(Wanted{});
  const Keeper::Seen ours{"2", record_of(kUs, 11), {}};
  EXPECT_EQ(node.step(Looked{ours}), Effects{Take{ours}});
}

TEST(Hosting, ANonMemberWatchesAKeeperThatEndsLeases) {
  Driver node(with_etcd());
  const Keeper::Seen gone{"6", {}, job_after(3, {kOldHost, kThird})};
  node.step(Wanted{});
  EXPECT_EQ(node.step(Looked{gone}), (Effects{Await{gone, seconds{1}}}));
  node.wait(seconds{1});
  EXPECT_EQ(node.step(Awaited{}), Effects{Look{}});
  EXPECT_EQ(node.step(Looked{gone}), Effects{not_found(kNoHostYet)});
  node.wait(milliseconds{6500});
  node.step(Dropped{});
  node.step(Wanted{});
  EXPECT_EQ(node.step(Looked{gone}), (Effects{Await{gone, milliseconds{500}}}));
  node.wait(milliseconds{500});
  node.step(Awaited{});
  EXPECT_EQ(node.step(Looked{gone}), Effects{Take{gone}});
}

// The simulator's seed 17.
TEST(Hosting, ANonMembersTwoLeasesRestartWithEachNewHost) {
  Driver node(with_etcd());
  const JobRecord job = job_after(3, {kOldHost, kThird});
  node.step(Wanted{});
  node.step(Looked{Keeper::Seen{"6", {}, job}});
  node.step(Dropped{});
  node.wait(seconds{9});
  node.step(Awaited{});
  // Meanwhile another host came and its lease ended.
  const Keeper::Seen gone{"8", {}, job};
  EXPECT_EQ(node.step(Wanted{}), Effects{Look{}});
  EXPECT_EQ(node.step(Looked{gone}), (Effects{Await{gone, seconds{1}}}));
}

TEST(Hosting, ALateNodeLearnsHowTheJobEnded) {
  Driver node(with_etcd());
  JobRecord job = job_after(3);
  job.ending =
      membership::End{membership::EndWhy::failed, 7, 0, -1, "node2", "rank 0 exited with 7"};
  node.step(Wanted{});
  EXPECT_EQ(node.step(Looked{Keeper::Seen{"9", {}, job}}),
            (Effects{NotFound{{ExitCode::rendezvous, "the job is over"}, false, job.ending}}));
}

// ---- Being the host.

TEST(Hosting, ARoundBeginsOnceTheKeeperHoldsIt) {
  Driver node(with_a_file());
  node.host({"1", {}, {}});
  EXPECT_EQ(node.step(RoundWanted{wanted_round(1)}),
            (Effects{Write{JobRecord{}, written_round(1), seconds{4}}}));
  EXPECT_EQ(node.step(Written{true}), Effects{RoundGranted{1}});
  EXPECT_EQ(node.step(RoundWanted{wanted_round(2)}),
            (Effects{Write{written_round(1), written_round(2), seconds{4}}}));
}

TEST(Hosting, AWriteWithoutAnAnswerIsTriedAgainAndFoundWritten) {
  Driver node(with_a_file());
  node.host({"1", {}, {}});
  node.step(RoundWanted{wanted_round(1)});
  EXPECT_EQ(node.step(Written{tl::unexpected(kKeeperSilent)}), Effects{});
  EXPECT_EQ(node.machine().next_deadline(), node.now() + milliseconds{200});
  EXPECT_EQ(node.pass(milliseconds{200}),
            (Effects{Write{JobRecord{}, written_round(1), seconds{4}}}));
  EXPECT_EQ(node.step(Written{false}), Effects{Look{}});
  EXPECT_EQ(node.step(Looked{Keeper::Seen{"3", record_of(kUs, 11), written_round(1)}}),
            Effects{RoundGranted{1}});
}

// The second round's predecessor depends on whether the first was written.
TEST(Hosting, ALaterRoundWaitsUntilTheFirstWriteIsResolved) {
  Driver node(with_a_file());
  node.host({"1", {}, {}});
  node.step(RoundWanted{wanted_round(1)});
  node.step(Written{tl::unexpected(kKeeperSilent)});
  EXPECT_EQ(node.step(RoundWanted{wanted_round(2)}), Effects{});
  EXPECT_EQ(node.pass(milliseconds{200}),
            (Effects{Write{JobRecord{}, written_round(1), seconds{4}}}));
  EXPECT_EQ(node.step(Written{true}),
            (Effects{Write{written_round(1), written_round(2), seconds{4}}}));
  EXPECT_EQ(node.step(Written{true}), Effects{RoundGranted{2}});
}

TEST(Hosting, AHostRetakesItsLostPlaceBeforeItWrites) {
  Driver node(with_etcd());
  node.host({"1", {}, {}});
  EXPECT_EQ(node.pass(seconds{1}), Effects{Beat{}});
  EXPECT_EQ(node.step(RoundWanted{wanted_round(1)}), Effects{});
  EXPECT_EQ(node.step(Beaten{Keeper::Beat::gone}), Effects{Look{}});
  const Keeper::Seen gone{"2", {}, {}};
  EXPECT_EQ(node.step(Looked{gone}), Effects{Take{gone}});
  EXPECT_EQ(node.step(kTakenByUs), (Effects{Write{JobRecord{}, written_round(1), seconds{4}}}));
}

TEST(Hosting, StepsDownOnlyIfTheKeeperNamesAnotherHost) {
  Driver node(with_a_file());
  node.host({"1", {}, {}});
  node.pass(seconds{1});
  EXPECT_EQ(node.step(Beaten{Keeper::Beat::replaced}), Effects{Look{}});
  EXPECT_EQ(node.step(Looked{tl::unexpected(kKeeperSilent)}), Effects{});
  EXPECT_EQ(node.pass(milliseconds{200}), Effects{Look{}});
  const Say names_another{
      "the keeper names another host: this node is not the host of the job any more"};
  EXPECT_EQ(node.step(Looked{Keeper::Seen{"4", record_of(kOldHost), {}}}),
            (Effects{names_another, StepDown{}}));
  EXPECT_EQ(node.step(Wanted{}), Effects{Look{}});
}

TEST(Hosting, KeepsItsRoundWithoutAKeeperAndSaysSoOnce) {
  Driver node(with_etcd());
  node.host({"1", {}, {}});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(node.pass(seconds{1}), Effects{Beat{}});
    EXPECT_EQ(node.step(Beaten{tl::unexpected(kKeeperSilent)}), Effects{});
  }
  EXPECT_EQ(node.pass(seconds{1}), Effects{Beat{}});
  const Say says{
      "the keeper gave no answer for 2 s; the job goes on as long as its nodes are connected, but "
      "no new round can form until it answers again"};
  EXPECT_EQ(node.step(Beaten{tl::unexpected(kKeeperSilent)}), Effects{says});
  EXPECT_EQ(node.pass(seconds{1}), Effects{Beat{}});
  EXPECT_EQ(node.step(Beaten{tl::unexpected(kKeeperSilent)}), Effects{});
  EXPECT_EQ(node.pass(seconds{1}), Effects{Beat{}});
  EXPECT_EQ(node.step(Beaten{Keeper::Beat::kept}), Effects{Say{"the keeper answers again"}});
  EXPECT_EQ(node.step(Wanted{}), Effects{Found{}});
}

TEST(Hosting, SaysThatARoundWaitsForAnUnreachableKeeper) {
  Driver node(with_etcd());
  node.host({"1", {}, {}});
  for (int i = 0; i < 4; ++i) {
    node.pass(seconds{1});
    node.step(Beaten{tl::unexpected(kKeeperSilent)});
  }
  EXPECT_EQ(node.pass(seconds{1}), Effects{Beat{}});
  EXPECT_EQ(node.step(RoundWanted{wanted_round(1)}),
            Effects{Say{"the next round waits until the keeper answers again"}});
  EXPECT_EQ(
      node.step(Beaten{Keeper::Beat::kept}),
      (Effects{Say{"the keeper answers again"}, Write{JobRecord{}, written_round(1), seconds{4}}}));
}

// ---- The end.

TEST(Hosting, AnEndingIsWrittenForLateNodes) {
  Driver node(with_etcd());
  node.host({"1", {}, {}});
  node.step(RoundWanted{wanted_round(1)});
  node.step(Written{true});
  JobRecord ended = written_round(1);
  ended.ending = membership::End{};
  EXPECT_EQ(node.step(Ended{*ended.ending}),
            (Effects{Write{written_round(1), ended, minutes{10}}}));
  EXPECT_EQ(node.step(Written{true}), Effects{EndingGranted{}});
  EXPECT_EQ(node.machine().next_deadline(), kNever);
  EXPECT_EQ(node.step(Retired{}), Effects{Leave{}});
  EXPECT_EQ(node.step(Left{}), Effects{Retire{}});
}

// Otherwise the host would retake the place that it has just given up.
TEST(Hosting, AnEndingFoundWrittenIsGranted) {
  Driver node(with_etcd());
  node.host({"1", {}, {}});
  JobRecord ended;
  ended.ending = membership::End{};
  node.step(Ended{*ended.ending});
  node.step(Written{tl::unexpected(kKeeperSilent)});
  node.pass(milliseconds{200});
  EXPECT_EQ(node.step(Written{false}), Effects{Look{}});
  EXPECT_EQ(node.step(Looked{Keeper::Seen{"3", {}, ended}}), Effects{EndingGranted{}});
  EXPECT_EQ(node.step(Retired{}), Effects{Leave{}});
}

TEST(Hosting, AnEndingThatHasExpiredIsGranted) {
  Driver node(with_etcd());
  node.host({"1", {}, {}});
  node.step(RoundWanted{wanted_round(1)});
  node.step(Written{true});
  node.step(Ended{});
  node.step(Written{tl::unexpected(kKeeperSilent)});
  EXPECT_EQ(node.pass(milliseconds{200}).size(), 1u);
  EXPECT_EQ(node.step(Written{false}), Effects{Look{}});
  EXPECT_EQ(node.step(Looked{Keeper::Seen{"4", {}, {}}}), Effects{EndingGranted{}});
}

TEST(Hosting, AnEndingWaitsUntilTheHostHasRetakenItsPlace) {
  Driver node(with_etcd());
  node.host({"1", {}, {}});
  EXPECT_EQ(node.pass(seconds{1}), Effects{Beat{}});
  JobRecord ended;
  ended.ending = membership::End{};
  EXPECT_EQ(node.step(Ended{*ended.ending}), Effects{});
  EXPECT_EQ(node.step(Beaten{Keeper::Beat::gone}), Effects{Look{}});
  EXPECT_EQ(node.step(Looked{tl::unexpected(kKeeperSilent)}), Effects{});
  EXPECT_EQ(node.pass(milliseconds{200}), Effects{Look{}});
  const Keeper::Seen gone{"2", {}, {}};
  EXPECT_EQ(node.step(Looked{gone}), Effects{Take{gone}});
  EXPECT_EQ(node.step(kTakenByUs), (Effects{Write{JobRecord{}, ended, minutes{10}}}));
}

TEST(Hosting, ARetiringHostWaitsUntilTheEndingIsWritten) {
  Driver node(with_etcd());
  node.host({"1", {}, {}});
  JobRecord ended;
  ended.ending = membership::End{};
  EXPECT_EQ(node.step(Ended{*ended.ending}), (Effects{Write{JobRecord{}, ended, minutes{10}}}));
  EXPECT_EQ(node.step(Retired{}), Effects{});
  EXPECT_EQ(node.step(Written{true}), (Effects{EndingGranted{}, Leave{}}));
}

TEST(Hosting, AnEndpointGrantsAnEndingAtOnce) {
  Driver node(at_an_endpoint());
  node.step(Wanted{});
  node.step(called(Called::How::refused, kCallRefused));
  node.step(kTakenByUs);
  EXPECT_EQ(node.step(Ended{}), Effects{EndingGranted{}});
}

TEST(Hosting, ARetiringHostFormsNoRound) {
  Driver node(with_a_file());
  node.host({"1", {}, {}});
  EXPECT_EQ(node.pass(seconds{1}), Effects{Beat{}});
  EXPECT_EQ(node.step(Retired{}), Effects{});
  EXPECT_EQ(node.step(RoundWanted{wanted_round(1)}), Effects{});
  EXPECT_EQ(node.step(Beaten{Keeper::Beat::kept}), Effects{Leave{}});
  EXPECT_EQ(node.step(Left{}), Effects{Retire{}});
}

}  // namespace
}  // namespace muster::hosting

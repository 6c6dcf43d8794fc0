#include "worker_lib/joining/meeting.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include "rendezvous/base/machine.h"
#include "rendezvous/base/random.h"
#include "rendezvous/net/connect.h"
#include "worker_lib/joining/callers_store.h"
#include "worker_lib/joining/file_meeting_point.h"
#include "worker_lib/joining/job_secret.h"
#include "worker_lib/joining/kept_connections.h"
#include "worker_lib/joining/meeting_round.h"
#include "worker_lib/joining/meeting_text.h"
#include "worker_lib/joining/own_address.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;
// Met, a failure, or nullopt: the store was not reached or is gone, try again.
using Attempt = Outcome<std::optional<Met>>;

constexpr auto kFileLookFirst = milliseconds{5};
constexpr auto kFileLookLast = milliseconds{200};
// Limit for one address from a record, which may be one of another network.
constexpr auto kFileDial = seconds{3};
// Limit for reconnecting to the store where the ranks have met.
constexpr auto kReconnect = seconds{10};

// ---- finding the store

Outcome<StoreClient> connect_to_host(StoreClient::Options options) {
  // Restores the round number for messages: a fraction of a millisecond has already passed.
  const auto named =
      std::chrono::round<std::chrono::duration<int64_t, std::centi>>(options.connect_timeout);
  options.connect_timeout = std::max<Duration>(named, milliseconds{1});
  Result<StoreClient> store = StoreClient::connect(options);
  // Out of descriptors.
  if (!store && store.error().code == ExitCode::environment)
    return failed(ErrorCode::system, store.error().message);
  if (!store) return meeting_store_failure(store.error());
  return std::move(*store);
}

Outcome<Met> meet_at_own_store(const Identity& self, const MeetingOptions& options,
                               std::shared_ptr<HostStore> hosted, StoreAccess access,
                               std::string address) {
  Outcome<StoreClient> store = hosted->connect(time_left(options.deadline));
  if (!store) return tl::unexpected(store.error());
  access.own = hosted;
  access.hosted_here = true;
  Outcome<Met> met =
      MeetingRound(self, options, std::move(*store), std::move(access), std::move(address)).run();
  // Other ranks may still read the reason.
  if (!met) HostStore::retire(std::move(hosted));
  return met;
}

Met meet_nobody() {
  Members world;
  world.peers = {own_record(0, "127.0.0.1").peer};
  world.me = 0;
  return {std::move(world), {}, {}, {}, std::nullopt, nullptr};
}

// Contents by which a rank that reached the wrong store notices at once.
HostStore::Contents job_of(const Identity& self) {
  if (self.run_id.empty()) return {};
  return {{std::string(kRunIdKey), self.run_id}};
}

// Warns, once, that no agent checks the users of a store that is not on loopback.
void say_that_store_is_open(const MeetingOptions& options, const HostStore& hosted,
                            const std::vector<SocketAddress>& addresses) {
  static std::atomic<bool> said = false;
  const auto is_loopback = [](const SocketAddress& address) { return address.ip.is_loopback(); };
  if (std::ranges::all_of(addresses, is_loopback) || said.exchange(true)) return;
  say_line(
      options,
      fmt::format("muster: rank 0 serves the job's store to everybody who can reach port {} of "
                  "this machine; muster's launcher serves it to the job's users only",
                  hosted.port()));
}

Outcome<Met> host_meeting(const Identity& self, const MeetingOptions& options,
                          const MeetAtAddress& at, std::string address) {
  const std::vector<SocketAddress> addresses = listening_addresses(at.host, at.port);
  Outcome<std::shared_ptr<HostStore>> hosted = HostStore::serve(addresses, job_of(self));
  if (!hosted) return tl::unexpected(hosted.error());
  say_that_store_is_open(options, **hosted, addresses);
  return meet_at_own_store(self, options, std::move(*hosted), {at.host, at.port},
                           std::move(address));
}

// Returns a callback that prints why a rank keeps trying to reach the store.
std::function<void(const std::string& why)> impatience(const Identity& self,
                                                       const MeetingOptions& options,
                                                       const MeetAtAddress& at) {
  if (!may_speak(self) || SteadyClock::now() >= end_of_patience(options)) return {};
  return [&](const std::string& why) {
    say_that_it_waits(
        self, options,
        fmt::format("{} at {}:{}, which it cannot reach ({}): check that it is running, and that "
                    "all ranks were given its host and port",
                    at.agent_serves ? "the launcher's store" : "rank 0", at.host, at.port, why));
  };
}

Outcome<Met> attend_meeting(const Identity& self, const MeetingOptions& options,
                            const MeetAtAddress& at, const std::string& address) {
  for (;;) {
    const Duration left = time_left(options.deadline);
    Outcome<StoreClient> store = connect_to_host({.host = at.host,
                                                  .port = at.port,
                                                  .connect_timeout = left,
                                                  .timeout = left,
                                                  .still_trying = impatience(self, options, at),
                                                  .patience = time_left(end_of_patience(options))});
    const bool never_asked = !store && store.error().code == ErrorCode::system;
    if (!store && (at.agent_serves || never_asked)) return tl::unexpected(store.error());
    if (!store) {
      return failed(ErrorCode::timeout,
                    fmt::format("rank 0 did not join: {}", store.error().message), {GlobalRank{0}});
    }
    MeetingRound round(self, options, std::move(*store), {at.host, at.port}, address);
    Outcome<Met> met = round.run();
    // Rank 0 was just leaving its former group, with its store: the ranks meet at its next one.
    const bool again =
        !met && round.lost_store() && !at.agent_serves && SteadyClock::now() < options.deadline;
    if (!again) return met;
  }
}

Outcome<Met> meet_at_address(const Identity& self, const MeetingOptions& options,
                             const MeetAtAddress& at) {
  Outcome<std::string> address = own_address(at.host, at.port, options.interface);
  if (!address) return tl::unexpected(address.error());
  if (self.rank == 0 && !at.agent_serves) return host_meeting(self, options, at, *address);
  return attend_meeting(self, options, at, *address);
}

// ---- by a file

MeetingRecord own_meeting_record() {
  MeetingRecord record;
  record.node = node_identity();
  record.life = life_of_process(getpid());
  record.host = own_hostname();
  return record;
}

// Serves a store on a free port on rank 0, and publishes its address.
Outcome<Met> host_by_record(const Identity& self, const MeetingOptions& options, bool same_node,
                            bool is_private,
                            const std::function<Outcome<>(const MeetingRecord&)>& publish) {
  const IpAddress where = same_node ? IpAddress::loopback_v4() : IpAddress::any_v6();
  Outcome<std::shared_ptr<HostStore>> hosted = HostStore::serve({{where, 0}});
  if (!hosted) return tl::unexpected(hosted.error());
  say_that_store_is_open(options, **hosted, {{where, 0}});
  MeetingRecord record = own_meeting_record();
  record.nonce = (*hosted)->nonce();
  record.port = (*hosted)->port();
  if (!same_node) record.addresses = reachable_addresses(options.interface);
  Identity knowing = self;
  if (self.secret.empty() && is_private) knowing.secret = record.secret = random_job_secret();
  if (Outcome<> written = publish(record); !written) return tl::unexpected(written.error());
  const std::string address = record.addresses.empty() ? "127.0.0.1" : record.addresses.front();
  return meet_at_own_store(knowing, options, std::move(*hosted), {}, address);
}

Outcome<Met> host_by_file(const Identity& self, const MeetingOptions& options,
                          const MeetAtFile& at) {
  Outcome<FileMeetingPoint> file = FileMeetingPoint::open(at.path, at.derived);
  if (!file) return tl::unexpected(file.error());
  return host_by_record(self, options, at.derived, file->is_private(),
                        [&](const MeetingRecord& record) { return file->publish(record); });
}

using Reached = std::optional<std::pair<StoreClient, StoreAccess>>;

// Connects to the recorded store, at the first of its addresses that answers.
Outcome<Reached> reach_recorded(const MeetingRecord& record, Deadline deadline) {
  std::vector<std::string> addresses = record.addresses;
  if (record.node == node_identity()) addresses.insert(addresses.begin(), "127.0.0.1");
  for (const std::string& address : addresses) {
    const Duration left = time_left(deadline);
    Outcome<StoreClient> store =
        connect_to_host({.host = address,
                         .port = record.port,
                         .connect_timeout = std::min<Duration>(left, kFileDial),
                         .timeout = left});
    if (!store && store.error().code == ErrorCode::system) return tl::unexpected(store.error());
    if (!store) continue;
    const std::string key(kHostNonceKey);
    const Result<bool> is_there = store->check({key});
    if (!is_there || !*is_there) continue;
    const Result<std::string> nonce = store->get(key);
    if (nonce && *nonce == std::to_string(record.nonce))
      return Reached(std::in_place, std::move(*store), StoreAccess{address, record.port});
  }
  return Reached();
}

// Returns nullopt if the record's store was not reached (see `is_reached`) or was lost.
Attempt meet_at_record(const Identity& self, const MeetingOptions& options,
                       const MeetingRecord& record, bool same_node, bool& is_reached) {
  Outcome<Reached> found = reach_recorded(record, options.deadline);
  if (!found) return tl::unexpected(found.error());
  Reached& reached = *found;
  is_reached = reached.has_value();
  if (!reached) return std::nullopt;
  const StoreAccess& access = reached->second;
  Outcome<std::string> address = own_address(access.host, access.port, options.interface);
  if (!address) return tl::unexpected(address.error());
  if (!same_node && access.host == "127.0.0.1") {
    const std::vector<std::string> outward = reachable_addresses(options.interface);
    if (!outward.empty()) address = outward.front();
  }
  Identity knowing = self;
  if (knowing.secret.empty()) knowing.secret = record.secret;
  MeetingRound round(knowing, options, std::move(reached->first), access, *address);
  Outcome<Met> met = round.run();
  if (met) return std::move(*met);
  if (round.lost_store()) return std::nullopt;
  return tl::unexpected(met.error());
}

std::string words_on_unreached(const MeetingRecord& record) {
  return fmt::format("its record names port {} of {} ({}), where it does not answer", record.port,
                     record.host, fmt::join(record.addresses, ", "));
}

class FileAttendance {
 public:
  FileAttendance(const Identity& self, const MeetingOptions& options, const MeetAtFile& at)
      : self_(self), options_(options), at_(at) {}

  Outcome<Met> run() {
    auto pause = kFileLookFirst;
    for (;;) {
      const Outcome<std::optional<MeetingRecord>> record =
          look_at_meeting_file(at_.path, at_.derived);
      if (!record) return tl::unexpected(record.error());
      if (*record) {
        bool is_reached = false;
        Attempt met = meet_at_record(self_, options_, **record, at_.derived, is_reached);
        unreached_ = is_reached ? std::nullopt : *record;
        if (!met) return tl::unexpected(met.error());
        if (*met) return std::move(**met);
      }
      say_once();
      if (SteadyClock::now() + pause >= options_.deadline) return too_late();
      poll(nullptr, 0, static_cast<int>(pause.count()));
      pause = std::min(2 * pause, kFileLookLast);
    }
  }

 private:
  // Text for messages, if there is a record whose store was not reached.
  std::string unreached_words() const {
    return unreached_ ? ": " + words_on_unreached(*unreached_) : std::string();
  }

  void say_once() {
    if (said_ || SteadyClock::now() < end_of_patience(options_)) return;
    said_ = true;
    if (!may_speak(self_) || end_of_patience(options_) >= options_.deadline) return;
    say_that_it_waits(
        self_, options_,
        fmt::format(
            "rank 0 to join at the meeting file {}{}; check that it is running, and that all ranks "
            "were given the same file on a file system that all of them can access",
            at_.path, unreached_words()));
  }

  Outcome<Met> too_late() const {
    return failed(ErrorCode::timeout,
                  fmt::format("rank 0 did not join at the meeting file {} {}{}", at_.path,
                              within_limit(options_.begun, options_.deadline), unreached_words()),
                  {GlobalRank{0}});
  }

  const Identity& self_;
  const MeetingOptions& options_;
  const MeetAtFile& at_;
  std::optional<MeetingRecord> unreached_;
  bool said_ = false;
};

// ---- through a store of the program's

constexpr std::string_view kMeetKey = "muster/meet";

// Prints once that it waits.
Outcome<std::optional<std::string>> wait_for_record(const Identity& self,
                                                    const MeetingOptions& options,
                                                    CallersStore& store) {
  const Deadline notice = end_of_patience(options);
  if (notice >= options.deadline || !may_speak(self)) return store.get(kMeetKey, options.deadline);
  Outcome<std::optional<std::string>> text = store.get(kMeetKey, notice);
  if (!text || *text) return text;
  say_that_it_waits(self, options,
                    fmt::format("rank {} to join: check that it is running, and was given the same "
                                "store",
                                known_rank(self, 0)));
  return store.get(kMeetKey, options.deadline);
}

Outcome<MeetingRecord> record_in(const Identity& self, const MeetingOptions& options,
                                 CallersStore& store) {
  const Outcome<std::optional<std::string>> text = wait_for_record(self, options, store);
  if (!text) return tl::unexpected(text.error());
  if (!*text) {
    return failed(ErrorCode::timeout,
                  fmt::format("rank {} did not join {}: check that it is running, and was given "
                              "the same store",
                              known_rank(self, 0), within_limit(options.begun, options.deadline)),
                  {GlobalRank{0}});
  }
  std::optional<MeetingRecord> record = MeetingRecord::decode(**text);
  if (record) return std::move(*record);
  return failed(ErrorCode::environment,
                fmt::format("the key {} of the store that was given is not of the group's first "
                            "rank: use one version of muster for all ranks, and a prefix for each "
                            "group",
                            kMeetKey));
}

// Meets at the store's own server, with the record's random number as prefix.
Outcome<Met> meet_at_server(const Identity& self, const MeetingOptions& options,
                            const MeetAtAddress& server, const MeetingRecord& record) {
  const Duration left = time_left(options.deadline);
  std::optional<StoreClient> kept = take_connection(server);
  Outcome<StoreClient> store = kept ? kept->with_timeout(left)
                                    : connect_to_host({.host = server.host,
                                                       .port = server.port,
                                                       .connect_timeout = left,
                                                       .timeout = left});
  if (!store) return tl::unexpected(store.error());
  const Outcome<std::string> address = own_address(server.host, server.port, options.interface);
  if (!address) return tl::unexpected(address.error());
  const std::string prefix = fmt::format("muster/{:016x}", record.nonce);
  Identity knowing = self;
  if (knowing.secret.empty()) knowing.secret = record.secret;
  Outcome<Met> met = MeetingRound(knowing, options, store->with_prefix(prefix),
                                  {server.host, server.port, prefix + "/"}, *address)
                         .run();
  if (met) met->to_server = *store;
  return met;
}

Outcome<Met> host_through_store(const Identity& self, const MeetingOptions& options,
                                const MeetThroughStore& at) {
  const auto publish = [&](const MeetingRecord& record) {
    return at.store->set(kMeetKey, record.encode());
  };
  if (!at.server) return host_by_record(self, options, at.is_one_node, true, publish);
  MeetingRecord record = own_meeting_record();
  record.is_at_server = true;
  record.port = at.server->port;
  record.nonce = random_value<uint64_t>() | 1;
  if (self.secret.empty()) record.secret = random_job_secret();
  if (Outcome<> written = publish(record); !written) return tl::unexpected(written.error());
  return meet_at_server(self, options, *at.server, record);
}

Outcome<Met> attend_through_store(const Identity& self, const MeetingOptions& options,
                                  const MeetThroughStore& at) {
  const Outcome<MeetingRecord> record = record_in(self, options, *at.store);
  if (!record) return tl::unexpected(record.error());
  const int first = known_rank(self, 0);
  if (record->is_at_server != at.server.has_value()) {
    return failed(ErrorCode::environment,
                  fmt::format("rank {} gave {}, and this rank {}: give the store's server_host on "
                              "all members, or on none",
                              first, at.server ? "no server_host" : "a server_host",
                              at.server ? "gave one" : "gave none"));
  }
  if (at.server) return meet_at_server(self, options, *at.server, *record);
  for (auto pause = kFileLookFirst;; pause = std::min(2 * pause, kFileLookLast)) {
    bool is_reached = false;
    Attempt met = meet_at_record(self, options, *record, at.is_one_node, is_reached);
    if (!met) return tl::unexpected(met.error());
    if (*met) return std::move(**met);
    const std::string where = fmt::format(
        "rank {} {}", first, is_reached ? "has ended while the ranks met" : "was not reached: ");
    if (is_reached) return failed(ErrorCode::rendezvous, where, {GlobalRank{0}});
    if (auto why = options.interrupted ? options.interrupted() : std::nullopt)
      return tl::unexpected(std::move(*why));
    if (SteadyClock::now() + pause >= options.deadline)
      return failed(ErrorCode::timeout, where + words_on_unreached(*record), {GlobalRank{0}});
    poll(nullptr, 0, static_cast<int>(pause.count()));
  }
}

Outcome<Met> meet_through_store(const Identity& self, const MeetingOptions& options,
                                const MeetThroughStore& at) {
  Outcome<Met> met = self.rank == 0 ? host_through_store(self, options, at)
                                    : attend_through_store(self, options, at);
  if (met) met->is_last = true;
  return met;
}

}  // namespace

RankRecord own_record(int rank, std::string address) {
  const ProcessLife life = life_of_process(getpid());
  return {{GlobalRank{rank}, node_identity(), own_hostname(), life.pid, std::move(address)}, life};
}

Outcome<StoreClient> StoreAccess::connect(Deadline deadline) const {
  if (hosted_here) {
    const std::shared_ptr<HostStore> store = own.lock();
    if (!store) {
      return failed(ErrorCode::not_initialized,
                    "the job's store is gone: destroy_process_group() was called");
    }
    Outcome<StoreClient> client = store->connect(time_left(deadline));
    if (!client) return client;
    return client->with_prefix(prefix);
  }
  // No retries: if the store does not listen any more, it never will.
  const Deadline until = std::min(deadline, SteadyClock::now() + kReconnect);
  const std::string server = fmt::format("{}:{}", host, port);
  const NetResult<int> fd = connect_blocking(host, port, until);
  if (!fd) {
    return failed(ErrorCode::rendezvous,
                  fmt::format("the job's store at {} is gone: its host has ended, or has left the "
                              "group before this rank: {}",
                              server, fd.error().message));
  }
  StoreClient store = StoreClient::over(*fd, server, time_left(deadline)).with_prefix(prefix);
  if (const Result<uint32_t> echo = store.ping(0); !echo)
    return meeting_store_failure(echo.error());
  return store;
}

Outcome<Met> meet(const Identity& self, const MeetingOptions& options) {
  if (std::holds_alternative<MeetNobody>(self.meeting_point)) return meet_nobody();
  if (const auto* at = std::get_if<MeetAtAddress>(&self.meeting_point))
    return meet_at_address(self, options, *at);
  if (const auto* through = std::get_if<MeetThroughStore>(&self.meeting_point))
    return meet_through_store(self, options, *through);
  const auto& at = std::get<MeetAtFile>(self.meeting_point);
  if (self.rank == 0) return host_by_file(self, options, at);
  return FileAttendance(self, options, at).run();
}

}  // namespace muster::worker

#include "rendezvous/backends/etcd_keeper.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/text.h"
#include "rendezvous/membership/random_ids.h"

namespace muster {
namespace {

constexpr auto kWatchLimit = std::chrono::seconds(10);
// Pause after a failed watch, so that a waiting node does not poll without a break.
constexpr auto kWatchPause = std::chrono::milliseconds(200);
// Spreads a crowd's tries, per node: of 1,000 nodes about 120 still try to be the host, not 500.
constexpr auto kTakeTurn = std::chrono::microseconds(200);
constexpr int kCrowdMax = 2500;

// Makes an id, which may hold anything, even "/", one part of a key (RFC 3986, §2.1).
std::string percent_encoded(std::string_view id) {
  std::string text;
  for (const char c : id) {
    const bool plain = is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       contains("-_.~", std::string_view(&c, 1));
    text += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return text;
}

std::string host_text(HostRecord record) {
  record.beat = 0;
  return encode(record);
}

template <typename T>
Result<T> not_etcd(std::string_view answer) {
  return fail(ExitCode::environment,
              fmt::format("the server does not answer like etcd: {}", printable(answer, 100)));
}

int64_t whole_seconds(Duration time) {
  return std::max<int64_t>(std::chrono::ceil<std::chrono::seconds>(time).count(), 1);
}

}  // namespace

struct EtcdKeeper::Texts {
  std::optional<std::string> host;
  std::optional<std::string> job;
  int64_t host_revision = 0;
  int64_t host_lease = 0;
  int64_t job_revision = 0;
  int64_t revision = 0;  // etcd's own.

  std::string version() const { return fmt::format("{}.{}", host_revision, job_revision); }
};

EtcdKeeper::EtcdKeeper(EtcdOptions options, const std::string& job_id, int lease_s, int crowd)
    : client_(options),
      host_key_(options.prefix + percent_encoded(job_id) + "/host"),
      job_key_(options.prefix + percent_encoded(job_id) + "/job"),
      lease_wanted_s_(lease_s),
      crowd_(std::clamp(crowd, 1, kCrowdMax)) {}

// ---- any node

Result<Keeper::Seen> EtcdKeeper::look() {
  const Result<Texts> texts = read(EtcdClient::operation_limit());
  if (!texts) return tl::unexpected(texts.error());
  Seen seen{texts->version(), std::nullopt, {}};
  if (texts->host) seen.host = decode_record(*texts->host);
  const auto job = texts->job ? decode_job_record(*texts->job) : JobRecord{};
  if ((texts->host && !seen.host) || !job) {
    return fail(ExitCode::environment,
                fmt::format("etcd's key {} holds no record of muster: remove it, or choose another "
                            "etcd_prefix",
                            job ? host_key_ : job_key_));
  }
  seen.job = *job;
  looked_version_ = seen.version;
  looked_revision_ = texts->revision;
  return seen;
}

// Watches from the revision after the one looked at: etcd keeps its history, so no change since
// look() is missed, and says so if that history is gone.
void EtcdKeeper::wait(const Seen& seen, Duration patience) {
  if (seen.version != looked_version_) return;
  const Deadline until =
      std::chrono::steady_clock::now() + std::min<Duration>(patience, kWatchLimit);
  const auto watched = client_.watch(etcd_watch_request(both(), looked_revision_ + 1), until);
  if (watched == EtcdClient::Watched::failed)
    client_.pause(std::min<Duration>(kWatchPause, until - std::chrono::steady_clock::now()));
}

Result<bool> EtcdKeeper::take(const Seen& seen, const HostRecord& own) {
  // If a thousand nodes begin at once, all have seen nothing. A pause and a read cost etcd less
  // than a lease and a try, which are writes on all its members.
  client_.pause(kTakeTurn * static_cast<int64_t>(random_u64() % static_cast<uint64_t>(crowd_)));
  const Deadline limit = EtcdClient::operation_limit();
  const auto parts = split(seen.version, '.');
  const auto host_revision = whole_number<int64_t>(parts.front());
  const auto job_revision = whole_number<int64_t>(parts.back());
  CHECK(parts.size() == 2 && host_revision && job_revision);
  const std::string text = host_text(own);
  const Result<Texts> now = read(limit);
  if (!now) return tl::unexpected(now.error());
  if (now->version() != seen.version && now->host != text) return false;
  const Result<EtcdLease> lease = grant(lease_wanted_s_, limit);
  if (!lease) return tl::unexpected(lease.error());
  const auto done = commit({.revisions = {{host_key_, *host_revision}, {job_key_, *job_revision}},
                            .puts = {{host_key_, text, lease->id}},
                            .read_else = both()},
                           limit);
  if (!done) return tl::unexpected(done.error());
  const Texts found = texts_of(*done);
  // An earlier try may have arrived although its answer was lost, perhaps with another lease.
  const bool is_ours = done->succeeded || found.host == text;
  const int64_t used = done->succeeded ? lease->id : found.host_lease;
  if (!is_ours || used != lease->id) revoke(lease->id, limit);
  if (is_ours) {
    lease_ = used;
  }
  return is_ours;
}

// ---- the host

// A retry recognizes what the first try has written, since no two records of a job are alike.
Result<bool> EtcdKeeper::write(const HostRecord& own, const JobRecord& before, const JobRecord& now,
                               Duration remember) {
  const Deadline limit = EtcdClient::operation_limit();
  const std::string text = encode(now);
  EtcdTxn txn;
  txn.values.push_back({host_key_, host_text(own)});
  if (before == JobRecord{}) {
    txn.revisions.push_back({job_key_, 0});
  } else {
    txn.values.push_back({job_key_, encode(before)});
  }
  txn.puts.push_back({job_key_, text, 0});
  txn.read_else = both();
  if (now.ending) {
    const Result<EtcdLease> lease = grant(whole_seconds(remember), limit);
    if (!lease) return tl::unexpected(lease.error());
    txn.puts.back().lease = lease->id;
    txn.deletes.push_back(host_key_);
  }
  const auto done = commit(txn, limit);
  if (!done) return tl::unexpected(done.error());
  const Texts found = texts_of(*done);
  const bool is_done =
      done->succeeded || (found.job == text && (now.ending || found.host == host_text(own)));
  if (!done->succeeded) revoke(txn.puts.back().lease, limit);
  return is_done;
}

// Reads the key as well as renewing the lease, since others may replace or remove the key.
Result<Keeper::Beat> EtcdKeeper::beat(const HostRecord& own) {
  const Deadline limit = EtcdClient::operation_limit();
  const auto renewed = client_.call("/v3/lease/keepalive", etcd_lease_request(lease_), limit);
  if (!renewed) return tl::unexpected(renewed.error());
  const auto lease = decode_etcd_lease(*renewed);
  if (!lease) return not_etcd<Beat>(*renewed);
  const Result<Texts> texts = read(limit);
  if (!texts) return tl::unexpected(texts.error());
  if (texts->host && texts->host != host_text(own)) return Beat::replaced;
  return texts->host && lease->ttl_s > 0 ? Beat::kept : Beat::gone;
}

void EtcdKeeper::leave(const HostRecord& own) {
  client_.resume();
  const Deadline limit = EtcdClient::operation_limit();
  (void)commit(
      {.values = {{host_key_, host_text(own)}}, .deletes = {host_key_}, .read_else = both()},
      limit);
  revoke(std::exchange(lease_, 0), limit);
}

// ---- calls of etcd

EtcdKeeper::Texts EtcdKeeper::texts_of(const EtcdValues& answer) const {
  Texts texts;
  texts.revision = answer.revision;
  for (const EtcdValue& value : answer.values) {
    if (value.key == host_key_) {
      texts.host = value.value;
      texts.host_revision = value.mod_revision;
      texts.host_lease = value.lease;
    } else if (value.key == job_key_) {
      texts.job = value.value;
      texts.job_revision = value.mod_revision;
    }
  }
  return texts;
}

Result<EtcdKeeper::Texts> EtcdKeeper::read(Deadline limit) {
  const auto answer = client_.call("/v3/kv/range", etcd_range_request(both()), limit);
  if (!answer) return tl::unexpected(answer.error());
  const auto values = decode_etcd_range(*answer);
  if (!values) return not_etcd<Texts>(*answer);
  return texts_of(*values);
}

Result<EtcdLease> EtcdKeeper::grant(int64_t ttl_s, Deadline limit) {
  const auto answer = client_.call("/v3/lease/grant", etcd_lease_grant_request(ttl_s), limit);
  if (!answer) return tl::unexpected(answer.error());
  const auto lease = decode_etcd_lease(*answer);
  if (!lease || lease->ttl_s == 0) return not_etcd<EtcdLease>(*answer);
  return *lease;
}

void EtcdKeeper::revoke(int64_t lease, Deadline limit) {
  if (lease != 0) (void)client_.call("/v3/lease/revoke", etcd_lease_request(lease), limit);
}

Result<EtcdValues> EtcdKeeper::commit(const EtcdTxn& txn, Deadline limit) {
  const auto answer = client_.call("/v3/kv/txn", etcd_txn_request(txn), limit);
  if (!answer) return tl::unexpected(answer.error());
  const auto values = decode_etcd_txn(*answer);
  if (!values) return not_etcd<EtcdValues>(*answer);
  return *values;
}

}  // namespace muster

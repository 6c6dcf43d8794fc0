// What is said to etcd's JSON gateway (/v3/...) and what it answers, of versions 3.4 to 3.6 (the
// chapter "gRPC gateway" of etcd's manual). A field with a zero value is left out of an answer, so
// an absent one is no error: a transaction without "succeeded" failed, and a renewal without "TTL"
// was that of a lease that is over. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// From the first key to the last; both are part of it.
struct EtcdRange {
  std::string first;
  std::string last;
};

// Changes everything named if all comparisons hold, and otherwise reads `read_else`.
struct EtcdTxn {
  struct RevisionIs {
    std::string key;
    int64_t mod_revision = 0;  // 0: the key does not exist.
  };
  struct ValueIs {
    std::string key;
    std::string value;
  };
  struct Put {
    std::string key;
    std::string value;
    int64_t lease = 0;  // 0: none.
  };

  std::vector<RevisionIs> revisions;
  std::vector<ValueIs> values;
  std::vector<Put> puts;
  std::vector<std::string> deletes;
  EtcdRange read_else;
};

std::string etcd_range_request(const EtcdRange& range);
std::string etcd_txn_request(const EtcdTxn& txn);
std::string etcd_lease_grant_request(int64_t ttl_s);
std::string etcd_lease_request(int64_t lease);  // To renew or to revoke it.
std::string etcd_watch_request(const EtcdRange& range, int64_t start_revision);
std::string etcd_authenticate_request(std::string_view user, std::string_view password);

struct EtcdValue {
  std::string key;
  std::string value;
  int64_t mod_revision = 0;
  int64_t lease = 0;  // 0: none.
  friend bool operator==(const EtcdValue&, const EtcdValue&) = default;
};

struct EtcdValues {
  bool succeeded = false;         // Of a transaction.
  int64_t revision = 0;           // Of the whole of etcd, when it answered.
  std::vector<EtcdValue> values;  // Of a range, or of what a failed transaction read.
  friend bool operator==(const EtcdValues&, const EtcdValues&) = default;
};

struct EtcdLease {
  int64_t id = 0;
  int64_t ttl_s = 0;  // 0: it is over.
  friend bool operator==(const EtcdLease&, const EtcdLease&) = default;
};

struct EtcdWatchNews {
  bool has_events = false;
  bool is_cancelled = false;
  bool is_compacted = false;  // Cancelled, because the revision to start from is forgotten.
  friend bool operator==(const EtcdWatchNews&, const EtcdWatchNews&) = default;
};

struct EtcdFailure {
  int grpc_code = 0;
  std::string message;
  friend bool operator==(const EtcdFailure&, const EtcdFailure&) = default;
};

// nullopt for what is no such answer.
std::optional<EtcdValues> decode_etcd_range(std::string_view text);
std::optional<EtcdValues> decode_etcd_txn(std::string_view text);
std::optional<EtcdLease> decode_etcd_lease(std::string_view text);
std::optional<EtcdWatchNews> decode_etcd_watch(std::string_view line);
// Printable, as it goes into a header.
std::optional<std::string> decode_etcd_token(std::string_view text);
// Also of one within a stream, which comes with the HTTP status of a success.
std::optional<EtcdFailure> decode_etcd_failure(std::string_view text);

}  // namespace muster

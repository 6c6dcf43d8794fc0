// Encodes requests to etcd's JSON gateway (/v3/...) and decodes its answers, for etcd 3.4 to 3.6
// (chapter "gRPC gateway" of its manual). An answer omits fields whose value is zero: a transaction
// without "succeeded" failed, and a renewal without "TTL" is for an expired lease. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// The keys from `first` to `last`, both included.
struct EtcdRange {
  std::string first;
  std::string last;
};

// Performs all puts and deletes if all comparisons hold; otherwise reads `read_else`.
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

  std::vector<RevisionIs> revisions = {};
  std::vector<ValueIs> values = {};
  std::vector<Put> puts = {};
  std::vector<std::string> deletes = {};
  EtcdRange read_else;
};

std::string etcd_range_request(const EtcdRange& range);
std::string etcd_txn_request(const EtcdTxn& txn);
std::string etcd_lease_grant_request(int64_t ttl_s);
std::string etcd_lease_request(int64_t lease);  // Renews or revokes, depending on the path.
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
  bool succeeded = false;         // Outcome of a transaction.
  int64_t revision = 0;           // The store's revision at the time of the answer.
  std::vector<EtcdValue> values;  // Contents of a range, or what a failed transaction read.
  friend bool operator==(const EtcdValues&, const EtcdValues&) = default;
};

struct EtcdLease {
  int64_t id = 0;
  int64_t ttl_s = 0;  // 0: expired.
  friend bool operator==(const EtcdLease&, const EtcdLease&) = default;
};

struct EtcdWatchNews {
  bool has_events = false;
  bool is_cancelled = false;
  bool is_compacted = false;  // Cancelled because the start revision has been compacted.
  friend bool operator==(const EtcdWatchNews&, const EtcdWatchNews&) = default;
};

struct EtcdFailure {
  int grpc_code = 0;
  std::string message;
  friend bool operator==(const EtcdFailure&, const EtcdFailure&) = default;
};

// Return nullopt if the text is not such an answer.
std::optional<EtcdValues> decode_etcd_range(std::string_view text);
std::optional<EtcdValues> decode_etcd_txn(std::string_view text);
std::optional<EtcdLease> decode_etcd_lease(std::string_view text);
std::optional<EtcdWatchNews> decode_etcd_watch(std::string_view line);
// Accepts only printable tokens, since a token goes into a header.
std::optional<std::string> decode_etcd_token(std::string_view text);
// Also decodes a failure within a stream, whose HTTP status is that of a success.
std::optional<EtcdFailure> decode_etcd_failure(std::string_view text);

}  // namespace muster

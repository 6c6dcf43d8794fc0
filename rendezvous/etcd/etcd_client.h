// Calls any member of an etcd cluster, and the next one if it fails or is slow. Blocks for at most
// 2.5 s (operation_limit()). One thread at a time, except cancel().
//
// A call whose answer is lost is repeated at another member, although the first may have been
// performed, or may yet be. So every change must be idempotent: a transaction that compares what it
// replaces, and whose failure branch reads the current state.
//
// A cluster of three accepts changes again 1.1 to 2.2 s after the loss of its leader; a change on
// its way to a leader that hangs is answered after 7 s: hence the limits.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/etcd/etcd_connection.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/etcd/etcd_socket.h"

namespace muster {

class EtcdClient {
 public:
  explicit EtcdClient(EtcdOptions options);
  EtcdClient(EtcdClient&&) = delete;

  // Returns the deadline for all calls of an operation that begins now.
  static Deadline operation_limit();

  // Returns the JSON text of a success. Fails with `environment` if retries are useless at all
  // members, else with `rendezvous`.
  Result<std::string> call(const std::string& path, const std::string& json, Deadline limit);

  enum class Watched { changed, quiet, failed };
  // Blocks until an event or `until`. failed: events may be lost. Does not log in: call() first.
  Watched watch(const std::string& json, Deadline until);

  // Waits for `time`; returns early if cancelled.
  void pause(Duration time) const;

  // Ends what is in progress and makes all later calls fail, until resume(). Any thread.
  void cancel();
  bool is_cancelled() const;
  void resume();

 private:
  // The failure of one try.
  struct Refusal {
    EtcdTrouble trouble;
    // True if all members would give this answer.
    bool is_final = false;
  };
  using Try = tl::expected<std::string, Refusal>;

  const EtcdMember& member() const { return options_.members[current_]; }
  Try try_once(const std::string& path, const std::string& json, Deadline deadline);
  std::optional<Refusal> log_in(Deadline deadline);
  EtcdResult<EtcdReply> exchange(const EtcdCall& call, Deadline deadline);
  Refusal refusal(const EtcdReply& reply) const;
  EtcdTrouble explained(EtcdTrouble trouble) const;

  const EtcdOptions options_;
  UniqueFd cancel_;
  size_t current_ = 0;
  std::optional<EtcdConnection> connection_;
  size_t connected_to_ = 0;
  bool is_logged_in_ = false;
  std::string token_;
};

}  // namespace muster

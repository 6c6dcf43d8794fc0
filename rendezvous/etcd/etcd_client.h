// Asks any member of an etcd cluster, the next one if one fails or is slow. Blocks for 2.5 s at
// most (operation_limit()); one thread at a time, but for cancel().
//
// A call whose answer is lost is made again, at another member, although the first may have been
// carried out, or may be later. So every change must be one that does nothing the second time: a
// transaction that compares what it replaces, and whose failure branch reads what is there.
//
// After the loss of its leader a cluster of three takes changes again within 1.1 to 2.2 s, and a
// change that was on its way to a leader that hangs is answered after 7 s: hence the limits.
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
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // The limit of an operation that begins now, for all its calls together.
  static Deadline operation_limit();

  // The JSON text of a success. Fails with ExitCode::environment if trying again is useless, also
  // at other members; otherwise with ExitCode::rendezvous.
  Result<std::string> call(const std::string& path, const std::string& json, Deadline limit);

  enum class Watched { changed, quiet, failed };
  // Until the first event, or until `until`. failed: it may have missed some. Logs nobody in: a
  // call() comes before.
  Watched watch(const std::string& json, Deadline until);

  // Waits, unless cancelled.
  void pause(Duration time) const;

  // Of any thread: what is in progress ends at once, and all later calls fail.
  void cancel();
  bool is_cancelled() const;
  // Later calls work again.
  void resume();

 private:
  // Of one try.
  struct Refusal {
    EtcdTrouble trouble;
    // Of etcd itself: the other members would say the same.
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

// HTTP/1.1 over one connection to a member of etcd that is kept open: POST of a JSON text, and its
// answer whole or, of a watch, line by line as it comes. Blocks as EtcdSocket does. After a failure
// the connection is of no use any more.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/base/time.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/etcd/etcd_socket.h"

namespace muster {

struct EtcdCall {
  std::string path;  // "/v3/kv/range"
  std::string json;
  std::string token;  // Of a user that has logged in; empty: none.
};

struct EtcdReply {
  int http_status = 0;
  std::string body;
};

class EtcdConnection {
 public:
  static EtcdResult<EtcdConnection> open(const EtcdOptions& options, const EtcdMember& member,
                                         int cancel, Deadline deadline);
  EtcdConnection(EtcdConnection&&) noexcept;
  EtcdConnection& operator=(EtcdConnection&&) noexcept;
  ~EtcdConnection();

  // `silent`: it closed the connection, and on a new one means that only one side speaks TLS, or
  // that it has just ended.
  EtcdResult<EtcdReply> post(const EtcdCall& call, Deadline deadline);

  // The status; unless it is 200, the answer is a failure, of one line.
  EtcdResult<int> start(const EtcdCall& call, Deadline deadline);
  EtcdResult<std::string> next_line(Deadline deadline);

  // False once the other side has said that it closes, or an answer was left unread.
  bool can_go_on() const;

 private:
  struct State;
  explicit EtcdConnection(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// True if that member does speak TLS, or does speak HTTP without it: what `options` does not say,
// for a line that tells which side is wrong.
bool etcd_speaks_the_other(const EtcdOptions& options, const EtcdMember& member, int cancel,
                           Deadline deadline);

}  // namespace muster

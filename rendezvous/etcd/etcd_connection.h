// HTTP/1.1 over one persistent connection to an etcd member: posts a JSON text and returns the
// answer, whole or, for a watch, line by line. Blocks as EtcdSocket does. Unusable after a failure.
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
  std::string token;  // Token of a log-in; empty: none.
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

  // `silent`: the member closed the connection without an answer. On a new connection that means
  // that only one side speaks TLS, or that the member has just ended.
  EtcdResult<EtcdReply> post(const EtcdCall& call, Deadline deadline);

  // Returns the HTTP status; unless it is 200, the answer is a failure of one line.
  EtcdResult<int> start(const EtcdCall& call, Deadline deadline);
  EtcdResult<std::string> next_line(Deadline deadline);

  // False if the server announced that it closes, or an answer was left unread.
  bool can_go_on() const;

 private:
  struct State;
  explicit EtcdConnection(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// True if the member speaks TLS but `options` does not, or the reverse: for the error message.
bool etcd_speaks_the_other(const EtcdOptions& options, const EtcdMember& member, int cancel,
                           Deadline deadline);

}  // namespace muster

// Identifies what answers at the host's address if it is not a muster host, and decides when that
// is certain enough to stop trying. A service mesh or a forwarder that accepts for a host which is
// not up yet looks like a stranger too, so one odd answer proves nothing: a stranger must show its
// own protocol several times in a row (a TCPStore server's answer to a ping twice, a server's first
// bytes three times). Silence and plain closing are only reported. Pure.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/membership/member.h"

namespace muster {

class StrangerWatch {
 public:
  // `endpoint` is for people: "node0:29400".
  explicit StrangerWatch(std::string endpoint) : endpoint_(std::move(endpoint)) {}

  void on_host() { last_ = {}, seen_ = 0; }
  // The peer accepted, but sent nothing until the deadline.
  member::ConnectionFailed on_silence();
  // The peer closed the connection without sending anything.
  member::ConnectionFailed on_hangup();
  // The peer sent us nothing, but answers a TCPStore client.
  member::ConnectionFailed on_store();
  // The peer sent something that is not our protocol.
  member::ConnectionFailed on_bytes(std::string_view bytes);

 private:
  member::ConnectionFailed certain(std::string what, int needed);

  std::string endpoint_;
  std::string last_;
  int seen_ = 0;
};

// "an SSH server (SSH-2.0-OpenSSH_9.2)", from its first bytes. One line, printable, bounded.
std::string describe_server(std::string_view bytes);

}  // namespace muster

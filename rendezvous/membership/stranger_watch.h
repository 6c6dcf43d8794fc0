// Identifies what answers at the host's address if it is not a muster host, and decides when that
// is certain enough to stop trying. A service mesh or a forwarder that accepts for a host which is
// not up yet looks the same, so one odd answer proves nothing: another server must show its own
// protocol several times in a row (a TCPStore's answer to a ping twice, first bytes three times).
// Silence and plain closing are only reported. Pure.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/membership/member.h"

namespace muster {

class StrangerWatch {
 public:
  // `endpoint` is for messages: "node0:29400".
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

// Names a server by its first bytes: "an SSH server (SSH-2.0-OpenSSH_9.2)". Printable, bounded.
std::string describe_server(std::string_view bytes);

}  // namespace muster

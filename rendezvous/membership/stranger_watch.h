// What it is that answers at the host's address when it is no muster host, and when that is certain
// enough to stop trying. A service mesh or a forwarder that accepts for a host which is not up yet
// looks like a stranger too, so one odd answer proves nothing: what a stranger is must be seen
// twice in a row by its own protocol (a TCPStore server's answer to a ping, the first bytes of a
// server that speaks first), while silence and plain hanging up are only ever named. Pure.
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
  // It accepted, said nothing until the deadline.
  member::ConnectionFailed on_silence();
  // It hung up without a word.
  member::ConnectionFailed on_hangup();
  // It said nothing to us, and answers a TCPStore client.
  member::ConnectionFailed on_store();
  // It said something that is not ours.
  member::ConnectionFailed on_bytes(std::string_view bytes);

 private:
  member::ConnectionFailed certain(std::string what, int needed);

  std::string endpoint_;
  std::string last_;
  int seen_ = 0;
};

// "an SSH server (SSH-2.0-OpenSSH_9.2)", by the first bytes it sends. One line, printable, bounded.
std::string describe_server(std::string_view bytes);

}  // namespace muster

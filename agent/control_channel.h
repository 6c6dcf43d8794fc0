// Messages between front and agent: one fixed-size datagram each over a SOCK_SEQPACKET pair, so
// that no message is ever split, and either end sees end-of-file when the other dies.
//
//   front -> agent   stop(signal)      first TERM, INT, QUIT or HUP: stop the job, with grace
//                    repeat            the engine repeated it: the grace starts over
//                    kill(signal)      second one: no grace; the first one's number
//                    forward(signal)   USR1 and the like: once to each worker
//                    suspend, resume   terminal job control
//                    window_size       the terminal's size has changed
//   agent -> front   suspended         SIGSTOP was sent to every worker: the front may stop itself
//                    exiting(code)     the last one: a thread stuck on a hanging disk may keep
//                                      the agent's process from ending
#pragma once

#include <cstdint>

#include <sys/socket.h>

#include "agent/process/signal_witness.h"

namespace muster {

enum class ControlKind : uint32_t {
  stop,
  repeat,
  kill,
  forward,
  suspend,
  resume,
  window_size,
  suspended,
  exiting
};

struct ControlMessage {
  ControlKind kind = ControlKind::stop;
  int32_t signal = 0;  // Or the exit code.
  Sender sender = Sender::process;
};

// Sends without blocking. False if the other end is gone or its queue is full.
inline bool send_control(int fd, ControlMessage message) {
  return ::send(fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof message);
}

enum class ControlRead { message, nothing, closed };

// Receives without blocking.
inline ControlRead receive_control(int fd, ControlMessage& message) {
  const ssize_t n = ::recv(fd, &message, sizeof message, MSG_DONTWAIT);
  if (n == static_cast<ssize_t>(sizeof message)) return ControlRead::message;
  return n == 0 ? ControlRead::closed : ControlRead::nothing;
}

}  // namespace muster

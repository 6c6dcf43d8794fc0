#include "rendezvous/membership/stranger_watch.h"

#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

// The start of its first line, with dots for unprintable bytes.
std::string printable_line(std::string_view bytes) {
  return printable(bytes.substr(0, bytes.find_first_of("\r\n")), 40, '.');
}

}  // namespace

std::string describe_server(std::string_view bytes) {
  if (bytes.starts_with("HTTP/"))
    return fmt::format("a web server or proxy ({})", printable_line(bytes));
  if (bytes.starts_with("SSH-")) return fmt::format("an SSH server ({})", printable_line(bytes));
  if (bytes.size() >= 2 && (bytes[0] == 0x15 || bytes[0] == 0x16) && bytes[1] == 0x03)
    return "a TLS server";
  if (bytes.starts_with("220 ") || bytes.starts_with("220-"))
    return fmt::format("a mail or FTP server ({})", printable_line(bytes));
  if (bytes.starts_with("-ERR")) return fmt::format("a Redis server ({})", printable_line(bytes));
  return fmt::format("an unknown server (it says \"{}\")", printable_line(bytes));
}

member::ConnectionFailed StrangerWatch::on_silence() {
  on_host();
  return {{ExitCode::rendezvous, fmt::format("{} accepts connections but sends nothing: its host "
                                             "is stopped or very busy, or it is not a muster host",
                                             endpoint_)}};
}

member::ConnectionFailed StrangerWatch::on_store() {
  return certain("a PyTorch TCPStore server (of torchrun or of a training script)", 2);
}

member::ConnectionFailed StrangerWatch::on_hangup() {
  on_host();
  return {
      {ExitCode::rendezvous, fmt::format("{} accepts connections and closes them: it is a "
                                         "forwarder whose host is not up yet, or not a muster host",
                                         endpoint_)}};
}

member::ConnectionFailed StrangerWatch::on_bytes(std::string_view bytes) {
  return certain(describe_server(bytes), 3);
}

member::ConnectionFailed StrangerWatch::certain(std::string what, int needed) {
  seen_ = what == last_ ? seen_ + 1 : 1;
  last_ = std::move(what);
  const std::string message = fmt::format(
      "at {} answers {}, not a muster host: start all nodes with muster, or use another port",
      endpoint_, last_);
  return {{ExitCode::rendezvous, message}, false, seen_ >= needed};
}

}  // namespace muster

// One console of muster's (stdout, stderr, or both where they are the same file): its descriptor
// and the mux that keeps its lines whole. Output thread only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/output/line_mux.h"
#include "agent/output/sink.h"

namespace muster {

class Console {
 public:
  Console(int fd, std::string name);

  int open() { return mux_.open(); }
  // Like the mux's; each writes what is due and returns a message if that failed for the first
  // time.
  std::optional<std::string> feed(int stream, std::string_view bytes, Instant now);
  std::optional<std::string> close(int stream, Instant now);
  std::optional<std::string> tick(Instant now);

  Instant next_deadline() const { return gone() ? kNever : mux_.next_deadline(); }
  bool wants(int stream) const { return gone() || mux_.wants(stream); }
  int owner() const { return mux_.owner(); }
  bool gone() const { return sink_.reader_gone(); }
  bool is_terminal() const { return terminal_; }
  int fd() const { return sink_.fd(); }
  const Sink& sink() const { return sink_; }

 private:
  std::optional<std::string> flush();

  Sink sink_;
  LineMux mux_;
  LineMux::Pieces pieces_;
  bool terminal_;
};

// True if both descriptors lead to the same file, pipe or terminal.
bool same_file(int a, int b);

}  // namespace muster

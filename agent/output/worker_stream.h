// One stream of one worker, from our end of its pipe or terminal to its log file, the console, the
// filtered copy and the tail that the verdict quotes. Output thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/console.h"
#include "agent/output/line_filter.h"
#include "agent/output/prefix.h"
#include "agent/output/sink.h"
#include "agent/output/stream_plan.h"
#include "agent/output/tail_buffer.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

// What an operation has to tell the user, for the console of muster's own messages.
struct Notices {
  std::vector<std::string> console;
  std::vector<std::string> files;
  void add_console(std::optional<std::string> message) {
    if (message) console.push_back(std::move(*message));
  }
  void add_file(std::optional<std::string> message) {
    if (message) files.push_back(std::move(*message));
  }
};

struct StreamParts {
  StreamPlan plan;
  bool is_err = false;
  UniqueFd read_end;           // Non-blocking.
  Console* console = nullptr;  // Outlives the stream; null if the plan has no console.
  std::unique_ptr<Sink> file;
  std::shared_ptr<Sink> filtered;  // One per attempt and kind of stream.
  std::vector<std::string> needles;
  std::string prefix;  // For ConsolePrefix::tee.
  LogPrefix log_prefix;
  std::shared_ptr<TailBuffer> both;  // What the worker printed last, on either stream.
};

class WorkerStream {
 public:
  explicit WorkerStream(StreamParts parts);

  void take(std::string_view bytes, Instant now, Notices& notices);
  // No more bytes: its last partial line is due. REQUIRES: once.
  void end(Instant now, Notices& notices);

  // False while the console cannot take more of it.
  bool wants() const { return console() == nullptr || console()->wants(mux_stream_); }
  // The console's reader is gone and nobody else wants the bytes: the worker gets to know by
  // SIGPIPE, as if it were connected to the console itself.
  bool useless() const { return console() != nullptr && console()->gone() && !parts_.file; }
  bool owns_console() const { return console() != nullptr && console()->owner() == mux_stream_; }

  int fd() const { return parts_.read_end.get(); }
  bool is_terminal() const { return parts_.plan.terminal; }
  Console* console() const { return parts_.console; }
  bool ended() const { return ended_; }
  uint64_t file_dropped() const { return parts_.file ? parts_.file->dropped() : 0; }
  std::string tail() const { return tail_.text(); }

 private:
  std::string current_prefix() const;

  StreamParts parts_;
  int mux_stream_ = -1;
  LinePrefixer prefixer_;
  LineFilter filter_;
  TailBuffer tail_;
  std::string scratch_;
  bool ended_ = false;
};

}  // namespace muster

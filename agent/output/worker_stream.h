// Carries one stream of one worker from our end of its pipe or terminal to its log file, the
// console, the filtered copy and the tail that the verdict quotes. Output thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "agent/output/arrival_times.h"
#include "agent/output/console.h"
#include "agent/output/prefix.h"
#include "agent/output/sink.h"
#include "agent/output/tail_buffer.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

// Counts what a worker had printed on one stream when muster began to stop it, which may cause
// later output. The output thread may be far behind its pipes then, so the control thread, which
// must not wait for it, also counts the bytes still in the pipe. The lock is held for one read(2)
// of a non-blocking descriptor or one ioctl(2).
class ReadMeter {
 public:
  explicit ReadMeter(UniqueFd fd) : fd_(std::move(fd)) {}

  // Output thread. Returns the bytes read; 0 at the end (EIO on a terminal); -1: none yet.
  ssize_t read(char* buffer, size_t size);
  void close();
  int fd() const { return fd_.get(); }

  // Any thread. Everything printed until now precedes the stop. Only the first call has an effect.
  void mark_stop();
  // Bytes printed before mark_stop(); all bytes read if it was not called.
  uint64_t before_stop() const;

 private:
  mutable std::mutex mutex_;
  UniqueFd fd_;
  uint64_t total_ = 0;
  std::optional<uint64_t> mark_;
};

// An operation's messages for the user, to be shown as muster's own.
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
  bool is_err = false;
  bool terminal = false;
  std::shared_ptr<ReadMeter> meter;  // Holds our end, which is non-blocking.
  Console* console = nullptr;        // Outlives the stream; null if the plan has no console.
  std::unique_ptr<Sink> file;
  std::shared_ptr<Sink> filtered;  // One per attempt and per kind of stream.
  std::vector<std::string> needles;
  std::string prefix;                // Precedes each line on the console.
  bool timed_prefix = false;         // True if `prefix` needs with_time().
  std::shared_ptr<TailBuffer> both;  // The last output of the worker, on either stream.
  // File for the end of the stream if the attempt fails (empty: none), and how much of it.
  std::string keep_path;
  size_t keep_bytes = 0;
};

class WorkerStream {
 public:
  explicit WorkerStream(StreamParts parts);

  void take(std::string_view bytes, Instant now, Notices& notices);
  // Ends the stream: its last partial line is due. REQUIRES: called once.
  void end(Instant now, Notices& notices);

  // False while the console has no room.
  bool wants() const { return console() == nullptr || console()->wants(mux_stream_); }
  // True if the console's reader is gone and no file wants the bytes. The worker then gets SIGPIPE,
  // as if it were connected to the console itself.
  bool useless() const { return console() != nullptr && console()->gone() && !parts_.file; }
  void lose_reader() { has_lost_reader_ = true; }
  // True if muster closed the worker's pipe because it was useless.
  bool has_lost_reader() const { return has_lost_reader_; }
  // See ReadMeter::read.
  ssize_t read(char* buffer, size_t size) { return parts_.meter->read(buffer, size); }
  bool owns_console() const { return console() != nullptr && console()->owner() == mux_stream_; }

  int fd() const { return parts_.meter->fd(); }
  const std::shared_ptr<ReadMeter>& meter() const { return parts_.meter; }
  bool is_terminal() const { return parts_.terminal; }
  Console* console() const { return parts_.console; }
  uint64_t file_dropped() const { return parts_.file ? parts_.file->dropped() : 0; }
  // Filled for a stderr, and for a stream whose last lines are kept; the times for a stderr only.
  const TailBuffer& tail() const { return tail_; }
  const ArrivalTimes& tail_times() const { return times_; }
  // Writes the last lines of a stream without a log file to keep_path. Returns the path, or empty
  // if there was nothing to write or the write failed.
  std::string keep_tail(Notices& notices) const;
  uint64_t before_stop() const { return parts_.meter->before_stop(); }
  std::optional<Instant> last_output() const { return last_output_; }

 private:
  const std::string& current_prefix();

  StreamParts parts_;
  int mux_stream_ = -1;
  LinePrefixer prefixer_;
  LineFilter filter_;
  TailBuffer tail_;
  ArrivalTimes times_;
  std::optional<Instant> last_output_;
  bool has_lost_reader_ = false;
  std::string scratch_;
  std::string prefix_now_;
};

}  // namespace muster

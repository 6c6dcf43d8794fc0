// One console of muster's (stdout, stderr, or both where they are the same file): its descriptor
// and the mux that keeps its lines whole. Output thread only, but for the writing to what can get
// stuck, a pipe, a socket or a terminal: that has a thread of its own, so that one console that
// takes nothing does not stop the other one, nor the end of an attempt.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "agent/output/line_mux.h"
#include "agent/output/sink.h"

namespace muster {

// Writes to one sink on a thread of its own, in order, with blocking calls. What waits is bounded
// by its user, who asks for room before reading more of what is to be written.
class SinkWriter {
 public:
  // Over this no room is left; as much again may be in the writer's hands.
  static constexpr size_t kWaitingMax = size_t{1} << 20;
  // The rests of several attempts may come while nothing moves; beyond this, put waits.
  static constexpr size_t kRestsMax = size_t{64} << 20;

  // `wake` is called on the writer's thread when there is room again for somebody who found none,
  // and when there is news (a message, or a reader that is gone).
  SinkWriter(Sink& sink, std::function<void()> wake) : sink_(sink), wake_(std::move(wake)) {}
  ~SinkWriter() { finish(); }
  SinkWriter(const SinkWriter&) = delete;
  SinkWriter& operator=(const SinkWriter&) = delete;

  // False if there can be no thread; the caller writes by itself then. The thread takes over the
  // caller's signal mask.
  bool start();
  void put(const LineMux::Pieces& pieces);
  bool has_room();
  bool gone();
  std::optional<std::string> take_message();
  // Waits until all is written; the sink may be looked at until the next put.
  void flush();
  void finish();  // Also ends the thread.

 private:
  void run();
  void write_waiting(std::unique_lock<std::mutex>& lock, std::string& bytes);

  Sink& sink_;
  std::function<void()> wake_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;  // For the writer: there is work. For its user: it was done.
  // All below are guarded by mutex_.
  std::string waiting_;
  std::optional<std::string> message_;
  bool writing_ = false;
  bool room_wanted_ = false;
  bool gone_ = false;
  bool stopping_ = false;
};

class Console {
 public:
  Console(int fd, std::string name, std::function<void()> wake);

  int open() { return mux_.open(); }
  // Like the mux's; each writes what is due, or has it written, and returns a message if that
  // failed for the first time.
  std::optional<std::string> feed(int stream, std::string_view bytes, Instant now);
  std::optional<std::string> close(int stream, Instant now);
  std::optional<std::string> tick(Instant now);

  // A message about what was written in the background.
  std::optional<std::string> news() { return writer_ ? writer_->take_message() : std::nullopt; }
  // A stream that was not wanted for lack of room must not look quiet, so the mux's clock stands
  // still. Call this before asking again for every stream that is not read.
  void release_clock() { clock_held_ = false; }

  Instant next_deadline() const { return gone() || clock_held_ ? kNever : mux_.next_deadline(); }
  bool wants(int stream);
  int owner() const { return mux_.owner(); }
  bool gone() const { return writer_ ? writer_->gone() : sink_->reader_gone(); }
  bool is_terminal() const { return terminal_; }
  int fd() const { return sink_->fd(); }

  // These wait until all is written.
  void wait_written();
  std::optional<std::string> dropped_line();
  void finish();  // Last call.

 private:
  std::optional<std::string> flush();

  std::unique_ptr<Sink> sink_;
  std::function<void()> wake_;
  std::unique_ptr<SinkWriter> writer_;  // Null for a file, and until something is to be written.
  LineMux mux_;
  LineMux::Pieces pieces_;
  bool terminal_;
  bool direct_;
  bool clock_held_ = false;
};

// True if both descriptors lead to the same file, pipe or terminal.
bool same_file(int a, int b);

}  // namespace muster

// One of muster's consoles (stdout, stderr, or both if they are the same file): its descriptor and
// the mux that keeps its lines whole. Output thread only, except that writes to a pipe, socket or
// terminal, which can block, have their own thread: a stuck console must not stop the other or the
// end of an attempt.
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

// Writes to one sink on its own thread, in order, with blocking calls. The caller bounds the
// backlog: it checks has_room() before it reads more data.
class SinkWriter {
 public:
  // has_room() is false beyond this. The writer may hold as much again.
  static constexpr size_t kWaitingMax = size_t{1} << 20;
  // put() blocks beyond this: drain() passes on the rest of an attempt even if there is no room,
  // and several attempts may end while the console is stuck.
  static constexpr size_t kRestsMax = size_t{64} << 20;

  // Calls `wake` on the writer's thread when there is room again after has_room() returned false,
  // and when take_message() or gone() changes.
  SinkWriter(Sink& sink, std::function<void()> wake) : sink_(sink), wake_(std::move(wake)) {}
  ~SinkWriter() { finish(); }
  SinkWriter(SinkWriter&&) = delete;

  // False if no thread could be started: the caller must write itself. The thread gets no signals.
  bool start();
  void put(const LineMux::Pieces& pieces);
  bool has_room();
  bool gone();
  std::optional<std::string> take_message();
  // Waits until everything is written; the sink may then be inspected until the next put().
  void flush();
  void finish();  // Writes everything, then ends the thread.

 private:
  void run();
  void write_waiting(std::unique_lock<std::mutex>& lock, std::string& bytes);

  Sink& sink_;
  std::function<void()> wake_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;  // Signals work to the writer, and its end to the caller.
  // mutex_ guards the rest.
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
  // See LineMux. Each writes or queues what is due; returns a message on the first failed write.
  std::optional<std::string> feed(int stream, std::string_view bytes, Instant now);
  std::optional<std::string> close(int stream, Instant now);
  std::optional<std::string> tick(Instant now);

  // A message about a background write.
  std::optional<std::string> news() { return writer_ ? writer_->take_message() : std::nullopt; }
  // A stream that is not read for lack of room must not look quiet, so wants() stops the mux's
  // deadlines while it answers false. Call this before asking every paused stream again.
  void release_clock() { clock_held_ = false; }

  Instant next_deadline() const { return gone() || clock_held_ ? kNever : mux_.next_deadline(); }
  bool wants(int stream);
  int owner() const { return mux_.owner(); }
  bool gone() const { return writer_ ? writer_->gone() : sink_->reader_gone(); }
  bool is_terminal() const { return terminal_; }
  int fd() const { return sink_->fd(); }

  // These three wait until everything is written.
  void wait_written() {
    if (writer_) writer_->flush();
  }
  std::optional<std::string> dropped_line();
  void finish();  // Last call.

 private:
  std::optional<std::string> flush();

  std::unique_ptr<Sink> sink_;
  std::function<void()> wake_;
  std::unique_ptr<SinkWriter> writer_;  // Null for a file, and until the first write.
  LineMux mux_;
  LineMux::Pieces pieces_;
  bool terminal_;
  bool direct_;
  bool clock_held_ = false;
};

// True if both descriptors refer to the same file, pipe or terminal.
bool same_file(int a, int b);

}  // namespace muster

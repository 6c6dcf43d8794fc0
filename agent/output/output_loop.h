// The body of the output thread: an epoll loop over the streams of one attempt, the consoles and
// the request queue. Class Output is its only user. Everything but requests(), wait_ended() and
// mark_stop() runs on the output thread.
//
// It sleeps until bytes or requests arrive, with a timeout only while a partial line is pending or
// a console is gone. Writing a file blocks, and nothing is read meanwhile. It does not wait for a
// full console but stops reading the streams shown there: that is the back-pressure.
#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/epoll.h>

#include "agent/output/attempt_streams.h"
#include "agent/output/console.h"
#include "agent/output/output.h"
#include "agent/output/request_queue.h"

namespace muster {

class OutputLoop {
 public:
  static Result<std::shared_ptr<OutputLoop>> create(OutputOptions options);
  OutputLoop(OutputOptions options, UniqueFd epoll, UniqueFd event);

  RequestQueue& requests() { return requests_; }
  bool wait_ended(Duration at_most) {
    return ended_.wait_for(at_most) == std::future_status::ready;
  }

  void mark_stop();  // See ReadMeter.

  void run();  // Returns after stop().
  void stop() { stopping_ = true; }

  void open_run(const Output::RunDone& done);
  void open_attempt(const AttemptPlan& plan, const Output::AttemptDone& done);
  void drain(bool keep, const Output::DrainDone& done);
  void read_to_the_end() { reads_to_the_end_ = true; }
  void mark_files();
  std::vector<WorkerTail> tails() const;
  void say(std::string text);
  void append(const std::string& name, const std::string& text);
  void write_file(const std::string& name, const std::string& content);
  void resize();
  void remove_temporary(bool succeeded);
  void finish(const Output::Done& done);

 private:
  Console& err_console() { return consoles_.back(); }
  Instant next_deadline() const;
  void handle_events(size_t count);
  void tick(Instant seen);
  void settle();  // Handles what a batch of events may have changed.
  void say_notices();
  void watch(uint64_t token, int fd);
  void read_once(uint64_t token, Instant now);
  void read_rest(WorkerStream& stream);
  void end_stream(uint64_t token, WorkerStream& stream);
  void resume_paused();
  bool has_useless() const;
  void end_useless();
  WorkerPrinted printed_by(const WorkerEnds& worker) const;
  void keep_tails(DrainReport& report);
  void remove_kept(size_t attempts_left);
  Result<std::string> attempt_folder(const AttemptPlan& plan);
  std::string path_of(const std::string& name) const;
  void note_file(const std::string& name, std::optional<std::string> failure);
  void say_dropped_by_files();

  OutputOptions options_;
  UniqueFd epoll_;
  RequestQueue requests_;
  std::vector<Console> consoles_;  // stdout's and stderr's; one if they are the same file.
  int own_stream_;                 // muster's own messages, on the last console.
  RunFolders folders_;
  std::vector<WorkerEnds> workers_;            // The open attempt's.
  std::map<uint64_t, WorkerStream*> streams_;  // Their streams that have not ended.
  std::mutex meters_mutex_;
  std::vector<std::shared_ptr<ReadMeter>> err_meters_;  // stderr's; guarded by meters_mutex_.
  std::set<uint64_t> paused_;  // Streams not in epoll until their console has room.
  uint64_t next_token_ = 1;    // 0 is the request queue.
  std::vector<epoll_event> events_;
  std::optional<Instant> stood_still_since_;  // Set by SIGSTOP: nothing was read since.
  std::unique_ptr<char[]> buffer_;
  Notices notices_;
  bool file_failure_said_ = false;
  std::deque<std::vector<std::string>> kept_;  // Paths of kept tails, by attempt.
  uint64_t refused_ = 0;                       // Own messages dropped for lack of room.
  std::set<std::string> failed_files_;
  bool attempt_open_ = false;
  bool reads_to_the_end_ = false;      // Set until the next attempt.
  std::optional<Instant> gone_since_;  // Time at which a console was first seen to be gone.
  bool stopping_ = false;
  std::promise<void> end_;
  std::future<void> ended_;
};

}  // namespace muster

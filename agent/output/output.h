// Everything that the workers print, on its way to the console and to log files, and muster's own
// messages. One thread does all of it: it reads the workers' pipes and terminals and writes files
// with plain blocking calls. Only a console that can block, a pipe or a terminal, is written by a
// second thread, also with blocking calls. The pipes are the bounded queues: a slow disk or a
// stopped terminal holds back the workers that print there, and a stopped terminal no others.
//
// In these calls, the caller's thread never opens, creates or writes anything, and never waits:
// results arrive in callbacks, which run on the output thread and must only post them to the right
// thread and return. Requests are performed in the order in which they were made.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/launch_spec.h"
#include "agent/output/arrival_times.h"
#include "agent/wall_time.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

class OutputLoop;

struct OutputOptions {
  LogSpec log;
  std::string run_id = "none";      // The rendezvous id: first part of the run folder's name.
  std::string role = "default";     // For prefixes.
  int first_local_rank = 0;         // Of this agent's first worker.
  std::string hostname;             // Short name of this host, for prefixes.
  std::string temp_dir = "/tmp";    // $TMPDIR: for log folders if none is given.
  int console_out = STDOUT_FILENO;  // Borrowed. Flags and modes of both are never changed.
  int console_err = STDERR_FILENO;
};

struct RunFolders {
  std::string log_dir;     // The user's, made absolute; or the temporary folder.
  std::string run_dir;     // <log_dir>/<run id>_<8 characters>, mode 0700.
  bool temporary = false;  // No logs were asked for: only error files go here.
  // All empty with --log-dir /dev/null.
  friend bool operator==(const RunFolders&, const RunFolders&) = default;
};

struct AttemptPlan {
  int restart_count = 0;   // Names the folder. The same count twice reuses it and deletes nothing.
  std::vector<int> ranks;  // Global rank of each local rank; its size is the number of workers.
};

// What one worker is started with. The caller dups `out` and `err` to 1 and 2 in the child (they
// are close-on-exec) and closes them right after the start; otherwise end of file never comes.
struct WorkerStreams {
  UniqueFd out;
  UniqueFd err;
  std::string out_log;     // Path of stdout.log; empty if there is none.
  std::string err_log;     // Path of stderr.log; empty if there is none.
  std::string error_file;  // The value of TORCHELASTIC_ERROR_FILE; empty: there are no files.
};

// What one worker of an attempt has printed, once all of it has been read.
struct WorkerPrinted {
  std::string err_tail;                 // The last 64 KiB of its stderr, any bytes.
  std::string out_tail;                 // As much of stdout, if stderr is empty and no file has it.
  uint64_t err_total = 0;               // All bytes of its stderr.
  uint64_t err_total_before_stop = 0;   // Those up to mark_stop(); all, if that was not called.
  ArrivalTimes err_times;               // Empty if the worker writes to its log file itself.
  std::optional<WallTime> err_written;  // Then: that file's last change, up to any mark_stop().
  std::optional<Instant> last_output;   // On either stream.
  bool lost_console = false;            // See WorkerStream::useless().
  std::string kept_out;                 // Files with the last lines of streams without a log file;
  std::string kept_err;                 // empty: not kept, or there were none.

  // How much of err_tail came before the stop.
  size_t tail_before_stop() const {
    const uint64_t after = err_total - std::min(err_total, err_total_before_stop);
    return err_tail.size() - std::min<uint64_t>(err_tail.size(), after);
  }
  // When the byte at this offset of err_tail arrived.
  std::optional<Instant> came_at(size_t offset) const {
    return err_times.at(err_total - err_tail.size() + offset);
  }
};

struct DrainReport {
  std::vector<WorkerPrinted> workers;  // By local rank.
};

// What a worker of the open attempt printed last, both streams in order of arrival, or the end of
// the log files that it writes itself.
struct WorkerTail {
  std::string text;
  uint64_t position = 0;  // Bytes that it had printed by the end of the text.
};

class Output {
 public:
  using RunDone = std::function<void(Result<RunFolders>)>;
  using AttemptDone = std::function<void(Result<std::vector<WorkerStreams>>)>;
  using DrainDone = std::function<void(DrainReport)>;
  using TailsDone = std::function<void(std::vector<WorkerTail>)>;  // By local rank.
  using Done = std::function<void()>;

  // Starts the thread. Fails if the descriptor or thread limit is reached.
  static Result<std::unique_ptr<Output>> start(OutputOptions options);

  // Waits for queued requests, but no longer than 2 s, or 0.2 s after abandon(). A write that is
  // still stuck then is left to the end of the process.
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Creates the log folder, with parents, and the run folder. Fails with ExitCode::environment if
  // that is impossible. REQUIRES: called once, before the first open_attempt.
  void open_run(RunDone done);

  // Creates the attempt's folders, with any parents that were removed, and a pipe, terminal or file
  // for every stream of every worker. Fails with ExitCode::environment (unwritable folder,
  // descriptor limit) and then opens nothing. If no files were asked for, it continues without a
  // folder after a message.
  // REQUIRES: the previous attempt was drained.
  void open_attempt(AttemptPlan plan, AttemptDone done);

  // What reads the console may have been ended by what ends the job, as `| tee log` is by Ctrl-C.
  // The workers may still print: until the attempt is drained, their streams are read although the
  // console is gone. Never waits.
  void read_to_the_end();

  // What the workers print from now on may be caused by the stop that follows. Never waits.
  void mark_stop();

  // Ends the attempt: reads what the streams hold now, shows every partial line, closes the read
  // ends and the log files. Call it once no process of the attempt is left. A process that is left
  // anyway cannot delay it, nor can a stuck console: its output waits in memory. With `keep`, the
  // last 10,000 lines of every stream without a log file, 2 MiB at most (less with more than 16
  // workers), are written to files in the attempt's folder.
  void drain(bool keep, DrainDone done);

  // What the workers printed last; empty if no attempt is open.
  void tails(TailsDone done);

  // Whole lines of muster's own on stderr; a missing last newline is added. Over 1 MiB of backlog
  // they are dropped and counted, and the count is printed when there is room again.
  void say(std::string text);

  // Appends to a file, or atomically replaces it: a name inside the run folder, or an absolute
  // path. Names are skipped without --log-dir. Failures are reported once per file. append shares
  // say's limit.
  void append(std::string name, std::string text);
  void write_file(std::string name, std::string content);

  // Any other work that may have to wait for a disk, in order with the other requests. It must post
  // its results itself.
  void perform(std::function<void()> work);

  // The window size of the user's terminal changed: copies it to the workers' terminals.
  void resize();

  // At the job's end: removes what drain() kept if it succeeded, and the temporary folder if that
  // contains no file.
  void remove_temporary(bool succeeded);

  // Last request: reports what was dropped.
  void finish(Done done);

  // The user wants to exit now: the destructor hardly waits, callbacks may or may not run, and
  // output that is stuck is lost.
  void abandon();

 private:
  explicit Output(std::shared_ptr<OutputLoop> loop);

  std::shared_ptr<OutputLoop> loop_;  // Shared with the thread, which may outlive this object.
  std::thread thread_;
  bool abandoned_ = false;
};

}  // namespace muster

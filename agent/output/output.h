// Carries everything that the workers print to the console and log files, and muster's own
// messages. One thread reads the workers' pipes and terminals and writes files, with blocking
// calls; only a console that can block (a pipe, a terminal) has a second thread. Pipes are the
// bounded queues: a slow disk holds back the workers, a stopped terminal those that print there.
//
// The caller's thread never opens, creates or writes anything, and never waits: requests are
// performed in order, and callbacks run on the output thread, where they must only post the
// results.
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
  std::string role = "default";     // Shown in prefixes.
  int first_local_rank = 0;         // This agent's first worker's.
  std::string hostname;             // Short name of this host, for prefixes.
  std::string temp_dir = "/tmp";    // $TMPDIR: place for log folders if none is given.
  int console_out = STDOUT_FILENO;  // Borrowed. Flags and modes of both are never changed.
  int console_err = STDERR_FILENO;
};

struct RunFolders {
  std::string log_dir;     // The user's, made absolute; or the temporary folder.
  std::string run_dir;     // <log_dir>/<run id>_<8 characters>, mode 0700.
  bool temporary = false;  // True if no logs were asked for: only error files go here.
  // All empty with --log-dir /dev/null.
  friend bool operator==(const RunFolders&, const RunFolders&) = default;
};

struct AttemptPlan {
  int restart_count = 0;   // Names the folder. The same count twice reuses it and deletes nothing.
  std::vector<int> ranks;  // Global rank of each local rank; its size is the number of workers.
};

// A new worker's descriptors and paths. The caller dups `out` and `err` (close-on-exec) to 1 and 2
// in the child and closes them right after the start; otherwise end of file never comes.
struct WorkerStreams {
  UniqueFd out;
  UniqueFd err;
  std::string out_log;     // Path of stdout.log; empty: none.
  std::string err_log;     // Path of stderr.log; empty: none.
  std::string error_file;  // The value of TORCHELASTIC_ERROR_FILE; empty: none.
};

// The output of one worker of an attempt, once all of it has been read.
struct WorkerPrinted {
  std::string err_tail;                 // The last 64 KiB of its stderr, any bytes.
  std::string out_tail;                 // The last 16 KiB of its stdout, if tails are kept.
  uint64_t err_total = 0;               // All bytes of its stderr.
  uint64_t err_total_before_stop = 0;   // Those before mark_stop(); all if it was not called.
  ArrivalTimes err_times;               // Empty if the worker writes to its log file itself.
  std::optional<WallTime> err_written;  // That file's last change, up to any mark_stop().
  std::optional<Instant> last_output;   // Time of the last bytes on either stream.
  bool lost_console = false;            // See WorkerStream::has_lost_reader().
  std::string kept_out;                 // Files with the last lines of streams without a log file;
  std::string kept_err;                 // empty: not kept, or there were none.

  // Bytes of err_tail that came before the stop.
  size_t tail_before_stop() const {
    const uint64_t after = err_total - std::min(err_total, err_total_before_stop);
    return err_tail.size() - std::min<uint64_t>(err_tail.size(), after);
  }
  // Returns when the byte at this offset of err_tail arrived.
  std::optional<Instant> came_at(size_t offset) const {
    return err_times.at(err_total - err_tail.size() + offset);
  }
};

struct DrainReport {
  std::vector<WorkerPrinted> workers;  // Indexed by local rank.
};

// A worker's last output: both streams in order of arrival, and ends of logs that it writes itself.
struct WorkerTail {
  std::string text;
  uint64_t position = 0;  // Bytes that it had printed by the end of the text.
};

class Output {
 public:
  using RunDone = std::function<void(Result<RunFolders>)>;
  using AttemptDone = std::function<void(Result<std::vector<WorkerStreams>>)>;
  using DrainDone = std::function<void(DrainReport)>;
  using TailsDone = std::function<void(std::vector<WorkerTail>)>;  // Indexed by local rank.
  using Done = std::function<void()>;

  // Starts the thread. Fails if the descriptor or thread limit is reached.
  static Result<std::unique_ptr<Output>> start(OutputOptions options);

  // Waits at most 2 s for queued requests (0.2 s after abandon()) and leaves a stuck write behind.
  ~Output();
  Output(Output&&) = delete;

  // Creates the log folder, with parents, and the run folder, or fails with ExitCode::environment.
  // REQUIRES: called once, before the first open_attempt.
  void open_run(RunDone done);

  // Creates the attempt's folders, with any parents that were removed, and a pipe, terminal or file
  // for every stream of every worker. Fails with ExitCode::environment (unwritable folder,
  // descriptor limit) and then opens nothing; if no files were asked for, an unwritable folder is
  // only reported. REQUIRES: the previous attempt was drained.
  void open_attempt(AttemptPlan plan, AttemptDone done);

  // Keeps reading the workers' streams until the attempt is drained, even if the console is gone:
  // what ends the job may have ended the console's reader, as Ctrl-C ends `| tee log`.
  void read_to_the_end();

  // Marks the start of the stop, which may cause what the workers print from now on. Never waits.
  void mark_stop();

  // Ends the attempt: reads what the streams hold now, shows every partial line, closes the read
  // ends and the log files. Call it once no process of the attempt is left; a leftover process
  // cannot delay it, nor can a stuck console, whose output waits in memory. With `keep`, writes the
  // last 10,000 lines of every stream without a log file, 2 MiB at most (less with more than 16
  // workers), to files in the attempt's folder.
  void drain(bool keep, DrainDone done);

  // Returns what the workers printed last; empty if no attempt is open.
  void tails(TailsDone done);

  // Prints muster's own lines on stderr, with a last newline. Beyond 1 MiB of backlog they are
  // dropped, and their count is printed when there is room again.
  void say(std::string text);

  // Appends to a file, or atomically replaces it: a name inside the run folder (skipped without
  // --log-dir), or an absolute path. Reports failures once per file. append shares say's limit.
  void append(std::string name, std::string text);
  void write_file(std::string name, std::string content);

  // Runs other work that may have to wait for a disk. It must post its results itself.
  void perform(std::function<void()> work);

  // Copies the window size of the user's terminal to the workers' terminals.
  void resize();

  // Removes, at the job's end, what drain() kept if the job succeeded, and the temporary folder if
  // it contains no file.
  void remove_temporary(bool succeeded);

  // Last request: reports what was dropped.
  void finish(Done done);

  // Shortens the destructor's wait, for a user who wants to exit now: callbacks may not run, and
  // stuck output is lost.
  void abandon();

 private:
  explicit Output(std::shared_ptr<OutputLoop> loop);

  std::shared_ptr<OutputLoop> loop_;  // Shared with the thread, which may outlive this object.
  std::thread thread_;
  bool abandoned_ = false;
};

}  // namespace muster

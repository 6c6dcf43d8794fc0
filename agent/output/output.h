// Everything the workers print, on its way to the console and to log files, and everything muster
// itself says. One thread of its own does all of it: it reads the workers' pipes and terminals, and
// writes files with plain blocking calls. Only a console that can get stuck, a pipe or a terminal,
// is written by a further thread, likewise blocking. The pipes are the bounded queues, so a slow
// disk or a stopped terminal holds back the workers that print there; a stopped terminal holds back
// nobody else.
//
// The caller's thread never opens, creates or writes anything in these calls, and never waits:
// results come as callbacks, which run on the output thread; post them on to where they belong and
// return at once. Requests are performed in the order in which they were made.
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
  std::string hostname;             // Short name of this host, for prefixes.
  std::string temp_dir = "/tmp";    // $TMPDIR: where folders go when no log folder is given.
  int console_out = STDOUT_FILENO;  // Borrowed. Their flags and modes are never changed.
  int console_err = STDERR_FILENO;
};

struct RunFolders {
  std::string log_dir;     // As the user gave it, made absolute; or the temporary folder.
  std::string run_dir;     // <log_dir>/<run id>_<8 characters>, mode 0700.
  bool temporary = false;  // Nobody asked for logs: only error files go here.
  // All empty with --log-dir /dev/null.
  friend bool operator==(const RunFolders&, const RunFolders&) = default;
};

struct AttemptPlan {
  int restart_count = 0;   // Names the folder. The same count twice reuses it and wipes nothing.
  std::vector<int> ranks;  // Global rank of each local rank; its size is the number of workers.
};

// What one worker is started with. The caller dups `out` and `err` to 1 and 2 in the child (they
// are close-on-exec) and closes them at once after the start, else end of file never comes.
struct WorkerStreams {
  UniqueFd out;
  UniqueFd err;
  std::string out_log;  // Path of stdout.log; empty if there is none.
  std::string err_log;  // Path of stderr.log; empty if there is none.
  // Values for TORCHELASTIC_ERROR_FILE and MUSTER_FAILURE_FILE; empty if there are no files.
  std::string error_file;
  std::string failure_file;
};

// What one worker of an attempt has printed, when all of it is read.
struct WorkerPrinted {
  std::string err_tail;                // The last 64 KiB of its stderr, any bytes.
  uint64_t err_total = 0;              // Bytes that its stderr ever had,
  uint64_t err_total_before_stop = 0;  // and had at mark_stop(); all, where that was not called.
  ArrivalTimes err_times;  // Empty for a worker that writes its log itself: then this is the
  std::optional<WallTime> err_written;  // log's last change, before mark_stop() if that was called.
  std::optional<Instant> last_output;   // On either stream.
  std::string kept_out;  // Files with the last lines of streams that no log file has;
  std::string kept_err;  // empty: not kept, or there are none.

  // How much of err_tail came before the stop.
  size_t tail_before_stop() const {
    const uint64_t after = err_total - std::min(err_total, err_total_before_stop);
    return err_tail.size() - std::min<uint64_t>(err_tail.size(), after);
  }
  // When the byte at this offset of err_tail came.
  std::optional<Instant> came_at(size_t offset) const {
    return err_times.at(err_total - err_tail.size() + offset);
  }
};

struct DrainReport {
  std::vector<WorkerPrinted> workers;  // By local rank.
};

// What a worker of the attempt that is open has printed last, on both streams as they came, or what
// stands at the end of its own log files.
struct WorkerTail {
  std::string text;
  uint64_t position = 0;  // Bytes that it had printed up to the end of the text.
};

class Output {
 public:
  using RunDone = std::function<void(Result<RunFolders>)>;
  using AttemptDone = std::function<void(Result<std::vector<WorkerStreams>>)>;
  using DrainDone = std::function<void(DrainReport)>;
  using TailsDone = std::function<void(std::vector<WorkerTail>)>;  // By local rank.
  using Done = std::function<void()>;

  // Starts the thread. Fails when the descriptor or thread limit is reached.
  static Result<std::unique_ptr<Output>> start(OutputOptions options);

  // Waits for what is queued, but no longer than two seconds, or a fifth of one after abandon();
  // what is stuck then in a write is left to the end of the process.
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Creates the log folder, with parents, and the run folder. Fails with ExitCode::environment if
  // that is impossible. REQUIRES: once, before the first open_attempt.
  void open_run(RunDone done);

  // Creates the attempt's folders, with what somebody removed above them, and pipe, terminal or
  // file for every stream of every worker. Fails with ExitCode::environment (unwritable folder,
  // descriptor limit) and opens nothing then; if nobody asked for files, it goes on without a
  // folder after a message.
  // REQUIRES: the attempt before was drained.
  void open_attempt(AttemptPlan plan, AttemptDone done);

  // What the workers print from now on may be an effect of the stop that follows. Never waits.
  void mark_stop();

  // Ends the attempt: reads what the streams hold now, shows every partial line, closes the read
  // ends and the log files. Call it when no process of the attempt is left; one that is left anyway
  // cannot delay it, nor can a console that is stuck: what was read for it waits in memory.
  // `keep`: the last 10,000 lines of every stream without a log file, 2 MiB at most (less with more
  // than 16 workers), go to files in the attempt's folder.
  void drain(bool keep, DrainDone done);

  // What the workers printed last; nothing where no attempt is open.
  void tails(TailsDone done);

  // One or several whole lines of muster's own on stderr; a missing last newline is added. Over
  // 1 MiB of backlog they are dropped, counted, and the count is said when there is room again.
  void say(std::string text);

  // Adds to, or atomically replaces, a file: a name inside the run folder, or an absolute path.
  // Names are skipped where there is no --log-dir. Failures are said once per file. append shares
  // say's limit.
  void append(std::string name, std::string text);
  void write_file(std::string name, std::string content);

  // Anything else that may have to wait for a disk, in order with the rest. Its results are posted
  // by itself.
  void perform(std::function<void()> work);

  // The window size of the user's terminal changed: copies it to the workers' terminals.
  void resize();

  // Last request: says what was dropped, removes what drain() kept if the job has succeeded, and
  // the temporary folder if it holds no file.
  void finish(bool succeeded, Done done);

  // The user wants out now: the destructor hardly waits; callbacks may or may not come, and what is
  // stuck is lost.
  void abandon();

 private:
  explicit Output(std::shared_ptr<OutputLoop> loop);

  std::shared_ptr<OutputLoop> loop_;  // Shared with the thread, which may outlive this object.
  std::thread thread_;
  bool abandoned_ = false;
};

}  // namespace muster

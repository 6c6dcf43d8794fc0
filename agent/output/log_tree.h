// The folders of a run, laid out like torchrun's: <log dir>/<run id>_<8 characters>/attempt_<n>/
// <local rank>/. File system calls may block: output thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <sys/stat.h>

#include "agent/launch_spec.h"
#include "agent/output/output.h"
#include "agent/wall_time.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

// True if the user asked for a log folder or files: failing to create them is then an error.
bool asks_for_files(const LogSpec& log);

// Creates the log folder (with parents) and the run folder. All empty if no files are wanted.
Result<RunFolders> make_run_folders(const OutputOptions& options);

// Recreates folders that were removed during the run, for example by a cleaner of /tmp.
Result<void> restore_run_folders(const RunFolders& folders);

// Creates attempt_<restart_count> with a folder per worker, from local rank `first` on, if missing.
Result<std::string> make_attempt_folder(const std::string& run_dir, int restart_count, int workers,
                                        int first = 0);

// Opens or creates a file to append to: a restart with the same count adds to it. Fails on a FIFO
// without a reader; with one, writes block as on any file.
Result<UniqueFd> open_log(const std::string& path);

// Returns the reason of a failure; nullopt on success. Neither waits for the reader of a FIFO.
std::optional<std::string> append_to_file(const std::string& path, const std::string& text);
std::optional<std::string> replace_file(const std::string& path, const std::string& content);

// The last `bytes_max` bytes; empty if the file cannot be read.
std::string file_tail(const std::string& path, size_t bytes_max);

inline WallTime changed_at(const struct stat& file) {
  return WallTime(std::chrono::seconds(file.st_mtim.tv_sec) +
                  std::chrono::nanoseconds(file.st_mtim.tv_nsec));
}

struct FileState {
  uint64_t size = 0;
  std::optional<WallTime> changed;
};

// Empty if it is not a regular file.
FileState file_state(const std::string& path);

// Removes a temporary log folder that contains nothing but folders.
void remove_if_empty(const RunFolders& folders);

}  // namespace muster

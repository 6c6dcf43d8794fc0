// The folders of a run: <log dir>/<run id>_<8 characters>/attempt_<n>/<local rank>/, as torchrun
// lays them out. Plain file system calls, so output thread only.
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

inline constexpr const char* kNoLogDir = "/dev/null";

// True unless the user chose --log-dir /dev/null.
bool wants_files(const LogSpec& log);

// True if the user chose a folder or files to be written there, so that it is an error if they
// cannot be.
bool asks_for_files(const LogSpec& log);

// Creates log folder (with parents) and run folder. All empty if no files are wanted.
Result<RunFolders> make_run_folders(const OutputOptions& options);

// Creates again what somebody, such as a cleaner of /tmp, has removed of them during the run.
Result<void> restore_run_folders(const RunFolders& folders);

// Creates attempt_<restart_count> with a folder per worker, or keeps what is there of them.
Result<std::string> make_attempt_folder(const std::string& run_dir, int restart_count, int workers);

// For appending; created if missing. No truncation: a restart with the same count adds to it. A
// FIFO in its place fails if nobody reads it; else writes to it block, as to any file.
Result<UniqueFd> open_log(const std::string& path);

// Empty if all went well, else why not. They never wait for the reader of a FIFO.
std::optional<std::string> append_to_file(const std::string& path, const std::string& text);
std::optional<std::string> replace_file(const std::string& path, const std::string& content);

// The last `bytes_max` bytes, or nothing if it cannot be read.
std::string file_tail(const std::string& path, size_t bytes_max);

// Its mtime.
inline WallTime changed_at(const struct stat& file) {
  return WallTime(std::chrono::seconds(file.st_mtim.tv_sec) +
                  std::chrono::nanoseconds(file.st_mtim.tv_nsec));
}

struct FileState {
  uint64_t size = 0;
  std::optional<WallTime> changed;
};

// Empty if it is no file.
FileState file_state(const std::string& path);

// Removes a temporary log folder if there is no file in it, only folders.
void remove_if_empty(const RunFolders& folders);

}  // namespace muster

#include "agent/output/log_tree.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

#include "rendezvous/base/random.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kAskUmask = 0777;

std::string random_suffix() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  std::string name;
  for (const char byte : random_bytes(8))
    name.push_back(kLetters[static_cast<unsigned char>(byte) % kLetters.size()]);
  return name;
}

tl::unexpected<Error> log_folder_error(const std::string& path, int error) {
  const char* remedy =
      "choose a folder that you can write with --log-dir, or none: --log-dir /dev/null";
  if (error == ENOTDIR || error == EEXIST)
    remedy = "a file is in the way; choose another --log-dir";
  if (error == ENOSPC || error == EDQUOT)
    remedy = "free some space or choose another --log-dir, or none: --log-dir /dev/null";
  return fail(ExitCode::environment, fmt::format("cannot create log folder {}: {}; {}", path,
                                                 std::strerror(error), remedy));
}

// Makes <parent>/<prefix><8 characters>, mode 0700 whatever the umask.
Result<std::string> make_unique_folder(const std::string& parent, const std::string& prefix) {
  for (int attempt = 0; attempt < 100; attempt++) {
    const std::string path = parent + "/" + prefix + random_suffix();
    if (::mkdir(path.c_str(), 0700) == 0) return path;
    if (errno != EEXIST) return log_folder_error(path, errno);
  }
  return log_folder_error(parent + "/" + prefix, EEXIST);
}

Result<void> make_parents(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return log_folder_error(path.string(), error.value());
  return {};
}

// `own` refuses links and other users' folders: they may take the name in a world-writable folder.
Result<void> make_folder(const std::string& path, mode_t mode, bool own = false) {
  if (::mkdir(path.c_str(), mode) == 0) return {};
  const int error = errno;
  struct stat status{};
  const int links = own ? AT_SYMLINK_NOFOLLOW : 0;
  const bool found = error == EEXIST && ::fstatat(AT_FDCWD, path.c_str(), &status, links) == 0;
  if (!found || !S_ISDIR(status.st_mode)) return log_folder_error(path, error);
  if (own && status.st_uid != ::geteuid()) return log_folder_error(path, EPERM);
  return {};
}

std::string folder_prefix(std::string run_id) {
  std::replace(run_id.begin(), run_id.end(), '/', '_');
  return run_id + "_";
}

std::string log_failure(const char* what, const std::string& path, int error) {
  return fmt::format("cannot {} {}: {}", what, path, std::strerror(error));
}

// A worker can replace any file of the run by a FIFO. Opening one without a reader would wait for
// ever; with O_NONBLOCK it fails with ENXIO.
UniqueFd open_to_append(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  return UniqueFd(::open(path.c_str(), kFlags, 0666));
}

}  // namespace

bool asks_for_files(const LogSpec& log) {
  return log.dir || log.redirects != StreamsByRank{} || log.tee != StreamsByRank{} ||
         !log.duplicate_stdout_filters.empty() || !log.duplicate_stderr_filters.empty();
}

Result<RunFolders> make_run_folders(const OutputOptions& options) {
  const LogSpec& log = options.log;
  if (!log.wants_files()) {
    if (log.duplicate_stdout_filters.empty() && log.duplicate_stderr_filters.empty()) {
      return RunFolders{};
    }
    return fail(ExitCode::usage,
                "--duplicate-stdout-filters and --duplicate-stderr-filters write files, and "
                "--log-dir /dev/null allows none; give another --log-dir");
  }
  RunFolders folders;
  folders.temporary = !log.dir;
  if (folders.temporary) {
    auto made = make_unique_folder(options.temp_dir, "torchelastic_");
    if (!made) return tl::unexpected(made.error());
    folders.log_dir = *made;
  } else {
    std::error_code error;
    folders.log_dir = fs::absolute(*log.dir, error).string();
    if (auto made = make_parents(folders.log_dir); !made) return tl::unexpected(made.error());
  }
  auto made = make_unique_folder(folders.log_dir, folder_prefix(options.run_id));
  if (!made) return tl::unexpected(made.error());
  folders.run_dir = *made;
  return folders;
}

Result<void> restore_run_folders(const RunFolders& folders) {
  const bool own = folders.temporary;
  const fs::path log_dir = folders.log_dir;
  auto made = make_parents(own ? log_dir.parent_path() : log_dir);
  if (made && own) made = make_folder(folders.log_dir, 0700, own);
  return made ? make_folder(folders.run_dir, 0700, own) : made;
}

Result<std::string> make_attempt_folder(const std::string& run_dir, int restart_count, int workers,
                                        int first) {
  const std::string attempt = fmt::format("{}/attempt_{}", run_dir, restart_count);
  if (auto made = make_folder(attempt, kAskUmask); !made) return tl::unexpected(made.error());
  for (int worker = first; worker < first + workers; worker++) {
    const std::string path = fmt::format("{}/{}", attempt, worker);
    if (auto made = make_folder(path, kAskUmask); !made) return tl::unexpected(made.error());
  }
  return attempt;
}

Result<UniqueFd> open_log(const std::string& path) {
  UniqueFd fd = open_to_append(path);
  if (fd) {
    // Writers, workers among them, and slow readers of a FIFO need an ordinary blocking file.
    ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
    return fd;
  }
  const int error = errno;
  const char* remedy = "check the folder, or choose another --log-dir";
  if (is_out_of_descriptors(error)) remedy = "raise the descriptor limit (ulimit -n)";
  if (error == ENXIO) remedy = "it is a FIFO that no process reads; remove it";
  return fail(ExitCode::environment,
              fmt::format("{}; {}", log_failure("open log file", path, error), remedy));
}

std::optional<std::string> append_to_file(const std::string& path, const std::string& text) {
  const UniqueFd fd = open_to_append(path);
  if (!fd) return log_failure("open", path, errno);
  if (const int error = write_whole(fd.get(), text); error != 0)
    return log_failure("write", path, error);
  return std::nullopt;
}

std::optional<std::string> replace_file(const std::string& path, const std::string& content) {
  const std::string fresh = path + ".tmp";
  ::unlink(fresh.c_str());  // A killed run may have left it.
  const UniqueFd fd(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) return log_failure("open", fresh, errno);
  int error = write_whole(fd.get(), content);
  if (error == 0 && std::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return std::nullopt;
  ::unlink(fresh.c_str());
  return log_failure("write", path, error);
}

std::string file_tail(const std::string& path, size_t bytes_max) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
  const off_t start = std::max<off_t>(0, status.st_size - static_cast<off_t>(bytes_max));
  std::string tail(static_cast<size_t>(status.st_size - start), '\0');
  size_t have = 0;
  while (have < tail.size()) {
    const ssize_t n =
        ::pread(fd.get(), tail.data() + have, tail.size() - have, start + static_cast<off_t>(have));
    if (n <= 0) break;
    have += static_cast<size_t>(n);
  }
  tail.resize(have);
  return tail;
}

FileState file_state(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return {static_cast<uint64_t>(status.st_size), changed_at(status)};
}

void remove_if_empty(const RunFolders& folders) {
  if (!folders.temporary || folders.log_dir.empty()) return;
  std::vector<std::string> inner_last{folders.log_dir};
  std::error_code error;
  fs::recursive_directory_iterator it(folders.log_dir, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_symlink(ignored) || !it->is_directory(ignored)) return;
    inner_last.push_back(it->path().string());
  }
  for (auto path = inner_last.rbegin(); path != inner_last.rend(); ++path)
    ::rmdir(path->c_str());
}

}  // namespace muster

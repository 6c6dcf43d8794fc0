#include "worker_lib/training/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/random.h"

namespace muster::worker {
namespace {

constexpr size_t kFirstRead = size_t{256} << 10;
constexpr size_t kSuffixDigits = 16;
constexpr const char* kUnfinished = ".tmp-";

tl::unexpected<Failure> refused(const std::string& what, const std::string& path, int error) {
  const char* remedy = "";
  if (error == ENOSPC || error == EDQUOT) remedy = "; free some space";
  if (error == ENOENT) remedy = "; make its folder first";
  if (error == EACCES || error == EPERM || error == EROFS) {
    remedy = "; let this user write there, or name another path";
  }
  return failed(ErrorCode::system,
                fmt::format("cannot {} {}: {}{}", what, path, std::strerror(error), remedy));
}

std::string folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

bool is_unfinished_of(const std::string& wanted, const std::string& name) {
  const std::string start = wanted + kUnfinished;
  return name.size() == start.size() + kSuffixDigits && name.starts_with(start) &&
         name.find_first_not_of("0123456789abcdef", start.size()) == std::string::npos;
}

// A path has one writer at a time (the ranks agree on it), so its other unfinished files belong to
// processes that were killed, or to one that should no longer run, whose rename then rightly fails.
void remove_unfinished(const std::string& path) {
  const std::string wanted = std::filesystem::path(path).filename().string();
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder_of(path), ignored), end; entry != end;
       entry.increment(ignored)) {
    if (is_unfinished_of(wanted, entry->path().filename().string())) {
      std::filesystem::remove(entry->path(), ignored);
    }
    if (ignored) return;
  }
}

std::string random_suffix() {
  return fmt::format("{:0{}x}", random_value<uint64_t>(), kSuffixDigits);
}

Outcome<> force_folder(const std::string& path) {
  const std::string folder = folder_of(path);
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return refused("open the folder", folder, errno);
  // Ignores EINVAL: some (network) file systems cannot force a folder to disk.
  if (::fsync(fd.get()) != 0 && errno != EINVAL)
    return refused("force to disk the folder", folder, errno);
  return Done{};
}

// Refuses a path whose rename would replace a device (/dev/null, say) or a pipe that others read.
Outcome<> refuse_other_than_files(const std::string& path) {
  struct stat old{};
  if (::lstat(path.c_str(), &old) != 0) return Done{};
  if (S_ISREG(old.st_mode) || S_ISLNK(old.st_mode) || S_ISDIR(old.st_mode)) return Done{};
  return failed(ErrorCode::system,
                fmt::format("cannot write {}: it is a device, a pipe or a socket, and a checkpoint "
                            "would replace it; name a file",
                            path));
}

}  // namespace

Outcome<std::unique_ptr<AtomicFile>> AtomicFile::create(const std::string& path) {
  if (Outcome<> fine = refuse_other_than_files(path); !fine) return tl::unexpected(fine.error());
  remove_unfinished(path);
  const std::string unfinished = path + kUnfinished + random_suffix();
  UniqueFd fd(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) return refused("create", unfinished, errno);
  struct stat old{};
  if (::stat(path.c_str(), &old) == 0) ::fchmod(fd.get(), old.st_mode & 07777);
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, unfinished, std::move(fd)));
}

AtomicFile::AtomicFile(std::string path, std::string unfinished, UniqueFd fd)
    : path_(std::move(path)), unfinished_(std::move(unfinished)), fd_(std::move(fd)) {}

AtomicFile::~AtomicFile() {
  fd_.reset();
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

Outcome<> AtomicFile::written() const {
  if (error_ != 0) return refused("write", unfinished_, error_);
  return Done{};
}

Outcome<> AtomicFile::write(std::string_view bytes) {
  if (error_ == 0) error_ = write_whole(fd_.get(), bytes);
  return written();
}

Outcome<> AtomicFile::close_forced() {
  if (::fsync(fd_.get()) != 0) return refused("force to disk", unfinished_, errno);
  if (::close(fd_.release()) != 0) return refused("close", unfinished_, errno);
  return Done{};
}

Outcome<> AtomicFile::commit(const char* why) {
  if (Outcome<> whole = written(); !whole) return whole;
  if (why != nullptr)
    return failed(ErrorCode::system, fmt::format("cannot write {}: {}", path_, why));
  if (Outcome<> closed = close_forced(); !closed) return closed;
  if (::rename(unfinished_.c_str(), path_.c_str()) != 0) {
    return refused("rename " + unfinished_ + " to", path_, errno);
  }
  unfinished_.clear();
  return force_folder(path_);
}

Outcome<bool> read_file(const std::string& path, const std::function<void*(size_t)>& resize) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return false;
  if (!fd) return refused("open", path, errno);
  struct stat file{};
  size_t room =
      ::fstat(fd.get(), &file) == 0 && file.st_size > 0 ? static_cast<size_t>(file.st_size) : 0;
  auto* data = static_cast<char*>(resize(room));
  size_t size = 0;
  while (true) {
    char next = 0;  // Where the memory is full: the end of the file, or more than was expected.
    const bool is_full = size == room;
    const ssize_t got =
        is_full ? ::read(fd.get(), &next, 1) : ::read(fd.get(), data + size, room - size);
    if (got == 0) break;
    if (got < 0 && errno != EINTR) return refused("read", path, errno);
    if (got < 0) continue;
    if (is_full) {
      room = std::max(2 * room, kFirstRead);
      data = static_cast<char*>(resize(room));
      data[size] = next;
    }
    size += static_cast<size_t>(got);
  }
  if (size != room) resize(size);
  return true;
}

}  // namespace muster::worker

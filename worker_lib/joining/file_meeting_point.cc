#include "worker_lib/joining/file_meeting_point.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/file_trust.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/base/text.h"

namespace muster::worker {
namespace {

constexpr std::string_view kMeetingHead = "muster-store 1\n";
constexpr std::string_view kMeetingEnd = "end\n";
constexpr size_t kMeetingBytesMax = 65536;
// Retries, since a process that is being torn down may still hold the lock.
constexpr int kLockTries = 100;
constexpr int kLockPauseMs = 10;

tl::unexpected<Failure> meeting_trouble(const char* what, const std::string& path, int error) {
  return failed(ErrorCode::environment,
                fmt::format("cannot {} the meeting file {}: {}", what, path, std::strerror(error)));
}

std::string read_meeting_text(int fd) {
  std::string text(kMeetingBytesMax, '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

struct flock whole_file(short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

enum class Lock { mine, others, unknown };

Lock try_meeting_lock(int fd) {
  struct flock lock = whole_file(F_WRLCK);
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return Lock::mine;
  return errno == EAGAIN || errno == EACCES ? Lock::others : Lock::unknown;
}

// Does not take the lock: rank 0 must never find it taken by a rank that only checked.
bool is_surely_unlocked(int fd) {
  struct flock lock = whole_file(F_WRLCK);
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

bool is_still_at(const std::string& path, int fd) {
  struct stat opened{};
  struct stat named{};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

std::string meeting_folder_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// Refuses a folder of another user, who could make us write through a link, or read the file.
Outcome<> check_own_folder(const std::string& folder) {
  struct stat info{};
  if (lstat(folder.c_str(), &info) != 0)
    return meeting_trouble("look at the folder of", folder, errno);
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0) return Done{};
  return failed(ErrorCode::environment,
                fmt::format("{} is not a folder of this user alone: remove it, or set MASTER_ADDR "
                            "and MASTER_PORT",
                            folder));
}

Outcome<> make_own_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return failed(ErrorCode::environment,
                  fmt::format("cannot make the folder {} in which the ranks of this node would "
                              "meet: {}; set MASTER_ADDR and MASTER_PORT",
                              folder, std::strerror(errno)));
  }
  return check_own_folder(folder);
}

tl::unexpected<Failure> in_use(const std::string& path, const std::optional<MeetingRecord>& by) {
  const std::string who =
      by ? fmt::format("pid {} on {}", by->life.pid, by->host) : std::string("another process");
  return failed(
      ErrorCode::environment,
      fmt::format("the meeting file {} is in use by {}: choose another path, or remove it "
                  "if that job is gone",
                  path, who));
}

// Fails if something else wrote the file: rank 0 must not overwrite it, so the others would wait in
// vain. A record that is being written may have only a part of its head.
Outcome<> check_is_ours(const std::string& path, int fd, std::string_view text) {
  struct stat info{};
  const bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (const std::string why = why_untrusted(info, geteuid()); is_file && !why.empty()) {
    return failed(ErrorCode::environment,
                  fmt::format("the meeting file {} {}; or choose another path", path, why));
  }
  if (is_file && (text.starts_with(kMeetingHead) || kMeetingHead.starts_with(text))) return Done{};
  return failed(ErrorCode::environment,
                fmt::format("{} is not a meeting file: remove it, or choose another path", path));
}

// Fails unless the contents may be overwritten. REQUIRES: holds the lock, if there are locks.
Outcome<> check_contents(const std::string& path, int fd, Lock lock) {
  const std::string text = read_meeting_text(fd);
  if (Outcome<> ours = check_is_ours(path, fd, text); !ours) return ours;
  const std::optional<MeetingRecord> record = MeetingRecord::decode(text);
  if (lock == Lock::unknown && record && surely_lives(record->life)) return in_use(path, record);
  return Done{};
}

// Returns false for an invalid line; ignores unknown names, for later versions.
bool read_meeting_line(std::string_view name, std::string_view value, MeetingRecord& record) {
  if (name == "nonce") {
    record.nonce = whole_number<uint64_t>(value).value_or(0);
    return record.nonce != 0;
  }
  if (name == "port") {
    record.port = whole_number<uint16_t>(value).value_or(0);
    return record.port != 0;
  }
  if (name == "process") {
    const std::optional<ProcessLife> life = ProcessLife::parse(value);
    if (life) record.life = *life;
    return life.has_value();
  }
  if (name == "secret") {
    record.secret = from_hex(value).value_or("");
    return !record.secret.empty();
  }
  if (name == "server") record.is_at_server = true;
  if (name == "address") record.addresses.emplace_back(value);
  if (name == "node") record.node = value;
  if (name == "host") record.host = value;
  return true;
}

}  // namespace

std::string MeetingRecord::encode() const {
  std::string text = fmt::format("{}nonce {}\nport {}\nnode {}\nprocess {}\nhost {}\n",
                                 kMeetingHead, nonce, port, node, life.to_string(), host);
  if (!secret.empty()) text += fmt::format("secret {}\n", to_hex(secret));
  if (is_at_server) text += "server yes\n";
  for (const std::string& address : addresses)
    text += fmt::format("address {}\n", address);
  return text.append(kMeetingEnd);
}

std::optional<MeetingRecord> MeetingRecord::decode(std::string_view text) {
  if (!text.starts_with(kMeetingHead) || !text.ends_with(kMeetingEnd)) return std::nullopt;
  text.remove_prefix(kMeetingHead.size());
  text.remove_suffix(kMeetingEnd.size());
  MeetingRecord record;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const size_t space = text.find(' ');
    if (end == std::string_view::npos || space >= end) return std::nullopt;
    if (!read_meeting_line(text.substr(0, space), text.substr(space + 1, end - space - 1), record))
      return std::nullopt;
    text.remove_prefix(end + 1);
  }
  const bool whole = record.nonce != 0 && record.port != 0 && !record.life.boot.empty();
  return whole ? std::optional(std::move(record)) : std::nullopt;
}

Outcome<FileMeetingPoint> FileMeetingPoint::open(const std::string& path, bool make_folder) {
  if (make_folder) {
    if (Outcome<> made = make_own_folder(meeting_folder_of(path)); !made)
      return tl::unexpected(made.error());
  }
  for (int i = 0; i < kLockTries; ++i) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600));
    const int fd = file.get();
    if (!file) return meeting_trouble("open", path, errno);
    const Lock lock = try_meeting_lock(fd);
    // Its owner removed it between open() and the lock: another file counts now.
    if (lock == Lock::mine && !is_still_at(path, fd)) continue;
    if (lock == Lock::others) {
      poll(nullptr, 0, kLockPauseMs);
      continue;
    }
    if (Outcome<> good = check_contents(path, fd, lock); !good) return tl::unexpected(good.error());
    if (ftruncate(fd, 0) != 0) return meeting_trouble("empty", path, errno);
    return FileMeetingPoint(path, std::move(file));
  }
  const UniqueFd look(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return in_use(path, MeetingRecord::decode(read_meeting_text(look.get())));
}

FileMeetingPoint::~FileMeetingPoint() {
  if (file_ && is_still_at(path_, file_.get())) unlink(path_.c_str());
}

bool FileMeetingPoint::is_private() const {
  struct stat info{};
  return fstat(file_.get(), &info) == 0 && (info.st_mode & 077) == 0;
}

Outcome<> FileMeetingPoint::publish(const MeetingRecord& record) {
  const std::string text = record.encode();
  const ssize_t n = pwrite(file_.get(), text.data(), text.size(), 0);
  if (n == static_cast<ssize_t>(text.size()) && fsync(file_.get()) == 0) return Done{};
  return meeting_trouble("write", path_, n < 0 ? errno : ENOSPC);
}

Outcome<std::optional<MeetingRecord>> look_at_meeting_file(const std::string& path,
                                                           bool own_folder) {
  const std::optional<MeetingRecord> none;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    const int error = errno;
    // Rank 0 also creates the folder, if derived.
    const bool folder_is_there =
        own_folder || access((meeting_folder_of(path) + "/").c_str(), F_OK) == 0;
    if (error != ENOENT || !folder_is_there) return meeting_trouble("open", path, error);
    return none;
  }
  const UniqueFd file(fd);
  if (own_folder) {
    if (Outcome<> good = check_own_folder(meeting_folder_of(path)); !good)
      return tl::unexpected(good.error());
  }
  const std::string text = read_meeting_text(fd);
  if (Outcome<> ours = check_is_ours(path, fd, text); !ours) return tl::unexpected(ours.error());
  std::optional<MeetingRecord> record = MeetingRecord::decode(text);
  // Locks of other machines may be invisible here.
  const bool same_machine = record && record->life.boot == life_of_process(getpid()).boot;
  const bool abandoned = same_machine && is_surely_unlocked(fd);
  if (!record || abandoned || !may_still_live(record->life)) return none;
  return record;
}

}  // namespace muster::worker

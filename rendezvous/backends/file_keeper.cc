#include "rendezvous/backends/file_keeper.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/file_trust.h"
#include "rendezvous/base/text.h"
#include "rendezvous/membership/random_ids.h"

namespace muster {
namespace {

constexpr size_t kFileBytesMax = kRecordBytesMax;
// Hosts in a row that may have died before they renamed their record; more is a bug.
constexpr int kChainMax = 64;

tl::unexpected<Error> file_trouble(const char* what, const std::string& path, int error) {
  const bool hopeless = error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM ||
                        error == EISDIR || error == EROFS || error == ENAMETOOLONG;
  return fail(hopeless ? ExitCode::environment : ExitCode::rendezvous,
              fmt::format("cannot {} the rendezvous file {}: {}; all nodes need a path that they "
                          "share and can write",
                          what, path, std::error_code(error, std::generic_category()).message()));
}

// Returns true if `to` is now a name of `from`. If the file system has no hard links, uses a rename
// that replaces nothing, after which `from` is gone.
bool link_exclusively(const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) == 0) return true;
  const int error = errno;
  if (error != EPERM && error != EOPNOTSUPP && error != ENOSYS && error != EMLINK) {
    // NFS may lose the reply: the link was made if the file now has two names.
    struct stat info{};
    if (error == EEXIST && stat(from.c_str(), &info) == 0 && info.st_nlink == 2) return true;
    errno = error;
    return false;
  }
  return renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0;
}

// Opening a file anew makes NFS ask its server, so this is never a stale copy.
Result<std::optional<std::string>> read_text(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno == ENOENT) return std::nullopt;
  struct stat info{};
  if (!fd || fstat(fd.get(), &info) != 0) return file_trouble("read", path, errno);
  if (S_ISDIR(info.st_mode)) return file_trouble("read", path, EISDIR);
  if (const std::string why = why_untrusted(info, geteuid()); !why.empty()) {
    return fail(ExitCode::environment,
                fmt::format("the rendezvous file {} {}; or choose another path", path, why));
  }
  std::string text;
  std::array<char, 4096> buffer;
  ssize_t n = 0;
  while (text.size() <= kFileBytesMax && (n = read(fd.get(), buffer.data(), buffer.size())) > 0)
    text.append(buffer.data(), static_cast<size_t>(n));
  if (n < 0) return file_trouble("read", path, errno);
  return text;
}

uint64_t file_entry(const HostRecord& record) {
  return record.entry != 0 ? record.entry : record.instance;
}

// Marks the lines of the job's record among those of the host's; older readers skip them.
constexpr std::string_view kOfJob = "job-";
constexpr std::string_view kLast = "end\n";

std::string file_text(const HostRecord& record, const JobRecord& job) {
  std::string text = encode(record);
  if (job == JobRecord{}) return text;
  text.resize(text.size() - kLast.size());
  const std::string lines = encode(job);
  for (const std::string_view line : split(lines, '\n')) {
    if (!line.empty() && line != "end") text += fmt::format("{}{}\n", kOfJob, line);
  }
  return text.append(kLast);
}

// nullopt: its lines are invalid.
std::optional<JobRecord> job_in(std::string_view text) {
  std::string lines;
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with(kOfJob)) lines.append(line.substr(kOfJob.size())).append("\n");
  }
  if (lines.empty()) return JobRecord{};
  return decode_job_record(lines.append(kLast));
}

}  // namespace

Result<RecordFound> RecordFile::look() const {
  RecordFound found;
  found.next = path_;
  for (int i = 0; i < kChainMax; ++i) {
    const Result<std::optional<std::string>> text = read_text(found.next);
    if (!text) return tl::unexpected(text.error());
    if (!*text) return found;
    const std::optional<JobRecord> job = job_in(**text);
    std::optional<HostRecord> record = decode_record(**text);
    if ((!record && !(*text)->empty()) || !job) {
      return fail(
          ExitCode::environment,
          fmt::format("{} is not a rendezvous file of muster: remove it, or choose another path",
                      found.next));
    }
    const uint64_t entry = record ? file_entry(*record) : 0;
    if (!found.is_there) found.head = entry;
    found.is_there = true;
    found.record = std::move(record);
    found.job = *job;
    found.next = path_ + ".after-" + sixteen_digits(entry);
  }
  return fail(ExitCode::environment,
              fmt::format("too many files {}.after-…: remove them and {}", path_, path_));
}

Result<bool> RecordFile::take(const RecordFound& found, HostRecord record, const JobRecord& job) {
  record.claim = found.is_there ? found.next.substr(found.next.find_last_of('/') + 1) : "";
  const std::string draft = path_ + ".new-" + sixteen_digits(file_entry(record));
  UniqueFd fd(open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return file_trouble("write", draft, errno);
  int error = write_whole(fd.get(), file_text(record, job));
  if (error == 0 && fsync(fd.get()) != 0) error = errno;
  if (error != 0) {
    fd.reset();
    unlink(draft.c_str());
    return file_trouble("write", draft, error);
  }
  const Result<bool> won = take_with(draft, found, record);
  unlink(draft.c_str());
  if (won && *won) {
    fd_ = std::move(fd);
    mine_ = std::move(record);
  }
  return won;
}

Result<bool> RecordFile::take_with(const std::string& draft, const RecordFound& found,
                                   const HostRecord& record) {
  if (!link_exclusively(draft, found.next)) {
    if (errno == EEXIST) return false;
    return file_trouble("link", found.next, errno);
  }
  if (!found.is_there) return true;
  const Result<RecordFound> now = look();
  if (!now || !now->is_there || now->head != found.head || !now->record ||
      file_entry(*now->record) != file_entry(record)) {
    unlink(found.next.c_str());
    return false;
  }
  // After the rename newcomers read our record at once; nodes that follow the chain find it too.
  // Without hard links the draft is gone, and only the chain leads to our record.
  const std::string old_claim = found.record ? claim_path(*found.record) : "";
  if (rename(draft.c_str(), path_.c_str()) == 0 && !old_claim.empty() && old_claim != found.next)
    unlink(old_claim.c_str());
  return true;
}

void RecordFile::write_beat(uint64_t beat) {
  const std::string digits = sixteen_digits(beat);
  if (pwrite(fd_.get(), digits.data(), digits.size(), static_cast<off_t>(kRecordHead.size())) > 0)
    fdatasync(fd_.get());
}

void RecordFile::remove() {
  if (!fd_) return;
  const Result<std::optional<std::string>> text = read_text(path_);
  const auto record = decode_record(text ? text->value_or("") : "");
  if (record && file_entry(*record) == file_entry(mine_)) unlink(path_.c_str());
  if (!mine_.claim.empty()) unlink(claim_path(mine_).c_str());
}

std::string RecordFile::claim_path(const HostRecord& record) const {
  if (record.claim.empty()) return {};
  return path_.substr(0, path_.find_last_of('/') + 1) + record.claim;
}

Result<Keeper::Seen> FileKeeper::look() {
  Result<RecordFound> found = file_.look();
  if (!found) return tl::unexpected(found.error());
  // The version is the path of the next entry, which the last one names.
  return Seen{std::move(found->next), std::move(found->record), std::move(found->job)};
}

void FileKeeper::wait(const Seen&, Duration patience) {
  std::this_thread::sleep_for(patience);
}

Result<bool> FileKeeper::take(const Seen& seen, const HostRecord& own) {
  const Result<RecordFound> found = file_.look();
  if (!found) return tl::unexpected(found.error());
  if (found->next != seen.version) return false;
  return file_.take(*found, own, seen.job);
}

Result<bool> FileKeeper::write(const HostRecord& own, const JobRecord& before, const JobRecord& now,
                               Duration) {
  const Result<RecordFound> found = file_.look();
  if (!found) return tl::unexpected(found.error());
  if (!found->record || found->record->instance != own.instance) return false;
  if (found->job == now) return true;
  if (found->job != before) return false;
  HostRecord next = own;
  next.entry = random_u64();
  next.beat = beats_;
  return file_.take(*found, std::move(next), now);
}

Result<Keeper::Beat> FileKeeper::beat(const HostRecord& own) {
  const Result<RecordFound> found = file_.look();
  if (!found) return tl::unexpected(found.error());
  if (!found->record) return Beat::gone;
  if (found->record->instance != own.instance) return Beat::replaced;
  file_.write_beat(++beats_);
  return Beat::kept;
}

}  // namespace muster

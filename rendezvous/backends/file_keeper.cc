#include "rendezvous/backends/file_keeper.h"

#include <thread>
#include <utility>

#include "rendezvous/membership/random_ids.h"

namespace muster {

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

void FileKeeper::leave(const HostRecord&) {
  file_.remove();
}

}  // namespace muster

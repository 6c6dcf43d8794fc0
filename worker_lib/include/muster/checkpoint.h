// A checkpoint that is either the old one or the new one, never a partial one.
//
//   // The same bytes on all ranks, or none.
//   std::optional<std::string> saved = muster::load_checkpoint("run7.ckpt");
//   int epoch = saved ? restore(model, *saved) : 0;
//   for (; epoch < epochs; ++epoch) {
//     train(epoch, model);
//     muster::save_checkpoint("run7.ckpt", [&](std::ostream& out) { write(model, out); });
//   }
//
// The parameters are equal on all ranks after each step of data-parallel training, so rank 0 alone
// writes; if each rank has its own part, give each its own path and group. The file holds exactly
// the bytes that were written. Both functions are collective: all members of the group call them.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "muster/process_group.h"
#include "muster/types.h"

namespace muster {

struct CheckpointOptions {
  ProcessGroup group = {};  // Empty: the world.
  CallOptions call = {};    // The time-out must suffice for rank 0 to write everything.
};

// Rank 0 of the group writes; all members return when the file is safely on disk.
//
// All members first pass a barrier, so that the checkpoint is of a step that every rank has
// completed and no rank still reads the old one. Rank 0 then calls `write` with a binary stream, on
// this thread, writes to a new file beside `path` (its name, ".tmp-" and a random suffix; leftovers
// of killed processes are removed), fsyncs it, renames it to `path` and fsyncs the folder
// (rename(2), fsync(2)): after a crash at any moment, even of the machine, `path` is the old or the
// new checkpoint. Then the others get the outcome; they neither call `write` nor use `path`.
//
// If it cannot be written (no space, no folder, no permission; `write` threw or left the stream in
// a failed state), all members throw the same DistributedError, code system, with the reason and
// with the writer as failed_ranks(); the old checkpoint is kept and the group stays usable. A new
// file gets the mode of the one it replaces, else 0666 less the umask. A symbolic link at `path` is
// replaced, not followed; a device, pipe or socket is refused.
MUSTER_API void save_checkpoint(const std::string& path,
                                const std::function<void(std::ostream&)>& write,
                                const CheckpointOptions& options = {});
MUSTER_API void save_checkpoint(const std::string& path, std::string_view bytes,
                                const CheckpointOptions& options = {});

// Returns on all members what rank 0 of the group reads at `path` (the others need not see the
// file); nullopt if there is no such file. If it exists but cannot be read, all throw the same
// DistributedError, code system, with rank 0 of the group as failed_ranks().
MUSTER_API std::optional<std::string> load_checkpoint(const std::string& path,
                                                      const CheckpointOptions& options = {});

}  // namespace muster

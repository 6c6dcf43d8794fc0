// A checkpoint that is either the old one or the new one, never half of it.
//
//   // On all ranks the same bytes, or none.
//   std::optional<std::string> saved = muster::load_checkpoint("run7.ckpt");
//   int epoch = saved ? restore(model, *saved) : 0;
//   for (; epoch < epochs; ++epoch) {
//     train(epoch, model);
//     muster::save_checkpoint("run7.ckpt", [&](std::ostream& out) { write(model, out); });
//   }
//
// The parameters are equal on all ranks after each step of data-parallel training, so rank 0 alone
// writes; where each rank has a part of its own, give each its own path and group. The file holds
// exactly the bytes that were written. Both are collective: all members of the group call them.
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
  ProcessGroup group = {};  // An empty one (here alone): the world.
  CallOptions call = {};    // The time-out must leave rank 0 time to write all of it.
};

// Rank 0 of the group writes; all return when the file is safely on its disk.
//
// All members meet in a barrier, so that the checkpoint is of a step that every rank has done and
// nobody still reads the old one. Rank 0 then calls `write` with a binary stream, on this thread,
// and writes to a new file beside `path` (its name and ".tmp-" and a random suffix; what a killed
// process left of these is removed), fsyncs it, renames it to `path` and fsyncs the folder
// (rename(2), fsync(2)): so after a crash at any moment, of the machine too, `path` is the old or
// the new checkpoint. Then the others hear how it went. `write` is not called on other ranks, whose
// `path` is not used either.
//
// When it cannot be written (no space, no folder, no permission; `write` threw or left the stream
// failed) all members throw the same DistributedError, code system, with the reason and the writer
// as its failed_ranks(); the old checkpoint is still there, and the group stays usable. A new file
// gets the mode of the one it replaces, else 0666 less the umask. A symbolic link at `path` is
// replaced, not followed; a device, pipe or socket is refused.
MUSTER_API void save_checkpoint(const std::string& path,
                                const std::function<void(std::ostream&)>& write,
                                const CheckpointOptions& options = {});
MUSTER_API void save_checkpoint(const std::string& path, std::string_view bytes,
                                const CheckpointOptions& options = {});

// What rank 0 of the group finds at `path`, on all members (the others need not see the file);
// nothing where there is no such file. Where it is there and cannot be read all throw the same
// DistributedError, code system, with that rank as its failed_ranks().
MUSTER_API std::optional<std::string> load_checkpoint(const std::string& path,
                                                      const CheckpointOptions& options = {});

}  // namespace muster

// What a rank does while it is not in an operation, for whoever asks why the others wait for it.
//
//   #include <muster/distributed.h>
//
//   if (muster::rank() == 0) {
//     const muster::Section section("evaluation");
//     evaluate();  // Minutes, while the other ranks wait in the barrier.
//   }
//   muster::world().barrier();
//
// The launcher says where each rank is when some wait for others ("rank 0 is in 'evaluation'"), and
// it gives a rank that is in a section more time before it takes the silence for a hang. So mark
// what may take long: a checkpoint, an evaluation, the first compilation. save_checkpoint(),
// load_checkpoint(), zero_first() and local_zero_first() mark what they do themselves.
#pragma once

#include <string_view>

#include "muster/types.h"

namespace muster {

// The rank is in the section while this object lives. Sections nest: the innermost that is left is
// the one that was entered last, so enter and leave them on one thread. `name`: up to 127 bytes;
// what is longer is cut.
//
// Without a launcher that listens (muster does), before init_process_group() and in a child of
// fork() it has no effect. Never blocks or throws, and sends nothing: two stores to memory.
class [[nodiscard, gnu::visibility("default")]] Section {
 public:
  explicit Section(std::string_view name);
  ~Section();
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  const bool is_recorded_;
};

}  // namespace muster

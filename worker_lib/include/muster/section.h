// Marks what a rank does outside of operations, so that the launcher can say why the others wait.
//
//   #include <muster/distributed.h>
//
//   if (muster::rank() == 0) {
//     const muster::Section section("evaluation");
//     evaluate();  // Minutes, while the other ranks wait in the barrier.
//   }
//   muster::world().barrier();
//
// When some ranks wait for others, the launcher says where each one is ("rank 0 is in
// 'evaluation'"), and it waits longer before it reports a silent rank as hung if that is in a
// section. So mark what may take long: a checkpoint, an evaluation, the first compilation.
// save_checkpoint(), load_checkpoint(), zero_first() and local_zero_first() mark themselves.
#pragma once

#include <string_view>

#include "muster/types.h"

namespace muster {

// The rank is in the section while this object lives. Sections nest: leaving ends the one entered
// last, so enter and leave them on one thread. `name` is cut to 127 bytes.
//
// No effect without a launcher that listens (muster does), before init_process_group() and in a
// child of fork(). Never blocks or throws, and sends nothing: two stores to memory.
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

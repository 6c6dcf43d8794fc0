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

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "muster/muster.h"
#include "muster/types.h"

namespace muster {

// The rank is in the section while this object lives. Sections nest: leaving ends the one entered
// last, so enter and leave them on one thread. `name` is cut to 127 bytes.
//
// No effect without a launcher that listens (muster does), before init_process_group() and in a
// child of fork(). Never blocks or throws, and sends nothing: two stores to memory.
class [[nodiscard]] Section {
 public:
  explicit Section(std::string_view name) noexcept {
    std::array<char, 132> text{};  // Longer than what is kept, so that the library cuts.
    std::copy_n(name.data(), std::min(name.size(), text.size() - 1), text.data());
    muster_section_enter(text.data());
  }
  ~Section() { muster_section_leave(); }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;
};

}  // namespace muster

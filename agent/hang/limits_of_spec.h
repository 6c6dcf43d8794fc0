// The limits of the hang detector that follow from the command line. Pure.
//
// The time to a notice and the time between two looks are parts of --hang-timeout where that is
// short, so that a test scales all of them by one flag; a longer one delays no notice.
#pragma once

#include "agent/hang/detector.h"
#include "agent/launch_spec.h"

namespace muster::hang {

// REQUIRES: !spec.off.
Limits limits_of(const HangSpec& spec);

}  // namespace muster::hang

// The gloo backend's shared library, libmuster_gloo.so (backend_module.h), opened when a group asks
// for it, so that libmuster.so depends neither on Gloo nor on its dependencies (hiredis, ibverbs).
// It is installed beside libmuster.so.
#pragma once

#include <string>

namespace muster::worker {

// Sets `*why` if not.
bool can_open_gloo(std::string* why);

}  // namespace muster::worker

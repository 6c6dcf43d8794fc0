#include "muster/init.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/group/group_host.h"

namespace muster::worker {

BackendMakers real_backends() {
  return {.cpu = make_cpu_backend,
          .nccl = make_nccl_backend,
          .gloo = make_gloo_backend,
          .nccl_available = [](std::string* why) { return is_nccl_available(why); }};
}

}  // namespace muster::worker

#include "worker_lib/backends/nccl/nccl_library.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace muster::worker {
namespace {

constexpr OpenedLibrary::Names kNcclNames{"ncclGetVersion", "MUSTER_NCCL_LIBRARY", "libnccl.so.2"};

}  // namespace

// Versions before 2.9 have shorter numbers: 2804 is 2.8.4.
std::string nccl_version_text(int version) {
  const int minors = version < 10000 ? 10 : 100;
  return fmt::format("{}.{}.{}", version / 100 / minors, version / 100 % minors, version % 100);
}

std::string NcclApi::describe(NcclResult result, NcclHandle comm) const {
  const char* const what = get_error_string(result);
  const char* const last = get_last_error(comm);
  std::string text = what != nullptr ? what : "unknown NCCL error";
  if (last != nullptr && *last != '\0') text += fmt::format(" ({})", last);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Outcome<NcclApi> open_nccl_library() {
  Outcome<OpenedLibrary> library = OpenedLibrary::open(kNcclNames);
  if (!library)
    return failed(
        ErrorCode::backend,
        fmt::format(
            "NCCL was not found ({}); install it (Debian: libnccl2, PyPI: nvidia-nccl-cu13), and "
            "put its folder into LD_LIBRARY_PATH or its file into MUSTER_NCCL_LIBRARY",
            library.error().message));
  NcclApi nccl{std::move(*library)};
  const std::string& path = nccl.library.path();
  if (nccl.get_version(&nccl.version) != NcclResult::success)
    return failed(ErrorCode::backend, fmt::format("NCCL ({}) does not report its version", path));
  if (nccl.version < kNcclOldest)
    return failed(ErrorCode::backend, fmt::format("NCCL {} ({}) is too old: {} or later is needed",
                                                  nccl_version_text(nccl.version), path,
                                                  nccl_version_text(kNcclOldest)));
  if (const std::string& missing = nccl.library.missing(); !missing.empty())
    return failed(ErrorCode::backend, fmt::format("NCCL {} ({}) has no {}: it is not NVIDIA's",
                                                  nccl_version_text(nccl.version), path, missing));
  return nccl;
}

Outcome<const NcclApi*> nccl_library() {
  static const Outcome<NcclApi> opened = open_nccl_library();
  if (!opened) return tl::unexpected(opened.error());
  return &*opened;
}

// Reports a missing GPU first: without one it does not matter whether NCCL is there.
bool can_open_nccl(std::string* why) {
  const Outcome<const CudaApi*> cuda = cuda_driver();
  const Outcome<int> gpus = cuda ? count_gpus(**cuda) : Outcome<int>(tl::unexpected(cuda.error()));
  const Outcome<const NcclApi*> nccl = nccl_library();
  if (gpus && nccl) return true;
  *why = !gpus ? gpus.error().message : nccl.error().message;
  return false;
}

}  // namespace muster::worker

#include "agent/process/python_hook.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

// Files as they are: text for the compiler would take it seconds.
#ifdef MUSTER_PYTHON_MODULE
#define MUSTER_FILE(name, path)                                                           \
  __asm__(".pushsection .rodata." #name ",\"a\"\n" #name ": .incbin \"" path "\"\n" #name \
          "_end:\n.popsection\n");                                                        \
  extern "C" {                                                                            \
  extern const char name[];                                                               \
  extern const char name##_end[];                                                         \
  }
MUSTER_FILE(muster_python_module, MUSTER_PYTHON_MODULE)
MUSTER_FILE(muster_python_recorder, MUSTER_PYTHON_SOURCES "/_muster_recorder.py")
MUSTER_FILE(muster_python_sitecustomize, MUSTER_PYTHON_SOURCES "/sitecustomize.py")
#endif

namespace muster {
namespace {

struct HookFile {
  const char* name;
  std::string_view content;
};

std::vector<HookFile> hook_files() {
#ifdef MUSTER_PYTHON_MODULE
  return {{"_muster_ring.abi3.so", {muster_python_module, muster_python_module_end}},
          {"_muster_recorder.py", {muster_python_recorder, muster_python_recorder_end}},
          {"sitecustomize.py", {muster_python_sitecustomize, muster_python_sitecustomize_end}}};
#else
  return {};
#endif
}

// 0 or errno.
int write_new_file(const std::string& path, std::string_view content) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  return fd ? write_whole(fd.get(), content) : errno;
}

std::string defect_after_writing(const std::string& folder) {
  if (contains(folder, ":")) return "PYTHONPATH cannot hold a path with ':'";
  if (mkdir(folder.c_str(), 0700) != 0) return std::strerror(errno);
  struct statvfs info{};
  if (statvfs(folder.c_str(), &info) == 0 && (info.f_flag & ST_NOEXEC) != 0)
    return "its file system allows no programs (noexec)";
  for (const HookFile& file : hook_files()) {
    if (const int error = write_new_file(folder + "/" + file.name, file.content); error != 0)
      return std::strerror(error);
  }
  return {};
}

}  // namespace

bool has_python_hook() {
  return !hook_files().empty();
}

Result<void> write_python_hook(const std::string& folder) {
  remove_python_hook(folder);
  const std::string defect = defect_after_writing(folder);
  if (defect.empty()) return {};
  remove_python_hook(folder);
  return fail(
      ExitCode::environment,
      fmt::format("cannot write {}: {}; set MUSTER_RUN_DIR to another folder", folder, defect));
}

void remove_python_hook(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace muster

#include "agent/process/worker_hooks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

// Includes files with the assembler: as string literals they would take the compiler seconds.
#define MUSTER_FILE(name, path)                                                           \
  __asm__(".pushsection .rodata." #name ",\"a\"\n" #name ": .incbin \"" path "\"\n" #name \
          "_end:\n.popsection\n");                                                        \
  extern "C" {                                                                            \
  extern const char name[];                                                               \
  extern const char name##_end[];                                                         \
  }
#ifdef MUSTER_PYTHON_MODULE
MUSTER_FILE(muster_python_module, MUSTER_PYTHON_MODULE)
MUSTER_FILE(muster_python_recorder, MUSTER_PYTHON_SOURCES "/_muster_recorder.py")
MUSTER_FILE(muster_python_departure, MUSTER_PYTHON_SOURCES "/_muster_departure.py")
MUSTER_FILE(muster_python_sitecustomize, MUSTER_PYTHON_SOURCES "/sitecustomize.py")
#endif
#ifdef MUSTER_NCCL_PLUGIN
MUSTER_FILE(muster_nccl_plugin, MUSTER_NCCL_PLUGIN)
#endif

namespace muster {
namespace {

struct HookFile {
  const char* name;
  std::string_view content;
};

std::vector<HookFile> python_files() {
#ifdef MUSTER_PYTHON_MODULE
  return {{"_muster_ring.abi3.so", {muster_python_module, muster_python_module_end}},
          {"_muster_recorder.py", {muster_python_recorder, muster_python_recorder_end}},
          {"_muster_departure.py", {muster_python_departure, muster_python_departure_end}},
          {"sitecustomize.py", {muster_python_sitecustomize, muster_python_sitecustomize_end}}};
#else
  return {};
#endif
}

std::vector<HookFile> nccl_files() {
#ifdef MUSTER_NCCL_PLUGIN
  return {{env::kNcclPluginFile.data(), {muster_nccl_plugin, muster_nccl_plugin_end}}};
#else
  return {};
#endif
}

// 0 or errno.
int write_new_file(const std::string& path, std::string_view content) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  return fd ? write_whole(fd.get(), content) : errno;
}

std::string defect_after_writing(const std::string& folder, const std::vector<HookFile>& files) {
  if (contains(folder, ":")) return "PYTHONPATH cannot hold a path with ':'";
  if (mkdir(folder.c_str(), 0700) != 0) return std::strerror(errno);
  struct statvfs info{};
  if (statvfs(folder.c_str(), &info) == 0 && (info.f_flag & ST_NOEXEC) != 0)
    return "its file system allows no programs (noexec)";
  for (const HookFile& file : files) {
    if (const int error = write_new_file(folder + "/" + file.name, file.content); error != 0)
      return std::strerror(error);
  }
  return {};
}

}  // namespace

WorkerHooks built_in_hooks() {
  return {.python = !python_files().empty(), .nccl = !nccl_files().empty()};
}

Result<void> write_hooks(const std::string& folder, const WorkerHooks& wanted) {
  remove_hooks(folder);
  std::vector<HookFile> files;
  if (wanted.python) files = python_files();
  if (wanted.nccl) std::ranges::copy(nccl_files(), std::back_inserter(files));
  const std::string defect = defect_after_writing(folder, files);
  if (defect.empty()) return {};
  remove_hooks(folder);
  return fail(
      ExitCode::environment,
      fmt::format("cannot write {}: {}; set MUSTER_RUN_DIR to another folder", folder, defect));
}

void remove_hooks(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

std::string nccl_plugin_in(const std::string& folder) {
  return fmt::format("{}/{}", folder, env::kNcclPluginFile);
}

}  // namespace muster

#include "rendezvous/base/machine.h"

#include <array>
#include <fstream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster {

std::string own_hostname() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data()
                                                                           : "unknown host";
}

std::string boot_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? "host:" + own_hostname() : boot;
}

uint64_t own_namespace(const char* kind) {
  struct stat info{};
  const std::string path = fmt::format("/proc/self/ns/{}", kind);
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

std::string machine_identity() {
  return fmt::format("{}/{}", boot_identity(), own_namespace("net"));
}

}  // namespace muster

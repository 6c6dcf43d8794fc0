// A test's temporary folder that plays the shared disk on which a job's nodes meet. The destructor
// removes it.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <stdlib.h>

#include "rendezvous/backends/host_record.h"

namespace muster {

class SharedFolder {
 public:
  SharedFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "muster_file_test_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  ~SharedFolder() { std::filesystem::remove_all(path_); }

  std::string file() const { return (path_ / "meet").string(); }
  // The contents of file().
  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(file()).rdbuf();
    return text.str();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }

 private:
  std::filesystem::path path_;
};

inline HostRecord record_of(uint64_t instance, int port) {
  HostRecord record;
  record.instance = instance;
  record.machine = "boot/1";
  record.host_name = "node0";
  record.addresses = {{IpAddress::loopback_v4(), static_cast<uint16_t>(port)}};
  return record;
}

}  // namespace muster

// What a running job says of itself in <pid>.json of the control folder (control_folder.h), for the
// commands that look for it. Pure.
#pragma once

#include <string>
#include <string_view>

#include <sys/types.h>

namespace muster {

struct JobEntry {
  pid_t pid = 0;
  std::string id;
  std::string program;
  double started = 0;  // Seconds since 1970.
  std::string socket_path;

  friend bool operator==(const JobEntry&, const JobEntry&) = default;
};

// One line of JSON, without the path of the socket, which is that of the file.
std::string job_entry_text(const JobEntry& entry);
// Sets what a text has of job_entry_text()'s; the rest stays as it is.
void read_job_entry(std::string_view text, JobEntry& entry);

}  // namespace muster

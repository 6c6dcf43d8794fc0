// musterctl's connection to one job: sends a request, receives lines (control_protocol.h). Waits no
// longer for a job than the job itself takes at most, so that one that is stopped costs a clear
// line. One thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "agent/control/control_folder.h"
#include "agent/control/control_protocol.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

class Conversation {
 public:
  // Fails with ExitCode::environment. `patient`: waits for lines without a limit.
  static Result<Conversation> with(const JobEntry& job, const control::Request& request,
                                   bool patient);

  // nullopt: the job has closed the connection.
  Result<std::optional<std::string>> next_line();

 private:
  explicit Conversation(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::string pending_;
};

// The only reply to a request; an Error that the job sends is one as well.
Result<control::Reply> reply_of(const JobEntry& job, const control::Request& request);

}  // namespace muster

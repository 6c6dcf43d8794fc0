#include "launcher/conversation.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>

namespace muster {
namespace {

// Longer than the job's own limit, so that its answer arrives.
constexpr time_t kAnswerSecondsMax = 15;

}  // namespace

Result<Conversation> Conversation::with(const JobEntry& job, const control::Request& request,
                                        bool patient) {
  Result<int> fd = connect_to_job(job.socket_path);
  if (!fd) return tl::unexpected(fd.error());
  Conversation talk{UniqueFd(*fd)};
  const timeval limit{patient ? 0 : kAnswerSecondsMax, 0};
  setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const std::string line = control::encode(request);
  if (send(*fd, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    return fail(ExitCode::environment, fmt::format("cannot ask the job with pid {}: {}; try again",
                                                   job.pid, std::strerror(errno)));
  }
  return talk;
}

Result<std::optional<std::string>> Conversation::next_line() {
  std::array<char, 65536> buffer;
  std::size_t newline = 0;
  while ((newline = pending_.find('\n')) == std::string::npos) {
    const ssize_t n = recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (n == 0) return std::optional<std::string>();
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || pending_.size() > control::kReplyBytesMax) {
      return fail(ExitCode::environment,
                  fmt::format("the job does not answer ({}); it may be stopped or stuck: try again",
                              n < 0 ? std::strerror(errno) : "the line is too long"));
    }
    pending_.append(buffer.data(), static_cast<std::size_t>(n));
  }
  std::string line = pending_.substr(0, newline);
  pending_.erase(0, newline + 1);
  return std::optional(std::move(line));
}

Result<control::Reply> reply_of(const JobEntry& job, const control::Request& request) {
  Result<Conversation> talk = Conversation::with(job, request, /*patient=*/false);
  if (!talk) return tl::unexpected(talk.error());
  const auto line = talk->next_line();
  if (!line) return tl::unexpected(line.error());
  if (!*line) return fail(ExitCode::environment, "the job ended before it could answer");
  return control::decode_reply(**line);
}

}  // namespace muster

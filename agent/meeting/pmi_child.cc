#include "agent/meeting/pmi_child.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <sys/socket.h>

#include "agent/meeting/pmi1.h"
#include "agent/meeting/pmi_answer.h"
#include "agent/meeting/pmix_client.h"
#include "agent/process/spawn.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/random.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// The variable's value, or the empty string.
std::string pmi_variable(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

bool is_pmi_socket(int fd) {
  int type = 0;
  socklen_t length = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

// The lines of PMI-1 over its socket.
class Pmi1Lines {
 public:
  explicit Pmi1Lines(int fd) : fd_(fd) {}

  Result<std::string> exchange(const std::string& request) {
    const std::string line = request + "\n";
    for (size_t sent = 0; sent < line.size();) {
      const ssize_t n = send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return lost(std::strerror(errno));
      sent += static_cast<size_t>(n);
    }
    size_t end = unread_.find('\n');
    while (end == std::string::npos) {
      if (unread_.size() > kPmi1LineBytesMax) return lost("what comes from there is no PMI-1");
      std::array<char, 1024> buffer;
      const ssize_t n = recv(fd_, buffer.data(), buffer.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return lost(std::strerror(errno));
      if (n == 0) return lost("the other side has closed it");
      unread_.append(buffer.data(), static_cast<size_t>(n));
      end = unread_.find('\n');
    }
    std::string answer = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    return answer;
  }

 private:
  tl::unexpected<Error> lost(std::string_view why) const {
    return fail(ExitCode::rendezvous,
                fmt::format("talking to PMI over descriptor {} failed: {}", fd_, why));
  }

  int fd_;
  std::string unread_;
};

Result<PmiAnswer> ask_by_descriptor(int fd, const Environment& environment, std::string record) {
  const auto rank = whole_number<int64_t>(pmi_variable(environment, "PMI_RANK"));
  const auto size = whole_number<int64_t>(pmi_variable(environment, "PMI_SIZE"));
  if (!rank || !size) {
    return fail(ExitCode::rendezvous,
                fmt::format("{} is set without PMI_RANK and PMI_SIZE as numbers", kPmiFd));
  }
  Pmi1Lines lines(fd);
  return ask_pmi1({*rank, *size, std::move(record)},
                  [&](const std::string& request) { return lines.exchange(request); });
}

bool has_pmix(const Environment& environment) {
  return environment.contains("PMIX_NAMESPACE") && environment.contains("PMIX_RANK") &&
         std::ranges::any_of(environment, [](const auto& variable) {
           return variable.first.starts_with("PMIX_SERVER_URI");
         });
}

// Where mpirun runs within what another mpiexec started, the variables of both are set, but only
// the inner one's descriptor is open.
Result<PmiAnswer> ask_any_pmi(const std::string& host) {
  const Environment environment = current_environment();
  Result<std::string> record = pmi_record(host, random_value<uint64_t>());
  if (!record) return tl::unexpected<Error>(record.error());
  const std::string descriptor = pmi_variable(environment, kPmiFd);
  const auto fd = whole_number<int>(descriptor);
  if (fd && is_pmi_socket(*fd)) return ask_by_descriptor(*fd, environment, std::move(*record));
  if (has_pmix(environment)) return ask_pmix(*record);
  if (descriptor.empty()) {
    return fail(ExitCode::rendezvous,
                fmt::format("there is no PMI to ask for rank 0's address: neither {} nor "
                            "PMIX_NAMESPACE is set",
                            kPmiFd));
  }
  return fail(ExitCode::rendezvous,
              fmt::format("{}={} is no open socket: a program between mpiexec and muster may have "
                          "closed it",
                          kPmiFd, printable(descriptor, 32)));
}

}  // namespace

int pmi_child_main(const std::vector<std::string>& args) {
  if (args.size() != 1) return static_cast<int>(ExitCode::usage);
  const Result<PmiAnswer> answer = ask_any_pmi(args[0]);
  const std::string printed = encode_pmi(answer);
  std::fwrite(printed.data(), 1, printed.size(), stdout);
  const bool written = std::fflush(stdout) == 0;
  return static_cast<int>(answer && written ? ExitCode::success : ExitCode::rendezvous);
}

}  // namespace muster

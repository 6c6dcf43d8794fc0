#include "agent/meeting/ask_pmi.h"

#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "agent/meeting/pmi_child.h"
#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// PMI-1's descriptor, or -1. If whoever started us closed it, its number may be one of our own by
// now, but all of those are close-on-exec.
int inherited_descriptor(const Environment& environment) {
  const auto variable = environment.find(kPmiFd);
  if (variable == environment.end()) return -1;
  const int fd = whole_number<int>(variable->second).value_or(-1);
  const int flags = fd > STDERR_FILENO ? fcntl(fd, F_GETFD) : -1;
  return flags >= 0 && (flags & FD_CLOEXEC) == 0 ? fd : -1;
}

}  // namespace

void ask_pmi(HelperProcess& helper, const Environment& environment, const std::string& host_text,
             Duration limit, std::function<void(Result<PmiAnswer>)> done) {
  helper.ask(
      {.arguments = {kPmiFlag, host_text},
       .limit = limit,
       .what = "ask PMI for rank 0's address",
       .late = fmt::format("PMI did not tell rank 0's address within {}: it does so once every "
                           "process of this launch has asked, and each must be a muster",
                           duration_text(limit)),
       .kept_fd = inherited_descriptor(environment)},
      [done = std::move(done)](const Result<std::string>& printed) {
        done(printed ? decode_pmi(*printed) : tl::unexpected<Error>(printed.error()));
      });
}

}  // namespace muster

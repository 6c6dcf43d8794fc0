#include "agent/meeting/pmi_child.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/meeting/pmi_answer.h"
#include "agent/meeting/pmix_abi.h"
#include "agent/process/spawn.h"
#include "agent/report/text.h"
#include "rendezvous/base/random.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

bool is_pmi_socket(int fd) {
  int type = 0;
  socklen_t length = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

// ---- PMIx, by libpmix: it has threads, reads its environment, and may hang or crash

// The last is Debian's own folder, the target of its links on the search path.
constexpr const char* kPmixLibraries[] = {"libpmix.so.2", "libpmix.so",
#if defined(__x86_64__)
                                          "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2"
#else
                                          "/usr/lib/aarch64-linux-gnu/pmix2/lib/libpmix.so.2"
#endif
};

constexpr size_t kPmixValueBytesMax = 4096;  // Limit for a value that we publish or read.

tl::unexpected<Error> pmix_failed(std::string why) {
  return fail(ExitCode::rendezvous, "asking PMIx for rank 0's address failed: " + std::move(why));
}

// The library stays open: unloading one that has threads gains nothing.
class Pmix {
 public:
  static Result<Pmix> open() {
    void* library = nullptr;
    for (const char* const name : kPmixLibraries) {
      library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
    }
    if (library == nullptr) {
      return pmix_failed(
          "there is no libpmix.so.2; install it (Debian: libpmix2), or name its folder in "
          "LD_LIBRARY_PATH");
    }
    Pmix pmix{pmix::Api{Symbols(library)}};
    if (pmix.api_.symbols.missing().empty()) return pmix;
    return pmix_failed("libpmix.so.2 lacks functions of PMIx 2");
  }

  Result<PmiAnswer> ask(const std::string& record) const {
    pmix::Proc self{};
    pmix::Info collect{};
    std::strncpy(collect.key, pmix::kCollectData, sizeof collect.key - 1);
    collect.value.type = pmix::kBool;
    collect.value.data.flag = true;
    pmix::Status status = api_.init(&self, nullptr, 0);
    if (status != pmix::kSuccess) return failed("PMIx_Init", status);
    if (self.rank == 0) {
      std::string text = pmi_values(record, kPmixValueBytesMax).front();
      pmix::Value value{};
      value.type = pmix::kString;
      value.data.string = text.data();
      status = api_.put(pmix::kGlobalScope, pmi_key(0).c_str(), &value);
      if (status != pmix::kSuccess) return failed("PMIx_Put", status);
      status = api_.commit();
      if (status != pmix::kSuccess) return failed("PMIx_Commit", status);
    }
    // kCollectData: otherwise the others ask rank 0's node, and some servers never answer then.
    status = api_.fence(nullptr, 0, &collect, 1);
    if (status != pmix::kSuccess) return failed("PMIx_Fence", status);

    const auto published =
        gather_pmi_record([&](const std::string& key) { return text(self, key); });
    if (!published) return tl::unexpected<Error>(published.error());
    const Result<uint32_t> size = job_size(self);
    if (!size) return tl::unexpected<Error>(size.error());
    // Otherwise mpirun takes the end of this process for a crash.
    api_.finalize(nullptr, 0);
    return pmi_answer({name_of(self), self.rank, *size}, *published);
  }

 private:
  explicit Pmix(pmix::Api api) : api_(std::move(api)) {}

  tl::unexpected<Error> failed(const char* call, pmix::Status status) const {
    const char* const why = api_.error_string(status);
    return pmix_failed(
        fmt::format("{}: {} ({})", call, why == nullptr ? "unknown error" : why, status));
  }

  static std::string name_of(const pmix::Proc& proc) {
    return {proc.name_space, strnlen(proc.name_space, std::size(proc.name_space))};
  }

  Result<const pmix::Value*> value(const pmix::Proc& self, uint32_t rank, const std::string& key,
                                   uint16_t type) const {
    pmix::Proc proc = self;
    proc.rank = rank;
    pmix::Value* value = nullptr;
    const pmix::Status status = api_.get(&proc, key.c_str(), nullptr, 0, &value);
    if (status != pmix::kSuccess || value == nullptr)
      return failed(fmt::format("PMIx_Get of {}", key).c_str(), status);
    if (value->type != type) {
      return pmix_failed(fmt::format("{} has type {} instead of {}", key, value->type, type));
    }
    return value;
  }

  // What rank 0 has put.
  Result<std::string> text(const pmix::Proc& self, const std::string& key) const {
    const auto found = value(self, 0, key, pmix::kString);
    if (!found) return tl::unexpected<Error>(found.error());
    const char* const string = (*found)->data.string;
    return string == nullptr ? std::string()
                             : std::string(string, strnlen(string, kPmixValueBytesMax));
  }

  Result<uint32_t> job_size(const pmix::Proc& self) const {
    const auto found = value(self, pmix::kAnyRank, pmix::kJobSize, pmix::kUint32);
    if (!found) return tl::unexpected<Error>(found.error());
    return (*found)->data.uint32;
  }

  pmix::Api api_;
};

// ---- PMI-1

// Exchanges lines over PMI-1's socket.
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
  const auto rank = whole_number<int64_t>(lookup(environment, "PMI_RANK").value_or(""));
  const auto size = whole_number<int64_t>(lookup(environment, "PMI_SIZE").value_or(""));
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

// If mpirun runs inside another mpiexec, the variables of both are set, but only the inner one's
// descriptor is open.
Result<PmiAnswer> ask_any_pmi(const std::string& host) {
  const Environment environment = current_environment();
  Result<std::string> record = pmi_record(host, random_value<uint64_t>());
  if (!record) return tl::unexpected<Error>(record.error());
  const std::string descriptor = lookup(environment, kPmiFd).value_or("");
  const auto fd = whole_number<int>(descriptor);
  if (fd && is_pmi_socket(*fd)) return ask_by_descriptor(*fd, environment, std::move(*record));
  if (has_pmix(environment))
    return Pmix::open().and_then([&](const Pmix& pmix) { return pmix.ask(*record); });
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

// PMI-1's descriptor, or -1. If a program before us closed it, its number may be one of our own
// descriptors by now, but these are all close-on-exec.
int inherited_descriptor(const Environment& environment) {
  const auto variable = environment.find(kPmiFd);
  if (variable == environment.end()) return -1;
  const int fd = whole_number<int>(variable->second).value_or(-1);
  const int flags = fd > STDERR_FILENO ? fcntl(fd, F_GETFD) : -1;
  return flags >= 0 && (flags & FD_CLOEXEC) == 0 ? fd : -1;
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

#include "rendezvous/membership/job_token.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/file_trust.h"
#include "rendezvous/base/unique_fd.h"

namespace muster::membership {
namespace {

// The labels name the sender, so that no frame can be reflected to it as the other side's.
constexpr std::string_view kAgentLabel = "muster agent frames 1";
constexpr std::string_view kHostLabel = "muster host frames 1";
constexpr std::string_view kWorkersLabel = "muster worker secret 1";
constexpr int kWriterPatienceMs = 10'000;  // Limit per read from a pipe.

tl::unexpected<Error> bad_file(const std::string& path, std::string_view what) {
  return fail(ExitCode::environment, fmt::format("the token file {} {}", path, what));
}

// Waits for a pipe's writer, as in --rdzv-token-file <(vault read ...).
bool is_readable_soon(int fd) {
  pollfd waited{fd, POLLIN, 0};
  return ::poll(&waited, 1, kWriterPatienceMs) > 0;
}

Result<std::string> read_token(int fd, const std::string& path) {
  std::string bytes(kTokenBytesMax + 2, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::read(fd, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN && is_readable_soon(fd)) continue;
    if (got < 0 && errno == EAGAIN) return bad_file(path, "has a writer that writes nothing");
    if (got < 0) return bad_file(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace

FrameSeals frame_seals(std::string_view token, std::string_view job_id, const Nonce& agent_nonce,
                       const Nonce& host_nonce) {
  CHECK(!token.empty());
  const auto seal = [&](std::string_view label) {
    return FrameSeal(mac_of(token, {label, job_id, raw_bytes(agent_nonce), raw_bytes(host_nonce)}));
  };
  return {seal(kAgentLabel), seal(kHostLabel)};
}

Mac worker_secret(std::string_view token, std::string_view job_id, const Mac& seed) {
  return mac_of(token, {kWorkersLabel, job_id, raw_bytes(seed)});
}

Result<std::string> read_token_file(const std::string& path) {
  // Non-blocking: a FIFO without a writer would block forever.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (!file || ::fstat(file.get(), &info) != 0)
    return bad_file(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  if (const std::string why = why_untrusted(info, geteuid()); !why.empty())
    return bad_file(path, why);
  Result<std::string> token = read_token(file.get(), path);
  if (!token) return token;
  if (token->ends_with('\n')) token->pop_back();
  if (token->empty()) return bad_file(path, "is empty: write a token into it");
  if (token->size() > kTokenBytesMax)
    return bad_file(path, fmt::format("is longer than {} bytes", kTokenBytesMax));
  return token;
}

}  // namespace muster::membership

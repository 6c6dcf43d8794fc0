#include "rendezvous/membership/job_token.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/file_trust.h"
#include "rendezvous/base/unique_fd.h"

namespace muster::membership {
namespace {

// The proving side, so that a proof cannot be sent back to its sender as the other side's.
constexpr std::string_view kAgentLabel = "muster agent proof 1";
constexpr std::string_view kHostLabel = "muster host proof 1";
constexpr int kWriterPatienceMs = 10'000;  // For each read from a pipe.

void append_part(std::string& message, std::string_view part) {
  const uint64_t size = part.size();
  for (int shift = 0; shift < 64; shift += 8)
    message.push_back(static_cast<char>(size >> shift & 0xff));
  message.append(part);
}

std::string_view bytes_of(const Nonce& nonce) {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

// Every part is preceded by its length, so different lists of parts never encode alike.
Proof proof_of(std::string_view label, std::string_view token, std::string_view job_id,
               const Nonce& agent_nonce, const Nonce& host_nonce) {
  Proof proof{};
  if (token.empty()) return proof;
  std::string message;
  for (const std::string_view part : {label, job_id, bytes_of(agent_nonce), bytes_of(host_nonce)})
    append_part(message, part);
  unsigned length = 0;
  CHECK(token.size() <= INT32_MAX);
  const unsigned char* mac = HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
                                  reinterpret_cast<const unsigned char*>(message.data()),
                                  message.size(), proof.data(), &length);
  CHECK(mac != nullptr && length == proof.size());
  return proof;
}

tl::unexpected<Error> bad_file(const std::string& path, std::string_view what) {
  return fail(ExitCode::environment, fmt::format("the token file {} {}", path, what));
}

// Waits for a pipe whose writer is not done, as in --rdzv-token-file <(vault read ...).
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

Proof agent_proof(std::string_view token, std::string_view job_id, const Nonce& agent_nonce,
                  const Nonce& host_nonce) {
  return proof_of(kAgentLabel, token, job_id, agent_nonce, host_nonce);
}

Proof host_proof(std::string_view token, std::string_view job_id, const Nonce& agent_nonce,
                 const Nonce& host_nonce) {
  return proof_of(kHostLabel, token, job_id, agent_nonce, host_nonce);
}

bool same_proof(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
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

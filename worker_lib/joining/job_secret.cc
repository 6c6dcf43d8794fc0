#include "worker_lib/joining/job_secret.h"

#include <fmt/format.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/base/mac.h"
#include "rendezvous/base/random.h"

namespace muster::worker {
namespace {

constexpr size_t kSecretBytesMin = 16;
constexpr std::string_view kOffers = "offers ";
constexpr std::string_view kKnows = "knows ";

}  // namespace

std::string random_job_secret() {
  return random_bytes(sizeof(Mac));
}

std::string read_job_secret(EnvReader& env) {
  const std::optional<std::string> text = env.text(env::kWorkerSecret);
  if (!text) return {};
  const std::optional<std::string> secret = from_hex(*text);
  if (secret && secret->size() >= kSecretBytesMin) return *secret;
  env.complain(fmt::format("{} is not at least {} hexadecimal digits, in pairs and lower case",
                           env::kWorkerSecret, 2 * kSecretBytesMin));
  return {};
}

std::string secret_claim(const Identity& self) {
  if (!self.secret.empty()) {
    const Mac mark = mac_of(self.secret, {"muster secret mark 1"});
    return fmt::format("{}{}", kKnows, to_hex(raw_bytes(mark)));
  }
  if (self.rank != 0) return {};
  return fmt::format("{}{}", kOffers, to_hex(random_job_secret()));
}

Outcome<std::string> agree_on_secret(const Identity& self, const Members& world,
                                     const std::vector<std::string>& claims) {
  const std::string& first = claims.front();
  const bool offers = first.starts_with(kOffers);
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::string& claim = claims[static_cast<size_t>(rank)];
    if (claim == (offers ? "" : first)) continue;
    const std::string_view what = offers ? "has a" : claim.empty() ? "has no" : "has another";
    return failed(ErrorCode::environment,
                  fmt::format("{} {} {}, {} {}: start all ranks of the job with the same one, or "
                              "all without",
                              describe(world[rank]), what, env::kWorkerSecret, describe(world[0]),
                              offers ? "has none" : "has one"),
                  {world[rank].rank});
  }
  // Another job, or an attacker, may have written all claims.
  if (!self.secret.empty() && first != secret_claim(self)) {
    return failed(ErrorCode::environment,
                  fmt::format("the ranks that meet at this store have another {} than this one: "
                              "start all ranks of the job with the same one",
                              env::kWorkerSecret));
  }
  if (!offers) return self.secret;
  std::optional<std::string> offered = from_hex(std::string_view(first).substr(kOffers.size()));
  if (offered && offered->size() >= kSecretBytesMin) return *offered;
  return failed(ErrorCode::environment,
                "rank 0 offers no secret: use one version of muster for the "
                "whole job");
}

}  // namespace muster::worker

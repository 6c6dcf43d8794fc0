#include "rendezvous/etcd/etcd_client.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include "rendezvous/base/event_fd.h"
#include "rendezvous/base/random.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/text.h"
#include "rendezvous/etcd/etcd_codec.h"

namespace muster {
namespace {

using Kind = EtcdTrouble::Kind;

constexpr auto kCallLimit = std::chrono::milliseconds(1500);
// Below the 3 s after which a waiting node reports why it waits.
constexpr auto kOperationLimit = std::chrono::milliseconds(2500);
// Pause before another round over all members.
constexpr auto kRoundPause = std::chrono::milliseconds(100);
constexpr auto kTlsProbeLimit = std::chrono::milliseconds(500);
constexpr size_t kPasswordBytesMax = 4096;
constexpr const char* kTlsOnly = "it speaks TLS only; give --rdzv-conf protocol=https,cacert=/PATH";

// Status codes of gRPC.
enum GrpcCode {
  kUnknown = 2,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kAborted = 10,
  kInternal = 13,
  kUnavailable = 14,
  kUnauthenticated = 16,
};

Deadline etcd_now() {
  return std::chrono::steady_clock::now();
}

// True also if the token is older than a change of the users.
bool wants_new_login(const EtcdFailure& failure) {
  return failure.grpc_code == kUnauthenticated ||
         contains(failure.message, "revision of auth store is old") ||
         contains(failure.message, "revision in header is old");
}

ExitCode code_of(const EtcdTrouble& trouble) {
  return trouble.kind == Kind::setup ? ExitCode::environment : ExitCode::rendezvous;
}

std::string no_answer(const std::vector<EtcdMember>& members,
                      const std::vector<std::optional<EtcdTrouble>>& troubles) {
  std::string text;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!troubles[i]) continue;
    text +=
        fmt::format("{}{}: {}", text.empty() ? "" : "; ", members[i].to_string(), troubles[i]->why);
  }
  return "no member of etcd can be used: " + text;
}

}  // namespace

EtcdClient::EtcdClient(EtcdOptions options)
    : options_(std::move(options)), cancel_(open_event_fd()) {
  CHECK(!options_.members.empty());
  // Spreads the nodes of a job over the members.
  current_ = random_value<size_t>() % options_.members.size();
}

Deadline EtcdClient::operation_limit() {
  return etcd_now() + kOperationLimit;
}

Result<std::string> EtcdClient::call(const std::string& path, const std::string& json,
                                     Deadline limit) {
  std::vector<std::optional<EtcdTrouble>> troubles(options_.members.size());
  int hopeless_rounds = 0;
  for (size_t tries = 1;; ++tries) {
    const Deadline until = etcd_now() + kCallLimit;
    Try answer = try_once(path, json, std::min(limit, until));
    if (answer) return std::move(*answer);
    const auto& [trouble, is_final] = answer.error();
    if (trouble.kind == Kind::cancelled)
      return fail(ExitCode::rendezvous, "etcd is not asked any more: this node leaves");
    if (is_final) return fail(code_of(trouble), "etcd: " + trouble.why);
    // A try that the limit cut short tells less than the one before it.
    const bool was_cut_short = limit < until && etcd_now() >= limit;
    if (!troubles[current_] || !was_cut_short) troubles[current_] = trouble;
    current_ = (current_ + 1) % troubles.size();
    if (tries % troubles.size() == 0) {
      const bool is_hopeless = std::ranges::all_of(
          troubles, [](const auto& one) { return one && one->kind == Kind::setup; });
      hopeless_rounds = is_hopeless ? hopeless_rounds + 1 : 0;
      // The first time, a member may just have been shutting down.
      if (hopeless_rounds == 2)
        return fail(ExitCode::environment, no_answer(options_.members, troubles));
      pause(std::min<Duration>(kRoundPause, limit - etcd_now()));
    }
    if (etcd_now() >= limit)
      return fail(ExitCode::rendezvous, no_answer(options_.members, troubles));
  }
}

EtcdClient::Try EtcdClient::try_once(const std::string& path, const std::string& json,
                                     Deadline deadline) {
  if (is_cancelled()) return tl::unexpected(Refusal{{Kind::cancelled, ""}});
  for (bool again = false;; again = true) {
    if (!options_.user.empty() && !is_logged_in_) {
      if (auto refused = log_in(deadline)) return tl::unexpected(std::move(*refused));
    }
    auto reply = exchange({path, json, token_}, deadline);
    if (!reply) return tl::unexpected(Refusal{std::move(reply.error())});
    const auto failure = decode_etcd_failure(reply->body);
    if (reply->http_status == 200 && !failure) return std::move(reply->body);
    // etcd forgets a log-in when it restarts and, by default, after 5 minutes of silence.
    const bool log_in_again = !again && failure && wants_new_login(*failure);
    if (!log_in_again || options_.user.empty()) return tl::unexpected(refusal(*reply));
    is_logged_in_ = false;
  }
}

std::optional<EtcdClient::Refusal> EtcdClient::log_in(Deadline deadline) {
  token_.clear();
  std::string password = options_.password;
  if (!options_.password_file.empty()) {
    const UniqueFd fd(open(options_.password_file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd) {
      return Refusal{{Kind::setup, fmt::format("cannot read the password in {}: {}",
                                               options_.password_file, std::strerror(errno))},
                     true};
    }
    password = trim(read_up_to(fd.get(), kPasswordBytesMax));
  }
  auto reply = exchange(
      {"/v3/auth/authenticate", etcd_authenticate_request(options_.user, password), ""}, deadline);
  if (!reply) return Refusal{std::move(reply.error())};
  const auto failure = decode_etcd_failure(reply->body);
  // As in etcdctl, a user is no error if authentication is off.
  const bool needs_none = failure && contains(failure->message, "authentication is not enabled");
  const auto token = decode_etcd_token(reply->body);
  if (!needs_none && !token) return refusal(*reply);
  token_ = token.value_or("");
  is_logged_in_ = true;
  return std::nullopt;
}

EtcdResult<EtcdReply> EtcdClient::exchange(const EtcdCall& call, Deadline deadline) {
  if (connection_ && connection_->can_go_on() && connected_to_ == current_) {
    auto reply = connection_->post(call, deadline);
    if (reply) return reply;
    connection_.reset();
    // `silent`: the member may have closed the idle connection long ago, so try a new one.
    if (reply.error().kind != Kind::silent) return reply;
  }
  auto connection = EtcdConnection::open(options_, member(), cancel_.get(), deadline);
  if (!connection) return tl::unexpected(explained(std::move(connection.error())));
  auto reply = connection->post(call, deadline);
  if (!reply) return tl::unexpected(explained(std::move(reply.error())));
  connection_ = std::move(*connection);
  connected_to_ = current_;
  return reply;
}

EtcdTrouble EtcdClient::explained(EtcdTrouble trouble) const {
  if (trouble.kind != Kind::silent) return trouble;
  if (etcd_speaks_the_other(options_, member(), cancel_.get(), etcd_now() + kTlsProbeLimit)) {
    return {Kind::setup,
            options_.tls ? "it does not speak TLS; give --rdzv-conf protocol=http" : kTlsOnly};
  }
  return {Kind::outage, trouble.why};
}

EtcdClient::Refusal EtcdClient::refusal(const EtcdReply& reply) const {
  const auto failure = decode_etcd_failure(reply.body);
  const int status = reply.http_status;
  if (!failure) {
    if (contains(reply.body, "HTTP request to an HTTPS server")) {
      return {{Kind::setup, kTlsOnly}};
    }
    if (status == 404) {
      return {{Kind::setup,
               "its JSON gateway is off; start etcd with enable-grpc-gateway: true (in a "
               "configuration file of etcd 3.4 it is off by default)"}};
    }
    if (contains(reply.body, "CommonName of client")) {
      return {{Kind::setup,
               "with users enabled, its JSON gateway refuses client certificates that have a CN; "
               "give one without"}};
    }
    return {{status >= 500 ? Kind::outage : Kind::setup,
             fmt::format("it answers HTTP {}, not as etcd does", status)}};
  }
  const auto& [code, message] = *failure;
  if (status >= 500 || is_one_of(code, {kUnknown, kDeadlineExceeded, kResourceExhausted, kAborted,
                                        kInternal, kUnavailable}))
    return {{Kind::outage, message}};
  if (code == kNotFound) return {{Kind::outage, message}, true};
  if (contains(message, "user name is empty") ||
      (code == kPermissionDenied && options_.user.empty())) {
    return {{Kind::setup,
             "it wants a user and a password; set ETCDCTL_USER=NAME and ETCDCTL_PASSWORD, or give "
             "--rdzv-conf user=NAME,password_file=/PATH"},
            true};
  }
  if (code == kPermissionDenied) {
    return {{Kind::setup, fmt::format("user {} may not read and write the keys below {} ({})",
                                      options_.user, options_.prefix, message)},
            true};
  }
  if (contains(message, "invalid user ID or password")) {
    return {{Kind::setup, fmt::format("there is no user {} with this password", options_.user)},
            true};
  }
  return {{Kind::setup, message}, true};
}

EtcdClient::Watched EtcdClient::watch(const std::string& json, Deadline until) {
  auto connection = EtcdConnection::open(options_, member(), cancel_.get(),
                                         std::min(until, etcd_now() + kCallLimit));
  if (!connection) return Watched::failed;
  const auto status =
      connection->start({"/v3/watch", json, token_}, std::min(until, etcd_now() + kCallLimit));
  if (!status || *status != 200) return Watched::failed;
  for (;;) {
    const auto line = connection->next_line(until);
    if (!line) return etcd_now() >= until ? Watched::quiet : Watched::failed;
    const auto news = decode_etcd_watch(*line);
    if (news && (news->has_events || news->is_compacted)) return Watched::changed;
    if (!news || news->is_cancelled) {
      is_logged_in_ = false;  // An expired log-in may be the cause; a watch reports no code.
      return Watched::failed;
    }
  }
}

void EtcdClient::pause(Duration time) const {
  pollfd cancelled{cancel_.get(), POLLIN, 0};
  poll(&cancelled, 1, poll_timeout(etcd_now() + time));
}

void EtcdClient::cancel() {
  raise_event(cancel_.get());
}

bool EtcdClient::is_cancelled() const {
  pollfd cancelled{cancel_.get(), POLLIN, 0};
  return poll(&cancelled, 1, 0) > 0;
}

void EtcdClient::resume() {
  drain_event(cancel_.get());
}

}  // namespace muster

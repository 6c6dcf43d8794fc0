#include "rendezvous/etcd/etcd_socket.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/system/system_error.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <mbedtls/asn1.h>
#include <mbedtls/error.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/pk.h>
#include <mbedtls/ssl.h>
#include <mbedtls/x509_crt.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/random.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/connect.h"

namespace muster {
namespace {

using Kind = EtcdTrouble::Kind;

// A member that is cut off sends no FIN: a watch must detect it by itself.
constexpr auto kDeadPeerAfter = std::chrono::seconds(5);
constexpr std::array<const char*, 3> kSystemAuthorities{"/etc/ssl/certs/ca-certificates.crt",
                                                        "/etc/pki/tls/certs/ca-bundle.crt",
                                                        "/etc/ssl/ca-bundle.pem"};

std::string mbedtls_words(int mbedtls_error) {
  std::array<char, 200> text{};
  mbedtls_strerror(mbedtls_error, text.data(), text.size());
  return printable(text.data(), text.size() - 1).c_str();
}

EtcdTrouble connect_trouble(const NetError& error) {
  switch (error.failure) {
    case NetFailure::name_unknown:
      return {Kind::outage, "its name is unknown"};
    case NetFailure::resolver:
      return {Kind::outage, "its name could not be looked up"};
    case NetFailure::refused:
      return {Kind::outage, "it refused the connection"};
    case NetFailure::timed_out:
      return {Kind::outage, "it did not answer in time"};
    case NetFailure::exhausted:
      return {Kind::setup, "no descriptor is left here; raise the limit (ulimit -n)"};
    case NetFailure::unreachable:
      break;
  }
  return {Kind::outage, "it cannot be reached"};
}

EtcdResult<UniqueFd> connect_to(const EtcdMember& member, int cancel, Deadline deadline) try {
  boost::asio::io_context io(1);
  EtcdResult<UniqueFd> result = etcd_trouble(Kind::cancelled, "cancelled");
  boost::asio::posix::stream_descriptor cancelled(io, fcntl(cancel, F_DUPFD_CLOEXEC, 0));
  cancelled.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [&](boost::system::error_code error) {
                         if (!error) io.stop();
                       });
  ConnectOptions how;
  how.dead_peer_after = kDeadPeerAfter;
  const Connecting connecting = connect_any(
      io, member.host, member.port, deadline, std::move(how), [&](NetResult<TcpSocket> connected) {
        if (connected) {
          connected->native_non_blocking(true);
          result = UniqueFd(connected->release());
        } else {
          result = tl::unexpected(connect_trouble(connected.error()));
        }
        cancelled.cancel();
      });
  io.run();
  return result;
} catch (const boost::system::system_error& error) {
  return etcd_trouble(Kind::setup, error.code().message());
}

// Waits until `fd` is ready for `events`.
EtcdResult<void> await(int fd, short events, int cancel, Deadline deadline) {
  for (;;) {
    std::array<pollfd, 2> polled{pollfd{fd, events, 0}, pollfd{cancel, POLLIN, 0}};
    if (poll(polled.data(), polled.size(), poll_timeout(deadline)) < 0) {
      CHECK(errno == EINTR);
      continue;
    }
    if (polled[1].revents != 0) return etcd_trouble(Kind::cancelled, "cancelled");
    if (polled[0].revents != 0) return {};
    if (std::chrono::steady_clock::now() >= deadline)
      return etcd_trouble(Kind::outage, "it did not answer in time");
  }
}

bool certificate_has_address(const mbedtls_x509_crt& certificate, const IpAddress& address) {
  const std::string_view bytes(reinterpret_cast<const char*>(address.bytes().data()),
                               address.is_v6() ? 16 : 4);
  constexpr int kIpAddress = MBEDTLS_ASN1_CONTEXT_SPECIFIC | MBEDTLS_X509_SAN_IP_ADDRESS;
  for (auto* name = &certificate.subject_alt_names; name != nullptr; name = name->next) {
    if (name->buf.tag == kIpAddress &&
        std::string_view(reinterpret_cast<const char*>(name->buf.p), name->buf.len) == bytes)
      return true;
  }
  return false;
}

std::string distrust_text(uint32_t flags, const EtcdMember& member, const std::string& authority) {
  if (flags & MBEDTLS_X509_BADCERT_CN_MISMATCH)
    return fmt::format("its certificate is not for {}", member.host);
  if (flags & MBEDTLS_X509_BADCERT_EXPIRED) return "its certificate has expired";
  if (flags & MBEDTLS_X509_BADCERT_FUTURE) return "its certificate is not valid yet";
  if (flags & MBEDTLS_X509_BADCERT_NOT_TRUSTED)
    return fmt::format("its certificate is not signed by an authority in {}", authority);
  std::array<char, 300> text{};
  mbedtls_x509_crt_verify_info(text.data(), text.size(), "", flags);
  return fmt::format("its certificate is not valid: {}", last_line(text.data()));
}

int fill_for_mbedtls(void*, unsigned char* to, size_t size) {
  fill_randomly(to, size);
  return 0;
}

}  // namespace

struct EtcdSocket::Session {
  Session(UniqueFd socket, int cancel_fd) : fd(std::move(socket)), cancel(cancel_fd) {}
  Session(Session&&) = delete;
  ~Session() {
    if (tls) {
      mbedtls_ssl_free(&tls->ssl);
      mbedtls_ssl_config_free(&tls->config);
      mbedtls_x509_crt_free(&tls->authorities);
      mbedtls_x509_crt_free(&tls->certificate);
      mbedtls_pk_free(&tls->key);
    }
  }

  struct Tls {
    mbedtls_ssl_context ssl{};
    mbedtls_ssl_config config{};
    mbedtls_x509_crt authorities{};
    mbedtls_x509_crt certificate{};
    mbedtls_pk_context key{};
    std::string authority_file;
  };

  EtcdResult<void> load(const EtcdTlsFiles& files);
  EtcdResult<void> shake_hands(const EtcdMember& member, const EtcdTlsFiles& files,
                               Deadline deadline);
  EtcdTrouble handshake_trouble(int error, const EtcdMember& member, bool has_certificate) const;
  // Repeats a call of mbedTLS whenever the socket is ready, until it is done.
  template <typename Call>
  EtcdResult<int> repeat(const Call& call, Deadline deadline);

  static int send_for_mbedtls(void* session, const unsigned char* bytes, size_t size);
  static int receive_for_mbedtls(void* session, unsigned char* to, size_t size);

  UniqueFd fd;
  int cancel;
  bool has_heard = false;
  std::unique_ptr<Tls> tls;
};

int EtcdSocket::Session::send_for_mbedtls(void* session, const unsigned char* bytes, size_t size) {
  const auto* const self = static_cast<Session*>(session);
  const ssize_t sent = send(self->fd.get(), bytes, size, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<int>(sent);
  return is_one_of(errno, {EAGAIN, EINTR}) ? MBEDTLS_ERR_SSL_WANT_WRITE
                                           : MBEDTLS_ERR_NET_CONN_RESET;
}

int EtcdSocket::Session::receive_for_mbedtls(void* session, unsigned char* to, size_t size) {
  auto* const self = static_cast<Session*>(session);
  const ssize_t got = recv(self->fd.get(), to, size, 0);
  if (got > 0) self->has_heard = true;
  if (got >= 0) return static_cast<int>(got);
  return is_one_of(errno, {EAGAIN, EINTR}) ? MBEDTLS_ERR_SSL_WANT_READ : MBEDTLS_ERR_NET_CONN_RESET;
}

EtcdResult<void> EtcdSocket::Session::load(const EtcdTlsFiles& files) {
  tls = std::make_unique<Tls>();
  mbedtls_ssl_init(&tls->ssl);
  mbedtls_ssl_config_init(&tls->config);
  mbedtls_x509_crt_init(&tls->authorities);
  mbedtls_x509_crt_init(&tls->certificate);
  mbedtls_pk_init(&tls->key);
  const auto cannot_read = [](std::string_view what, const std::string& file, int error) {
    return etcd_trouble(
        Kind::setup, fmt::format("cannot use the {} in {}: {}", what, file, mbedtls_words(error)));
  };
  tls->authority_file = files.authorities;
  for (const char* const file : kSystemAuthorities) {
    if (tls->authority_file.empty() && access(file, R_OK) == 0) tls->authority_file = file;
  }
  if (tls->authority_file.empty())
    return etcd_trouble(Kind::setup,
                        "no certificates of authorities are here; give --rdzv-conf cacert=/PATH");
  // A positive result counts the certificates that could not be parsed.
  int error = mbedtls_x509_crt_parse_file(&tls->authorities, tls->authority_file.c_str());
  if (error < 0) return cannot_read("authorities", tls->authority_file, error);
  if (files.certificate.empty()) return {};
  error = mbedtls_x509_crt_parse_file(&tls->certificate, files.certificate.c_str());
  if (error != 0) return cannot_read("certificate", files.certificate, error);
  error = mbedtls_pk_parse_keyfile(&tls->key, files.key.c_str(), nullptr);
  if (error != 0) return cannot_read("key", files.key, error);
  if (mbedtls_pk_check_pair(&tls->certificate.pk, &tls->key) != 0) {
    return etcd_trouble(Kind::setup, fmt::format("the key in {} is not that of the certificate {}",
                                                 files.key, files.certificate));
  }
  return {};
}

template <typename Call>
EtcdResult<int> EtcdSocket::Session::repeat(const Call& call, Deadline deadline) {
  for (;;) {
    const int result = call();
    if (result != MBEDTLS_ERR_SSL_WANT_READ && result != MBEDTLS_ERR_SSL_WANT_WRITE) return result;
    const short events = result == MBEDTLS_ERR_SSL_WANT_READ ? POLLIN : POLLOUT;
    if (auto ready = await(fd.get(), events, cancel, deadline); !ready)
      return tl::unexpected(std::move(ready.error()));
  }
}

EtcdResult<void> EtcdSocket::Session::shake_hands(const EtcdMember& member,
                                                  const EtcdTlsFiles& files, Deadline deadline) {
  if (auto loaded = load(files); !loaded) return loaded;
  mbedtls_ssl_config& config = tls->config;
  int error = mbedtls_ssl_config_defaults(&config, MBEDTLS_SSL_IS_CLIENT,
                                          MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);
  mbedtls_ssl_conf_min_version(&config, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
  mbedtls_ssl_conf_rng(&config, fill_for_mbedtls, nullptr);
  mbedtls_ssl_conf_authmode(&config, MBEDTLS_SSL_VERIFY_REQUIRED);
  mbedtls_ssl_conf_ca_chain(&config, &tls->authorities, nullptr);
  const bool has_certificate = !files.certificate.empty();
  if (error == 0 && has_certificate)
    error = mbedtls_ssl_conf_own_cert(&config, &tls->certificate, &tls->key);
  if (error == 0) error = mbedtls_ssl_setup(&tls->ssl, &config);
  const auto address = IpAddress::parse(member.host);
  // An address is no server name (RFC 6066, §3); it is compared below.
  if (error == 0 && !address) error = mbedtls_ssl_set_hostname(&tls->ssl, member.host.c_str());
  if (error != 0) return etcd_trouble(Kind::setup, "TLS cannot be set up: " + mbedtls_words(error));
  mbedtls_ssl_set_bio(&tls->ssl, this, send_for_mbedtls, receive_for_mbedtls, nullptr);

  const auto done = repeat([&] { return mbedtls_ssl_handshake(&tls->ssl); }, deadline);
  if (!done) return tl::unexpected(done.error());
  if (*done != 0) return tl::unexpected(handshake_trouble(*done, member, has_certificate));
  const mbedtls_x509_crt* const peer = mbedtls_ssl_get_peer_cert(&tls->ssl);
  if (address && (peer == nullptr || !certificate_has_address(*peer, *address))) {
    return etcd_trouble(Kind::setup, distrust_text(MBEDTLS_X509_BADCERT_CN_MISMATCH, member, ""));
  }
  return {};
}

EtcdTrouble EtcdSocket::Session::handshake_trouble(int error, const EtcdMember& member,
                                                   bool has_certificate) const {
  const bool is_closed = is_one_of(error, {MBEDTLS_ERR_SSL_CONN_EOF, MBEDTLS_ERR_NET_CONN_RESET});
  if (is_closed && !has_heard)
    return {Kind::silent, "it closed the connection instead of a TLS handshake"};
  // A TLS 1.2 server checks the client's certificate here, and its reset may overtake its alert.
  if (tls->ssl.client_auth != 0 && (is_closed || error == MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE)) {
    return {Kind::setup, has_certificate ? "it refuses the certificate of this client"
                                         : "it demands a certificate of this client; give "
                                           "--rdzv-conf cert=/PATH,key=/PATH"};
  }
  if (is_closed) return {Kind::outage, "it closed the connection within the TLS handshake"};
  if (error == MBEDTLS_ERR_X509_CERT_VERIFY_FAILED)
    return {Kind::setup,
            distrust_text(mbedtls_ssl_get_verify_result(&tls->ssl), member, tls->authority_file)};
  if (is_one_of(error, {MBEDTLS_ERR_SSL_INVALID_RECORD, MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE}))
    return {Kind::setup, "it does not speak TLS; give --rdzv-conf protocol=http"};
  return {Kind::setup, "the TLS handshake failed: " + mbedtls_words(error)};
}

// ---- the stream

EtcdSocket::EtcdSocket(std::unique_ptr<Session> session) : session_(std::move(session)) {}
EtcdSocket::EtcdSocket(EtcdSocket&&) noexcept = default;
EtcdSocket& EtcdSocket::operator=(EtcdSocket&&) noexcept = default;
EtcdSocket::~EtcdSocket() = default;

EtcdResult<EtcdSocket> EtcdSocket::open(const EtcdMember& member, const EtcdTlsFiles* tls,
                                        int cancel, Deadline deadline) {
  auto fd = connect_to(member, cancel, deadline);
  if (!fd) return tl::unexpected(std::move(fd.error()));
  auto session = std::make_unique<Session>(std::move(*fd), cancel);
  if (tls != nullptr) {
    if (auto secured = session->shake_hands(member, *tls, deadline); !secured)
      return tl::unexpected(std::move(secured.error()));
  }
  return EtcdSocket(std::move(session));
}

EtcdResult<size_t> EtcdSocket::read_some(char* to, size_t size, Deadline deadline) {
  auto* const bytes = reinterpret_cast<unsigned char*>(to);
  const auto got = session_->repeat(
      [&] {
        return session_->tls ? mbedtls_ssl_read(&session_->tls->ssl, bytes, size)
                             : Session::receive_for_mbedtls(session_.get(), bytes, size);
      },
      deadline);
  if (!got) return tl::unexpected(got.error());
  if (*got >= 0) return static_cast<size_t>(*got);
  if (is_one_of(*got, {MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY, MBEDTLS_ERR_SSL_CONN_EOF,
                       MBEDTLS_ERR_NET_CONN_RESET}))
    return 0;
  // TLS 1.3 would refuse a client's certificate here; in 1.2 this is a fault.
  return etcd_trouble(Kind::outage, "the TLS connection broke: " + mbedtls_words(*got));
}

EtcdResult<void> EtcdSocket::write_all(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const auto* const next = reinterpret_cast<const unsigned char*>(bytes.data());
    const auto sent = session_->repeat(
        [&] {
          return session_->tls ? mbedtls_ssl_write(&session_->tls->ssl, next, bytes.size())
                               : Session::send_for_mbedtls(session_.get(), next, bytes.size());
        },
        deadline);
    if (!sent) return tl::unexpected(sent.error());
    if (*sent <= 0)
      return etcd_trouble(has_heard() ? Kind::outage : Kind::silent, "it closed the connection");
    bytes.remove_prefix(static_cast<size_t>(*sent));
  }
  return {};
}

bool EtcdSocket::has_heard() const {
  return session_->has_heard;
}

}  // namespace muster

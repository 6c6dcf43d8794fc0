#include "rendezvous/etcd/etcd_options.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <optional>

#include <fmt/format.h>

#include "rendezvous/base/text.h"
#include "rendezvous/net/address.h"

namespace muster {
namespace {

using EtcdConf = std::vector<std::pair<std::string, std::string>>;

std::string in_quotes(std::string_view text) {
  return fmt::format("'{}'", printable(text, 100));
}

// Strips "http://" or "https://" and returns whether it is https; nullopt if there is neither.
std::optional<bool> take_scheme(std::string_view& text) {
  for (const auto& [scheme, tls] : {std::pair("http://", false), std::pair("https://", true)}) {
    const std::string_view word(scheme);
    if (!text.starts_with(word)) continue;
    text.remove_prefix(word.size());
    if (text.ends_with('/')) text.remove_suffix(1);
    return tls;
  }
  return std::nullopt;
}

bool is_host(std::string_view host) {
  if (contains(host, ":")) return IpAddress::parse(host).has_value();
  return !host.empty() && std::ranges::all_of(host, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  });
}

std::optional<EtcdMember> parse_member(std::string_view text) {
  EtcdMember member;
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && !text.ends_with(']')) {
    const auto port = whole_number<uint16_t>(text.substr(colon + 1));
    if (!port || *port == 0) return std::nullopt;
    member.port = *port;
    text = text.substr(0, colon);
  }
  const bool bracketed = text.starts_with('[') && text.ends_with(']');
  if (bracketed) text = text.substr(1, text.size() - 2);
  if (!is_host(text) || bracketed != contains(text, ":")) return std::nullopt;
  member.host = text;
  return member;
}

class OptionReader {
 public:
  OptionReader(const EtcdConf& conf, const EnvironmentLookup& environment)
      : conf_(conf), environment_(environment) {}

  Result<EtcdOptions> read(std::string_view endpoint) {
    read_members(endpoint);
    read_files();
    read_protocol();
    read_user();
    if (const auto prefix = key({"etcd_prefix"})) {
      options_.prefix = prefix->second;
      if (!options_.prefix.ends_with('/')) options_.prefix += '/';
    }
    if (problem_) return fail(ExitCode::usage, *problem_);
    return options_;
  }

 private:
  void complain(std::string what) {
    if (!problem_) problem_ = std::move(what);
  }

  // Returns the first entry of --rdzv-conf with one of these names.
  std::optional<std::pair<std::string, std::string>> key(
      std::initializer_list<std::string_view> names) const {
    for (const auto& entry : conf_) {
      if (std::ranges::find(names, entry.first) != names.end()) return entry;
    }
    return std::nullopt;
  }

  std::string variable(std::string_view name) const { return environment_(name).value_or(""); }

  void read_members(std::string_view endpoint) {
    const bool typed = !trim(endpoint).empty();
    const std::string list = typed ? std::string(endpoint) : variable("ETCDCTL_ENDPOINTS");
    const std::string_view source = typed ? "--rdzv-endpoint" : "ETCDCTL_ENDPOINTS";
    if (trim(list).empty()) {
      return complain(
          "the etcd backend needs the addresses of etcd; give --rdzv-endpoint "
          "HOST[:PORT],HOST[:PORT] or set ETCDCTL_ENDPOINTS");
    }
    for (const std::string_view item : split(list, ',')) {
      std::string_view address = trim(item);
      const auto tls = take_scheme(address);
      const auto member = parse_member(address);
      if (!member) {
        return complain(fmt::format("{} {} is not an address of etcd; give HOST[:PORT],HOST[:PORT]",
                                    source, in_quotes(item.substr(item.rfind('@') + 1))));
      }
      if (tls && scheme_ && *tls != *scheme_)
        return complain(fmt::format("{} mixes http:// and https://; give one of them", source));
      if (tls) scheme_ = tls;
      options_.members.push_back(*member);
    }
  }

  void read_files() {
    // torchrun's two backends use different names.
    const auto authorities = key({"cacert", "ca_cert"});
    const auto certificate = key({"cert", "ssl_cert"});
    const auto own_key = key({"key", "ssl_cert_key"});
    if (certificate.has_value() != own_key.has_value()) {
      complain(fmt::format("--rdzv-conf has {} without {}; give both",
                           certificate ? certificate->first : own_key->first,
                           certificate ? "the key of that certificate (key)"
                                       : "the certificate of that key (cert)"));
    }
    const auto named = authorities ? authorities : certificate;
    if (named) typed_file_ = named->first;
    options_.files.authorities = authorities ? authorities->second : variable("ETCDCTL_CACERT");
    options_.files.certificate = certificate ? certificate->second : variable("ETCDCTL_CERT");
    options_.files.key = own_key ? own_key->second : variable("ETCDCTL_KEY");
    if (options_.files.certificate.empty() != options_.files.key.empty())
      complain("only one of ETCDCTL_CERT and ETCDCTL_KEY is set; set both or none");
  }

  // Certificates imply TLS. On the command line they contradict http; those of variables, which may
  // be set for another cluster, are ignored with http.
  void read_protocol() {
    std::optional<bool> tls = scheme_;
    if (const auto protocol = key({"protocol"})) {
      const bool https = protocol->second == "https";
      if (!https && protocol->second != "http") {
        complain(fmt::format("--rdzv-conf protocol={} is unknown; give http or https",
                             in_quotes(protocol->second)));
      }
      if (scheme_ && *scheme_ != https) {
        complain(fmt::format("--rdzv-conf protocol={} contradicts the {}:// of the endpoint",
                             protocol->second, *scheme_ ? "https" : "http"));
      }
      tls = https;
    }
    if (tls == false && !typed_file_.empty()) {
      complain(fmt::format("--rdzv-conf {} is for https, but http was asked for; leave out one",
                           typed_file_));
    }
    options_.tls = tls.value_or(options_.files != EtcdTlsFiles{});
    if (!options_.tls) options_.files = {};
  }

  void read_user() {
    if (key({"password"})) {
      return complain(
          "--rdzv-conf has a password, which every user of this machine can read; give "
          "password_file=/PATH or set ETCDCTL_PASSWORD");
    }
    std::string user = variable("ETCDCTL_USER");
    if (const size_t colon = user.find(':'); colon != std::string::npos) {
      options_.password = user.substr(colon + 1);
      user.resize(colon);
    } else {
      options_.password = variable("ETCDCTL_PASSWORD");
    }
    if (const auto typed = key({"user"})) {
      if (contains(typed->second, ":")) {
        return complain(
            "--rdzv-conf user has a password, which every user of this machine can read; give "
            "password_file=/PATH or set ETCDCTL_PASSWORD");
      }
      // The password of another user is useless.
      if (typed->second != user && contains(variable("ETCDCTL_USER"), ":")) options_.password = "";
      user = typed->second;
    }
    options_.user = user;
    if (const auto file = key({"password_file"})) options_.password_file = file->second;
    if (!options_.password_file.empty() && user.empty())
      complain("--rdzv-conf has a password_file but no user; give user=NAME or set ETCDCTL_USER");
    if (!user.empty() && options_.password.empty() && options_.password_file.empty()) {
      complain(
          fmt::format("etcd's user {} has no password; set ETCDCTL_PASSWORD or give "
                      "--rdzv-conf password_file=/PATH",
                      in_quotes(user)));
    }
    if (user.empty()) options_.password.clear();
  }

  const EtcdConf& conf_;
  const EnvironmentLookup& environment_;
  EtcdOptions options_;
  std::optional<bool> scheme_;
  std::string typed_file_;  // The key of --rdzv-conf that names a certificate file; empty: none.
  std::optional<std::string> problem_;
};

}  // namespace

std::string EtcdMember::to_string() const {
  return contains(host, ":") ? fmt::format("[{}]:{}", host, port)
                             : fmt::format("{}:{}", host, port);
}

Result<EtcdOptions> read_etcd_options(std::string_view endpoint,
                                      const std::vector<std::pair<std::string, std::string>>& conf,
                                      const EnvironmentLookup& environment) {
  return OptionReader(conf, environment).read(endpoint);
}

}  // namespace muster

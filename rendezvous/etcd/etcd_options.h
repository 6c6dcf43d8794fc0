// Where etcd is and how to speak to it, from torchrun's flags (--rdzv-endpoint, --rdzv-conf for its
// backends etcd and etcd-v2) and from the variables of etcdctl, so that a shell in which etcdctl
// works needs nothing more. What stands on the command line wins. No password is taken from there:
// every user of a machine can read those of others. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/env_reader.h"
#include "rendezvous/base/error.h"

namespace muster {

struct EtcdMember {
  std::string host;  // A name or an address, without brackets.
  uint16_t port = 2379;

  std::string to_string() const;  // "node1:2379", "[::1]:2379"
  friend bool operator==(const EtcdMember&, const EtcdMember&) = default;
};

struct EtcdTlsFiles {
  std::string authorities;  // Empty: those of the system.
  std::string certificate;  // Of this client; empty: none.
  std::string key;
  friend bool operator==(const EtcdTlsFiles&, const EtcdTlsFiles&) = default;
};

struct EtcdOptions {
  std::vector<EtcdMember> members;
  bool tls = false;
  EtcdTlsFiles files;
  std::string user;  // Empty: none.
  std::string password;
  std::string password_file;  // Read at each log-in; without it, `password` is used.
  std::string prefix = "/muster/";
  friend bool operator==(const EtcdOptions&, const EtcdOptions&) = default;
};

// `endpoint`: "a[:2379],b,[v6]:port", each perhaps with http:// or https:// before it. `conf`: the
// pairs of --rdzv-conf; keys without a meaning here are ignored. Errors are of ExitCode::usage.
Result<EtcdOptions> read_etcd_options(std::string_view endpoint,
                                      const std::vector<std::pair<std::string, std::string>>& conf,
                                      const EnvironmentLookup& environment);

}  // namespace muster

// The address and protocol of etcd, from torchrun's flags (--rdzv-endpoint, --rdzv-conf for its
// backends etcd and etcd-v2) and from etcdctl's variables, so a shell in which etcdctl works needs
// nothing more. The command line wins, but holds no password: all users can read it. Pure.
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
  std::string host;  // A name or address, without brackets.
  uint16_t port = 2379;

  std::string to_string() const;  // "node1:2379", "[::1]:2379"
  friend bool operator==(const EtcdMember&, const EtcdMember&) = default;
};

struct EtcdTlsFiles {
  std::string authorities;  // Empty: those of the system.
  std::string certificate;  // The client's; empty: none.
  std::string key;
  friend bool operator==(const EtcdTlsFiles&, const EtcdTlsFiles&) = default;
};

struct EtcdOptions {
  std::vector<EtcdMember> members;
  bool tls = false;
  EtcdTlsFiles files;
  std::string user;  // Empty: none.
  std::string password;
  std::string password_file;  // Read at each log-in; if empty, `password` is used.
  std::string prefix = "/muster/";
  friend bool operator==(const EtcdOptions&, const EtcdOptions&) = default;
};

// `endpoint`: "a[:2379],b,[v6]:port", each with http:// or https:// before it if wanted. `conf`:
// the pairs of --rdzv-conf; unknown keys are ignored. Fails with ExitCode::usage.
Result<EtcdOptions> read_etcd_options(std::string_view endpoint,
                                      const std::vector<std::pair<std::string, std::string>>& conf,
                                      const EnvironmentLookup& environment);

}  // namespace muster

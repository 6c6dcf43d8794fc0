// A connection to a member of etcd as a stream of bytes, with TLS (1.2, by mbedTLS) or without.
// Every call blocks until its deadline at most, and ends at once when the descriptor `cancel`
// becomes readable, so that another thread can end it. One thread at a time.
//
// mbedTLS 2.28 compares a host with a certificate's names only, so an address is looked up in its
// iPAddress entries here. The files are read for each connection: certificates are replaced while
// a job runs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "rendezvous/base/time.h"
#include "rendezvous/etcd/etcd_options.h"

namespace muster {

// Why a member is of no use, as a phrase that follows its name.
struct EtcdTrouble {
  enum class Kind {
    outage,     // It may pass.
    silent,     // It closed the connection before it said anything: perhaps one side speaks TLS.
    setup,      // Trying again is useless.
    cancelled,  // By `cancel`.
  };
  Kind kind = Kind::outage;
  std::string why;
};

template <typename T>
using EtcdResult = tl::expected<T, EtcdTrouble>;

inline tl::unexpected<EtcdTrouble> etcd_trouble(EtcdTrouble::Kind kind, std::string why) {
  return tl::unexpected(EtcdTrouble{kind, std::move(why)});
}

class EtcdSocket {
 public:
  // `tls`: null for none.
  static EtcdResult<EtcdSocket> open(const EtcdMember& member, const EtcdTlsFiles* tls, int cancel,
                                     Deadline deadline);
  EtcdSocket(EtcdSocket&&) noexcept;
  EtcdSocket& operator=(EtcdSocket&&) noexcept;
  ~EtcdSocket();

  // 0: the other side has closed the connection.
  EtcdResult<size_t> read_some(char* to, size_t size, Deadline deadline);
  EtcdResult<void> write_all(std::string_view bytes, Deadline deadline);
  // Whether anything has come in, below TLS.
  bool has_heard() const;

 private:
  struct Session;
  explicit EtcdSocket(std::unique_ptr<Session> session);

  std::unique_ptr<Session> session_;
};

}  // namespace muster

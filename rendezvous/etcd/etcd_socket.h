// A byte stream to an etcd member, with TLS (1.2, by mbedTLS) or without. A call blocks at most
// until its deadline, and ends at once when the descriptor `cancel` becomes readable, which another
// thread may cause. One thread at a time.
//
// mbedTLS 2.28 compares a host only with a certificate's names, so this class compares addresses
// with its iPAddress entries. Certificates may change while a job runs, so each connection reads
// the files again.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "rendezvous/base/time.h"
#include "rendezvous/etcd/etcd_options.h"

namespace muster {

// The reason why a member is unusable, as a phrase that follows its name.
struct EtcdTrouble {
  enum class Kind {
    outage,     // Temporary.
    silent,     // It closed the connection without an answer: perhaps only one side speaks TLS.
    setup,      // A retry is useless.
    cancelled,  // Ended by `cancel`.
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
  // `tls`: null for plain TCP.
  static EtcdResult<EtcdSocket> open(const EtcdMember& member, const EtcdTlsFiles* tls, int cancel,
                                     Deadline deadline);
  EtcdSocket(EtcdSocket&&) noexcept;
  EtcdSocket& operator=(EtcdSocket&&) noexcept;
  ~EtcdSocket();

  // Returns 0 if the other side has closed the connection.
  EtcdResult<size_t> read_some(char* to, size_t size, Deadline deadline);
  EtcdResult<void> write_all(std::string_view bytes, Deadline deadline);
  // True once any byte has arrived, below TLS.
  bool has_heard() const;

 private:
  struct Session;
  explicit EtcdSocket(std::unique_ptr<Session> session);

  std::unique_ptr<Session> session_;
};

}  // namespace muster

// Who comes to this member's door: a thread that accepts connections, checks what they present, and
// hands each to the links that it is for. It moves no data of operations. It also answers when
// another member asks which operation this one is in: that is how a time-out names who is late and
// not just who was waited for; a thread answers even while the caller's own sleeps on shared
// memory, and does not when the process is stopped, which is an answer as well.
//
// Owned by the cpu backend of a group on several nodes; ends before the links that it serves.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "worker_lib/backends/cpu/tcp_door.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// What a connection is for. The numbers go over the wire.
enum class Purpose : uint8_t { collectives = 0, transfers = 1, inquiry = 2 };

// The first bytes of every connection, in the order of the machine: both ends run the same program.
struct Hello {
  static constexpr uint32_t kMagic = 0x4b4c554d;  // "MULK"
  uint32_t magic = kMagic;
  uint32_t version = 1;
  uint8_t purpose = 0;
  uint8_t unused[3] = {};
  int32_t from = 0;  // Group rank.
  uint8_t secret[kSecretBytes] = {};
};
static_assert(sizeof(Hello) == 32);

Hello make_hello(Purpose purpose, int from, const Door& to);

// A call's kind and purpose.
constexpr uint8_t call_byte(OpKind kind, CallPurpose purpose) {
  return static_cast<uint8_t>(static_cast<unsigned>(kind) | static_cast<unsigned>(purpose) << 4);
}

// Which collective this rank has called last, for who asks. Written by the caller's thread.
class Whereabouts {
 public:
  // `call`: see call_byte().
  void enter(uint64_t sequence, uint8_t call) {
    state_.store(sequence << 8 | call, std::memory_order_relaxed);
  }
  // sequence << 8 | call of the last one that was called; 0: none was.
  uint64_t state() const { return state_.load(std::memory_order_relaxed); }
  // Whom it waits for over links; -1 inside a collective: for ranks of its node.
  void wait_for(int rank) { waiting_for_.store(rank, std::memory_order_relaxed); }
  int waiting_for() const { return waiting_for_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> state_{0};
  std::atomic<int> waiting_for_{-1};
};

struct InquiryReply {
  static constexpr uint32_t kMagic = 0x524c554d;  // "MULR"
  uint32_t magic = kMagic;
  int32_t waiting_for = -1;
  uint64_t state = 0;
};
static_assert(sizeof(InquiryReply) == 16);

class Reception {
 public:
  using Deliver = std::function<void(int from, Socket connection)>;
  struct Options {
    int size = 0;
    OpenDoor open;
    const Whereabouts* whereabouts = nullptr;
    // Called on the reception's thread, by Purpose.
    Deliver deliver[2];
  };

  static Outcome<std::unique_ptr<Reception>> start(Options options);
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;
  ~Reception();

 private:
  struct Visitor;
  explicit Reception(Options options);
  void serve();
  void accept_from(int listener);
  bool hear(Visitor& visitor);
  void admit(Visitor& visitor);

  Options options_;
  WakeEvent stop_;
  std::vector<Visitor> visitors_;
  std::thread thread_;
};

}  // namespace muster::worker

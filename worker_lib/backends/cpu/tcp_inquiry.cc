#include "worker_lib/backends/cpu/tcp_inquiry.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include "worker_lib/time_text.h"

namespace muster::worker {
namespace {

// Members asked at most: the chain to the late one is short, and a thousand ranks that ask all
// others would be a million connections.
constexpr size_t kAskedMax = 64;

struct Asked {
  int rank = -1;
  Socket socket;
  size_t sent = 0;
  size_t heard = 0;
  Hello hello;
  InquiryReply reply;
  bool over = false;  // Answered, or will not.

  bool answered() const { return heard == sizeof reply && reply.magic == InquiryReply::kMagic; }
};

Asked ask(const Inquiry& inquiry, int rank) {
  Asked asked;
  asked.rank = rank;
  const Door& door = inquiry.doors[static_cast<size_t>(rank)];
  asked.hello = make_hello(Purpose::inquiry, inquiry.members.me, door);
  Outcome<Socket> socket = inquiry.members[rank].node == inquiry.members.self().node
                               ? begin_connect_local(door.local)
                               : begin_connect(door.tcp);
  if (socket) {
    asked.socket = std::move(*socket);
  } else {
    asked.over = true;
  }
  return asked;
}

// Moves what can be moved; sets `over` at the end.
void progress(Asked& asked) {
  if (asked.sent < sizeof asked.hello) {
    const auto* bytes = reinterpret_cast<const char*>(&asked.hello);
    const ssize_t sent = send(asked.socket.get(), bytes + asked.sent,
                              sizeof asked.hello - asked.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) asked.sent += static_cast<size_t>(sent);
    asked.over = sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN;
    return;
  }
  auto* bytes = reinterpret_cast<char*>(&asked.reply);
  const ssize_t got =
      recv(asked.socket.get(), bytes + asked.heard, sizeof asked.reply - asked.heard, MSG_DONTWAIT);
  if (got > 0) asked.heard += static_cast<size_t>(got);
  asked.over = asked.heard == sizeof asked.reply || got == 0 ||
               (got < 0 && errno != EAGAIN && errno != EINTR);
}

// A member that is through with it, or has given it up, did come.
bool is_in(const Inquiry& inquiry, uint64_t state) {
  const uint64_t last = state >> 8;
  return last > inquiry.sequence ||
         (last == inquiry.sequence && (state & 0xff) == call_byte(inquiry.kind, inquiry.purpose));
}

// "all_reduce", "should_stop()"
std::string call_name(uint64_t state) {
  const auto purpose = static_cast<CallPurpose>(state >> 4 & 0xf);
  if (purpose != CallPurpose::itself) return fmt::format("{}()", name_of(purpose));
  return name_of(static_cast<OpKind>(state & 0xf));
}

// Whom a member that is in the operation waits for.
std::vector<int> waited_for(const Inquiry& inquiry, const Asked& asked) {
  const int waits_for = asked.reply.waiting_for;
  if (waits_for >= 0 && waits_for < inquiry.members.size()) return {waits_for};
  return inquiry.layout.node(inquiry.layout.node_at(asked.rank));
}

void wait_for_some(const std::vector<Asked>& round, Deadline until) {
  std::vector<pollfd> polled;
  for (const Asked& one : round) {
    if (!one.over)
      polled.push_back({one.socket.get(),
                        static_cast<short>(one.sent < sizeof one.hello ? POLLOUT : POLLIN), 0});
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      until - std::chrono::steady_clock::now());
  poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)) + 1);
}

}  // namespace

std::vector<Absentee> find_absentees(const Inquiry& inquiry, Deadline until) {
  std::vector<Absentee> absentees;
  std::vector<Asked> round;
  std::vector<bool> known(static_cast<size_t>(inquiry.members.size()), false);
  known[static_cast<size_t>(inquiry.members.me)] = true;
  const auto add = [&](int rank) {
    if (known[static_cast<size_t>(rank)] || round.size() >= kAskedMax) return;
    known[static_cast<size_t>(rank)] = true;
    round.push_back(ask(inquiry, rank));
  };
  for (const int rank : inquiry.suspects)
    add(rank);
  const auto is_over = [](const Asked& one) { return one.over; };
  while (!std::all_of(round.begin(), round.end(), is_over) &&
         std::chrono::steady_clock::now() < until) {
    wait_for_some(round, until);
    for (size_t i = 0; i < round.size(); ++i) {
      if (round[i].over) continue;
      progress(round[i]);
      if (!round[i].answered() || !is_in(inquiry, round[i].reply.state)) continue;
      for (const int next : waited_for(inquiry, round[i]))
        add(next);
    }
  }
  for (const Asked& one : round) {
    if (!one.answered() || !is_in(inquiry, one.reply.state))
      absentees.push_back({one.rank, one.answered(), one.reply.state});
  }
  std::sort(absentees.begin(), absentees.end(),
            [](const Absentee& a, const Absentee& b) { return a.rank < b.rank; });
  return absentees;
}

Failure absentees_failure(const Inquiry& inquiry, const std::vector<Absentee>& absentees) {
  Failure failure{ErrorCode::timeout, "", {}};
  for (const Absentee& one : absentees) {
    const Peer& peer = inquiry.members[one.rank];
    failure.ranks.push_back(peer.rank);
    if (!failure.message.empty()) failure.message += ", ";
    failure.message += describe(peer);
    if (!one.answers) {
      failure.message += " does not answer";
    } else if (one.state == 0) {
      failure.message +=
          fmt::format(" has not called it {} (nor anything before)", within(inquiry.limit));
    } else if (one.state >> 8 < inquiry.sequence) {
      failure.message += fmt::format(" has not called it {} (its last: {} {})",
                                     within(inquiry.limit), call_name(one.state), one.state >> 8);
    } else {
      failure.code = ErrorCode::mismatch;
      failure.message += fmt::format(" called {} where {} called {}", call_name(one.state),
                                     describe(inquiry.members.self()),
                                     call_name(call_byte(inquiry.kind, inquiry.purpose)));
    }
  }
  std::sort(failure.ranks.begin(), failure.ranks.end());
  return failure;
}

}  // namespace muster::worker

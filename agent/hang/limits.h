// How long a rank may make others wait before the hang detector judges it. Pure.
//
//   blocked or stopped   hang_timeout
//   late otherwise       busy_timeout: longer than an evaluation, a checkpoint or a download takes
//
// A verdict that a rank disproves doubles the limit that misjudged it, for that group, operation
// and size.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "rendezvous/base/time.h"
#include "rendezvous/ring/call_rules.h"

namespace muster {
struct HangSpec;
}

namespace muster::hang {

struct Limits {
  Duration notice_after = std::chrono::seconds(10);
  Duration hang_timeout = std::chrono::seconds(12);
  Duration busy_timeout = std::chrono::seconds(900);
  Duration forming_min = std::chrono::seconds(60);  // Connecting all members may take that long.
  Duration look = std::chrono::seconds(1);          // Time between two samples of a process.

  friend bool operator==(const Limits&, const Limits&) = default;
};

// Derives limits from the command line. A short --hang-timeout shortens notice_after and look too,
// so that a test scales all by one flag; a long one delays no notice. REQUIRES: !spec.off.
Limits limits_of(const HangSpec& spec);

struct LimitKey {
  std::string group;  // Id.
  ring::CallKind kind = ring::CallKind::unknown;
  int size = 0;  // Bit width of the number of bytes.

  friend auto operator<=>(const LimitKey&, const LimitKey&) = default;
};
LimitKey limit_key(const std::string& group, const ring::Call& call);

class LearntLimits {
 public:
  explicit LearntLimits(const Limits& limits) : limits_(limits) {}

  Duration hang(const LimitKey& key) const { return limits_.hang_timeout * of(key).hang_factor; }
  Duration busy(const LimitKey& key) const { return limits_.busy_timeout * of(key).busy_factor; }

  // Double the limit and return it.
  Duration double_hang(const LimitKey& key);
  Duration double_busy(const LimitKey& key);

  // Forgets the groups that are not `kept`.
  void forget_groups(const std::function<bool(const std::string& group)>& kept);

 private:
  struct Learnt {
    int hang_factor = 1;
    int busy_factor = 1;
  };
  const Learnt& of(const LimitKey& key) const;

  Limits limits_;
  std::map<LimitKey, Learnt> learnt_;
};

}  // namespace muster::hang

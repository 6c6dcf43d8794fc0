// How many accepted connections a process may have open at a time, over all of its listeners: the
// rest of its descriptors is for other uses, such as the next start of its workers. One thread: the
// loop's.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

namespace muster {

class Places {
 public:
  static constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

  explicit Places(size_t max) : max_(max) {}

  size_t max() const { return max_; }
  bool is_full() const { return *taken_ >= max_; }
  // More were taken than there are: one has to go.
  bool is_over() const { return *taken_ > max_; }

  // Held as long as the connection is open.
  std::shared_ptr<void> take() {
    ++*taken_;
    return {nullptr, [taken = taken_](void*) { --*taken; }};
  }

  // Closes a half-open connection of whatever listener has some; false: there is none.
  bool make_room() { return yield_ && yield_(); }
  void on_make_room(std::function<bool()> yield) { yield_ = std::move(yield); }

 private:
  size_t max_;
  std::function<bool()> yield_;
  std::shared_ptr<size_t> taken_ = std::make_shared<size_t>(0);
};

}  // namespace muster

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

struct TakenPlaces {
  size_t number = 0;
  bool abandoned = false;  // By the Places that owned it.
};

struct GiveBackPlace {
  void operator()(TakenPlaces* taken) const {
    if (--taken->number == 0 && taken->abandoned) delete taken;
  }
};

using Place = std::unique_ptr<TakenPlaces, GiveBackPlace>;

class Places {
 public:
  static constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

  explicit Places(size_t max) : max_(max) {}
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
  ~Places() {
    taken_->abandoned = true;
    if (taken_->number > 0) taken_.release();  // The last place deletes it.
  }

  size_t max() const { return max_; }
  bool is_full() const { return taken_->number >= max_; }
  // More were taken than there are: one has to go.
  bool is_over() const { return taken_->number > max_; }

  // Held as long as the connection is open, which may be longer than this object lives. No more
  // than a pointer, since a store has thousands of connections.
  Place take() {
    ++taken_->number;
    return Place(taken_.get());
  }

  // Closes a half-open connection of whatever listener has some; false: there is none.
  bool make_room() { return yield_ && yield_(); }
  void on_make_room(std::function<bool()> yield) { yield_ = std::move(yield); }

 private:
  size_t max_;
  std::function<bool()> yield_;
  std::unique_ptr<TakenPlaces> taken_ = std::make_unique<TakenPlaces>();
};

}  // namespace muster

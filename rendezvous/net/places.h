// Limits the accepted connections that a process has open, over all of its listeners: the rest of
// its descriptors is for other uses, such as the next start of its workers. One thread: the loop's.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

namespace muster {

struct TakenPlaces {
  size_t number = 0;
  bool abandoned = false;  // True once the Places that owned it is destroyed.
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
  Places(Places&&) = delete;
  ~Places() {
    taken_->abandoned = true;
    if (taken_->number > 0) taken_.release();  // The last place deletes it.
  }

  size_t max() const { return max_; }
  bool is_full() const { return taken_->number >= max_; }
  // True if more were taken than there are: one connection must go.
  bool is_over() const { return taken_->number > max_; }

  // Takes a place to hold while the connection is open, possibly beyond the life of this object. It
  // is just a pointer, since a store has thousands of connections.
  Place take() {
    ++taken_->number;
    return Place(taken_.get());
  }

  // Closes a half-open connection by the function given to on_make_room(); false if there is none.
  bool make_room() { return yield_ && yield_(); }
  void on_make_room(std::function<bool()> yield) { yield_ = std::move(yield); }

 private:
  size_t max_;
  std::function<bool()> yield_;
  std::unique_ptr<TakenPlaces> taken_ = std::make_unique<TakenPlaces>();
};

}  // namespace muster

// Memory that shows what the C++ memory model allows, not only what this processor does: in place
// of std::atomic<uint64_t>, a Word keeps all values ever stored, and a load may return any of them
// that the loading thread's past does not hide. Which one is a choice, and all choices are tried,
// or many at random.
//
// An operational form of release, acquire and relaxed operations by views (Kang et al., "A
// promising semantics for relaxed-memory concurrency", 2017, without promises): each stored value
// carries the stores that its release, or the release fence before it, has published; an acquire
// takes them over. Threads run one after the other, so a thread reads only from those that ran
// before it. Sequential consistency counts as acquire and release. Not thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace muster::model {

// Number of stores of each thread, by thread: all its stores up to that are known.
using Clock = std::array<uint32_t, 3>;

// An acquire or release that an operation asked for.
struct Ordering {
  std::string_view file;
  uint32_t line = 0;
  std::string_view what;  // "load", "store", "change", "fence"
  std::string_view function;
  std::string_view part;  // "acquire", "release"
  auto operator<=>(const Ordering&) const = default;
};
std::string to_text(const Ordering& ordering);  // "write_record: fence release"

class Memory {
 public:
  static Memory& instance();

  // Forgets all words; those of older mappings must not be used any more.
  void reset();
  // What follows is done by this thread (0 to 2), which knows nothing if it has done nothing yet.
  void become(int thread) { self_ = thread; }
  // The readers know all that this thread knows by now.
  void publish() { published_ = self().known; }

  // Runs `look` again and again, each time by a new thread 2 and with other choices, until all
  // were tried or `most` times; returns the number of runs. `all_tried`: if not null, set.
  int explore(int most, const std::function<void()>& look, bool* all_tried = nullptr);
  // The same with random choices from a seed.
  void sample(int times, uint64_t seed, const std::function<void()>& look);

  // What was asked for since reset().
  const std::set<Ordering>& orderings() const { return orderings_; }
  // From now on this operation is relaxed, or this fence is not there.
  void leave_out(const Ordering& ordering) { left_out_ = ordering; }

  uint64_t load(const uint64_t& bits, std::memory_order order, const std::source_location& at);
  void store(uint64_t& bits, uint64_t value, std::memory_order order,
             const std::source_location& at);
  // Replaces the newest value and returns it.
  uint64_t replace(uint64_t& bits, const std::function<uint64_t(uint64_t)>& change,
                   std::memory_order order, const std::source_location& at);
  uint64_t newest(const uint64_t& bits) const;
  void fence(const std::source_location& at);

 private:
  struct Stored {
    uint64_t value = 0;
    size_t thread = 0;
    uint32_t time = 0;  // In the thread's own stores; 0: there from the start.
    Clock published{};
  };
  using History = std::vector<Stored>;
  struct Thread {
    Clock known{};
    Clock fenced{};            // Known at the last release fence.
    std::vector<size_t> read;  // By word: the newest value that it has read or stored.
  };

  bool has(std::memory_order order, std::memory_order part, const char* what,
           const std::source_location& at);
  History& history_of(uint64_t& bits);
  void append(uint64_t& bits, uint64_t value, Clock published, std::memory_order order,
              const char* what, const std::source_location& at);
  size_t choose(size_t count);
  void become_reader();
  size_t& last_read(size_t word);
  Thread& self() { return threads_[static_cast<size_t>(self_)]; }

  std::vector<History> words_;
  std::array<Thread, std::tuple_size_v<Clock>> threads_;
  int self_ = 0;
  Clock published_{};
  std::set<Ordering> orderings_;
  Ordering left_out_;
  // The choices of this run and how many there were; more are made by `random_`, or 0.
  struct Choice {
    size_t taken = 0;
    size_t count = 0;
  };
  std::vector<Choice> choices_;
  size_t chosen_ = 0;
  bool is_random_ = false;
  double stale_ = 0;  // How often a random choice is not the newest value.
  std::mt19937_64 random_;
};

// In place of std::atomic<uint64_t>, in memory that was zeroed or written as plain numbers.
class Word {
 public:
  static constexpr bool is_always_lock_free = true;
  using Order = std::memory_order;
  using Place = std::source_location;

  uint64_t load(Order order = std::memory_order_seq_cst, Place at = Place::current()) const {
    return Memory::instance().load(bits_, order, at);
  }
  void store(uint64_t value, Order order = std::memory_order_seq_cst, Place at = Place::current()) {
    Memory::instance().store(bits_, value, order, at);
  }
  uint64_t exchange(uint64_t value, Order order = std::memory_order_seq_cst,
                    Place at = Place::current()) {
    return change([value](uint64_t) { return value; }, order, at);
  }
  uint64_t fetch_add(uint64_t by, Order order = std::memory_order_seq_cst,
                     Place at = Place::current()) {
    return change([by](uint64_t value) { return value + by; }, order, at);
  }
  uint64_t fetch_sub(uint64_t by, Order order = std::memory_order_seq_cst,
                     Place at = Place::current()) {
    return change([by](uint64_t value) { return value - by; }, order, at);
  }
  uint64_t fetch_or(uint64_t with, Order order = std::memory_order_seq_cst,
                    Place at = Place::current()) {
    return change([with](uint64_t value) { return value | with; }, order, at);
  }
  bool compare_exchange_strong(uint64_t& expected, uint64_t desired, Order order,
                               Place at = Place::current()) {
    if (Memory::instance().newest(bits_) != expected) {
      expected = load(std::memory_order_relaxed, at);
      return false;
    }
    change([desired](uint64_t) { return desired; }, order, at);
    return true;
  }
  bool compare_exchange_strong(uint64_t& expected, uint64_t desired, Order order, Order,
                               Place at = Place::current()) {
    return compare_exchange_strong(expected, desired, order, at);
  }
  bool compare_exchange_weak(uint64_t& expected, uint64_t desired, Order order,
                             Place at = Place::current()) {
    return compare_exchange_strong(expected, desired, order, at);
  }

 private:
  template <typename Change>
  uint64_t change(const Change& change, Order order, const Place& at) {
    return Memory::instance().replace(bits_, change, order, at);
  }

  uint64_t bits_;
};

inline void release_fence(std::source_location at = std::source_location::current()) {
  Memory::instance().fence(at);
}

}  // namespace muster::model

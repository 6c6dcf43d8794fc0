#include "tests/model/weak_memory.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace muster::model {
namespace {

// The bits of a word that has a history: this, and its place among words_.
constexpr uint64_t kHasHistory = 0x5eed'0000'0000'0000;
constexpr uint64_t kPlace = 0xffff'ffff;

bool has_history(uint64_t bits) {
  return (bits & ~kPlace) == kHasHistory;
}

void take_over(Clock& known, const Clock& other) {
  for (size_t i = 0; i < known.size(); ++i)
    known[i] = std::max(known[i], other[i]);
}

}  // namespace

Memory& Memory::instance() {
  static Memory memory;
  return memory;
}

void Memory::reset() {
  *this = Memory();
}

// True if the operation has this part (acquire or release) of the order, and it is not left out.
bool Memory::has(std::memory_order order, std::memory_order part, const char* what,
                 const std::source_location& at) {
  const bool is_both = order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
  if (order != part && !is_both) return false;
  const Ordering ordering{at.file_name(), at.line(), what, at.function_name(),
                          part == std::memory_order_acquire ? "acquire" : "release"};
  orderings_.insert(ordering);
  return ordering != left_out_;
}

std::string to_text(const Ordering& ordering) {
  std::string function(ordering.function);
  function.erase(std::min(function.find('('), function.size()));
  function.erase(0, function.find_last_of(" :*&") + 1);
  return fmt::format("{}: {} {}", function, ordering.what, ordering.part);
}

Memory::History& Memory::history_of(uint64_t& bits) {
  if (!has_history(bits)) {
    words_.push_back({Stored{.value = bits}});
    bits = kHasHistory | (words_.size() - 1);
  }
  return words_[bits & kPlace];
}

uint64_t Memory::newest(const uint64_t& bits) const {
  return has_history(bits) ? words_[bits & kPlace].back().value : bits;
}

size_t& Memory::last_read(size_t word) {
  std::vector<size_t>& read = self().read;
  if (read.size() <= word) read.resize(words_.size());
  return read[word];
}

uint64_t Memory::load(const uint64_t& bits, std::memory_order order,
                      const std::source_location& at) {
  if (!has_history(bits)) return bits;
  const History& history = words_[bits & kPlace];
  size_t& read = last_read(bits & kPlace);
  size_t oldest = history.size() - 1;
  while (oldest > read && history[oldest].time > self().known[history[oldest].thread])
    --oldest;
  read = history.size() - 1 - choose(history.size() - oldest);
  if (has(order, std::memory_order_acquire, "load", at))
    take_over(self().known, history[read].published);
  return history[read].value;
}

void Memory::append(uint64_t& bits, uint64_t value, Clock published, std::memory_order order,
                    const char* what, const std::source_location& at) {
  const auto thread = static_cast<size_t>(self_);
  History& history = history_of(bits);
  const uint32_t time = ++self().known[thread];
  take_over(published,
            has(order, std::memory_order_release, what, at) ? self().known : self().fenced);
  last_read(bits & kPlace) = history.size();
  history.push_back({value, thread, time, published});
}

void Memory::store(uint64_t& bits, uint64_t value, std::memory_order order,
                   const std::source_location& at) {
  append(bits, value, {}, order, "store", at);
}

// Goes on with the release sequence of the value that it replaces.
uint64_t Memory::replace(uint64_t& bits, const std::function<uint64_t(uint64_t)>& change,
                         std::memory_order order, const std::source_location& at) {
  const Stored before = history_of(bits).back();
  if (has(order, std::memory_order_acquire, "change", at))
    take_over(self().known, before.published);
  append(bits, change(before.value), before.published, order, "change", at);
  return before.value;
}

void Memory::fence(const std::source_location& at) {
  if (has(std::memory_order_release, std::memory_order_release, "fence", at))
    self().fenced = self().known;
}

// Returns the taken one of `count` choices, 0 being the newest value.
size_t Memory::choose(size_t count) {
  if (count == 1) return 0;
  if (is_random_) {
    const bool is_newest = std::uniform_real_distribution<>()(random_) >= stale_;
    return is_newest ? 0 : std::uniform_int_distribution<size_t>(0, count - 1)(random_);
  }
  if (chosen_ == choices_.size()) choices_.push_back({0, count});
  return choices_[chosen_++].taken;
}

void Memory::become_reader() {
  become(2);
  self() = {};
  self().known = published_;
}

int Memory::explore(int most, const std::function<void()>& look, bool* all_tried) {
  choices_.clear();
  is_random_ = false;
  int runs = 0;
  bool more = true;
  while (more && runs < most) {
    ++runs;
    become_reader();
    chosen_ = 0;
    look();
    // The next choices in depth-first order.
    choices_.resize(chosen_);
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().count)
      choices_.pop_back();
    more = !choices_.empty();
    if (more) ++choices_.back().taken;
  }
  if (all_tried != nullptr) *all_tried = !more;
  return runs;
}

void Memory::sample(int times, uint64_t seed, const std::function<void()>& look) {
  random_.seed(seed);
  is_random_ = true;
  for (int i = 0; i < times; ++i) {
    become_reader();
    // From a reader that sees almost the present to one that lags as far as it may.
    stale_ = static_cast<double>(1 + i % 10) / 10;
    look();
  }
  is_random_ = false;
}

}  // namespace muster::model

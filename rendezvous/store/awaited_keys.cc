// What a StoreMachine's clients wait for.
#include "rendezvous/store/awaited_keys.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "rendezvous/base/text.h"
#include "rendezvous/store/store_machine.h"

namespace muster {
namespace {

constexpr int kNumberMax = 1'000'000;  // No rank is higher.
constexpr size_t kNumbersMax = 4;      // Per name, the last ones.
constexpr int kDistanceMax = 16;       // To a sibling's number.

struct NumberInName {
  size_t begin = 0;
  size_t size = 0;
  int value = 0;
};

std::vector<NumberInName> numbers_in(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::vector<NumberInName> numbers;
  for (size_t begin = 0; begin < name.size();) {
    size_t end = begin;
    while (end < name.size() && is_digit(name[end]))
      ++end;
    const auto value = whole_number<int>(name.substr(begin, end - begin));
    if (value && *value < kNumberMax) numbers.push_back({begin, end - begin, *value});
    begin = std::max(end, begin + 1);
  }
  const size_t left_out = numbers.size() - std::min(numbers.size(), kNumbersMax);
  numbers.erase(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(left_out));
  return numbers;
}

// The name with another number, as wide if that has leading zeros.
std::string with_number(std::string_view name, const NumberInName& at, int number) {
  const size_t width = name[at.begin] == '0' ? at.size : 1;
  return fmt::format("{}{:0{}}{}", name.substr(0, at.begin), number, width,
                     name.substr(at.begin + at.size));
}

}  // namespace

std::vector<AwaitedKey::Sibling> StoreMachine::siblings_of(
    std::string_view key, const std::map<uint32_t, KeyClient>& clients) const {
  std::vector<AwaitedKey::Sibling> siblings;
  for (const NumberInName& at : numbers_in(key)) {
    size_t found = 0;
    for (int step = 2; step < 2 * kDistanceMax && found < AwaitedKeys::kSiblingsMax; ++step) {
      const int number = at.value + (step % 2 == 0 ? -1 : 1) * (step / 2);
      const Entry* const entry = number < 0 ? nullptr : keys_.find(with_number(key, at, number));
      const auto creator = entry == nullptr ? clients.end() : clients.find(entry->creator);
      if (creator == clients.end()) continue;
      siblings.push_back({at.begin, at.value, number, creator->second});
      ++found;
    }
  }
  return siblings;
}

std::vector<AwaitedKeys> StoreMachine::awaited() const {
  std::vector<AwaitedKeys> waits;
  if (waiters_.empty()) return waits;
  std::map<uint32_t, KeyClient> clients;  // By the serial of their session.
  for (size_t id = 0; id < sessions_.size(); ++id) {
    const Session& session = sessions_[id];
    if (session.open)
      clients[session.serial] = {.connection = static_cast<ClientId>(id),
                                 .pid = static_cast<pid_t>(session.nonce)};
  }
  size_t count = 0;
  const auto note = [&](ClientId id, bool at_barrier, const auto& first, size_t missing) {
    if (count == AwaitedKeys::kClientsMax) return;
    auto wait = std::ranges::find_if(
        waits, [&](const AwaitedKeys& known) { return known.keys.front().name == first.front(); });
    if (wait == waits.end()) {
      if (waits.size() == AwaitedKeys::kWaitsMax) return;
      wait = waits.emplace(waits.end());
      wait->is_barrier = at_barrier;
      wait->more = missing - first.size();
      for (const std::string_view key : first)
        wait->keys.push_back({std::string(key), siblings_of(key, clients)});
    }
    wait->waiting.push_back(clients.at(sessions_[id].serial));
    ++count;
  };
  waiters_.for_each(AwaitedKeys::kKeysMax, note);
  return waits;
}

}  // namespace muster

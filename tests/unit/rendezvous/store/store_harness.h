// Requests as bytes, encoded by hand rather than by the code under test, and a store of the real
// decoder and machine without sockets.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/store/store_machine.h"
#include "rendezvous/store/tcpstore_codec.h"

namespace muster::store_test {

// A function, since g++ 12 warns of overlapping copies if it inlines + of two strings.
inline std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts)
    all += part;
  return all;
}

// Decodes hex digits; ignores spaces.
inline std::string hex(std::string_view text) {
  std::string bytes;
  std::string digits;
  for (const char c : text) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() < 2) continue;
    bytes += static_cast<char>(std::stoi(digits, nullptr, 16));
    digits.clear();
  }
  return bytes;
}

inline std::string little_endian(uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; i++)
    bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}
inline std::string i64(int64_t value) {
  return little_endian(static_cast<uint64_t>(value), 8);
}
inline std::string str(std::string_view text) {
  return joined({i64(static_cast<int64_t>(text.size())), text});
}
inline std::string op(int code) {
  return std::string(1, static_cast<char>(code));
}

inline std::string list(const std::vector<std::string>& items) {
  std::string bytes = i64(static_cast<int64_t>(items.size()));
  for (const std::string& item : items)
    bytes += str(item);
  return bytes;
}

inline const std::string kValidate = hex("00 cef7853c");
inline std::string set(std::string_view key, std::string_view value) {
  return joined({op(1), str(key), str(value)});
}
inline std::string compare_set(std::string_view key, std::string_view expected,
                               std::string_view desired) {
  return joined({op(2), str(key), str(expected), str(desired)});
}
inline std::string get(std::string_view key) {
  return joined({op(3), str(key)});
}
inline std::string add(std::string_view key, int64_t delta) {
  return joined({op(4), str(key), i64(delta)});
}
inline std::string check(const std::vector<std::string>& keys) {
  return joined({op(5), list(keys)});
}
inline std::string wait(const std::vector<std::string>& keys) {
  return joined({op(6), list(keys)});
}
inline std::string num_keys() {
  return op(7);
}
inline std::string delete_key(std::string_view key) {
  return joined({op(8), str(key)});
}
inline std::string append(std::string_view key, std::string_view value) {
  return joined({op(9), str(key), str(value)});
}
inline std::string multi_get(const std::vector<std::string>& keys) {
  return joined({op(10), list(keys)});
}
inline std::string multi_set(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string bytes = joined({op(11), i64(static_cast<int64_t>(pairs.size()))});
  for (const auto& [key, value] : pairs)
    bytes.append(str(key)).append(str(value));
  return bytes;
}
inline std::string cancel_wait() {
  return op(12);
}
inline std::string ping(uint32_t nonce) {
  return joined({op(13), little_endian(nonce, 4)});
}
inline std::string queue_push(std::string_view key, std::string_view value) {
  return joined({op(14), str(key), str(value)});
}
inline std::string queue_pop(std::string_view key) {
  return joined({op(15), str(key)});
}
inline std::string queue_len(std::string_view key) {
  return joined({op(16), str(key)});
}
inline std::string list_keys() {
  return op(17);
}
inline std::string barrier(std::string_view key, int64_t world_size) {
  return joined({op(18), str(key), i64(world_size)});
}

inline const std::string kZero(1, '\0');
inline const std::string kOne(1, '\1');

// All bytes sent to a connection, and why it was closed.
struct Heard {
  std::string bytes;
  std::optional<tcpstore::Breach> breach;
};

class PureStore {
 public:
  explicit PureStore(const StoreMachine::Options& options = {}) : machine(options) {}

  // Opens a connection and validates it.
  ClientId connect() {
    const ClientId id = connect_silently();
    say(id, kValidate);
    return id;
  }
  ClientId connect_silently() {
    const auto id = static_cast<ClientId>(decoders_.size());
    machine.opened(now, id);
    decoders_.emplace_back();
    open_.push_back(true);
    heard_.emplace_back();
    return id;
  }
  void hang_up(ClientId id) {
    if (open_[id]) machine.closed(id);
    open_[id] = false;
  }

  // Returns the bytes that this connection gets at once.
  std::string say(ClientId id, std::string_view bytes) {
    const std::string before = heard(id);
    while (open_[id]) {
      const auto outcome = decoders_[id].next(bytes, request_);
      if (outcome == tcpstore::RequestDecoder::Decoded::more) break;
      if (outcome == tcpstore::RequestDecoder::Decoded::breach) {
        reject(id, decoders_[id].breach());
        break;
      }
      StoreEffects effects;
      const auto breach = machine.request(id, request_, effects);
      heard_[id].bytes += effects.reply;
      for (const ClientId woken : effects.woken) {
        heard_[woken].bytes += tcpstore::kReady;
        order_of_waking.push_back(woken);
      }
      if (breach) reject(id, *breach);
    }
    return heard(id).substr(before.size());
  }

  // All bytes that the connection ever got.
  const std::string& heard(ClientId id) const { return heard_[id].bytes; }
  std::optional<tcpstore::Breach> breach(ClientId id) const { return heard_[id].breach; }
  size_t buffered(ClientId id) const { return decoders_[id].buffered(); }

  StoreMachine machine;
  Instant now{};
  std::vector<ClientId> order_of_waking;

 private:
  void reject(ClientId id, tcpstore::Breach breach) {
    heard_[id].breach = breach;
    hang_up(id);
  }

  tcpstore::Request request_;
  std::vector<tcpstore::RequestDecoder> decoders_;
  std::vector<bool> open_;
  std::vector<Heard> heard_;
};

}  // namespace muster::store_test

#include "rendezvous/store/store_calls.h"

#include <fmt/format.h>

#include "rendezvous/store/tcpstore_codec.h"

namespace muster {

using tcpstore::Op;
using tcpstore::Reply;
using tcpstore::Shape;

StoreKeys StoreKeys::nested(std::string_view prefix) const {
  StoreKeys below;
  below.prefix_ = prefix_ + std::string(prefix) + "/";
  return below;
}

std::optional<std::string> StoreKeys::stripped(const std::string& name) const {
  if (!name.starts_with(prefix_)) return std::nullopt;
  return name.substr(prefix_.size());
}

namespace {

// Appends the fields of one request and records the first one that the server would reject.
class RequestWriter {
 public:
  RequestWriter(Op op, std::string what) {
    request_.what = std::move(what);
    tcpstore::put_u8(request_.bytes, static_cast<uint8_t>(op));
  }

  RequestWriter& key(const StoreKeys& keys, std::string_view name) {
    const std::string full = keys.full(name);
    limit(full.size(), tcpstore::kKeyBytesMax, "a key", "bytes", "use a shorter key");
    tcpstore::put_string(request_.bytes, full);
    return *this;
  }
  RequestWriter& value(std::string_view value) {
    limit(value.size(), tcpstore::kValueBytesMax, "a value", "bytes", "split the value");
    tcpstore::put_string(request_.bytes, value);
    return *this;
  }
  RequestWriter& number(int64_t number) {
    tcpstore::put_i64(request_.bytes, number);
    return *this;
  }
  RequestWriter& small_number(uint32_t number) {
    tcpstore::put_u32(request_.bytes, number);
    return *this;
  }
  RequestWriter& count(size_t count) {
    limit(count, tcpstore::kListMax, "a list", "keys", "split the list");
    tcpstore::put_u64(request_.bytes, count);
    return *this;
  }
  RequestWriter& list(const StoreKeys& keys, const calls::Keys& names) {
    count(names.size());
    for (const std::string& name : names)
      key(keys, name);
    return *this;
  }

  StoreRequest done(Shape shape, size_t strings = 0) {
    limit(request_.bytes.size(), tcpstore::kRequestBytesMax, "a request", "bytes",
          "split the request");
    request_.shape = shape;
    request_.strings = strings;
    return std::move(request_);
  }
  StoreRequest done_waiting() {
    request_.waits = true;
    return done(Shape::flag);
  }

 private:
  void limit(size_t size, size_t size_max, std::string_view what, std::string_view unit,
             std::string_view remedy) {
    if (size <= size_max || request_.error) return;
    request_.error =
        Error{ExitCode::rendezvous,
              fmt::format("cannot send {} to the store: {} of {} {} is more than {}; {}",
                          request_.what, what, size, unit, size_max, remedy)};
  }

  StoreRequest request_;
};

std::string name_call(std::string_view operation, std::string_view key) {
  return fmt::format("{} {}", operation, key);
}

std::string name_call(std::string_view operation, const calls::Keys& names) {
  if (names.size() == 1) return name_call(operation, names.front());
  if (names.empty()) return fmt::format("{} of no keys", operation);
  return fmt::format("{} {} and {} more", operation, names.front(), names.size() - 1);
}

Nothing means_nothing(Reply&&) {
  return {};
}
int64_t means_number(Reply&& reply) {
  return reply.number;
}
std::string means_string(Reply&& reply) {
  return std::move(reply.strings.front());
}
std::vector<std::string> means_strings(Reply&& reply) {
  return std::move(reply.strings);
}

}  // namespace

namespace calls {

StoreCall<Nothing> validate() {
  return {RequestWriter(Op::validate, "VALIDATE").small_number(tcpstore::kMagic).done(Shape::none),
          means_nothing};
}

StoreCall<uint32_t> ping(uint32_t nonce) {
  return {RequestWriter(Op::ping, "PING").small_number(nonce).done(Shape::nonce),
          [](Reply&& reply) { return static_cast<uint32_t>(reply.number); }};
}

StoreCall<Nothing> set(const StoreKeys& keys, std::string_view key, std::string_view value) {
  return {
      RequestWriter(Op::set, name_call("SET", key)).key(keys, key).value(value).done(Shape::none),
      means_nothing};
}

StoreCall<std::string> compare_set(const StoreKeys& keys, std::string_view key,
                                   std::string_view expected, std::string_view desired) {
  return {RequestWriter(Op::compare_set, name_call("COMPARE_SET", key))
              .key(keys, key)
              .value(expected)
              .value(desired)
              .done(Shape::strings, 1),
          means_string};
}

StoreCall<std::string> get(const StoreKeys& keys, std::string_view key) {
  return {RequestWriter(Op::get, name_call("GET", key)).key(keys, key).done(Shape::strings, 1),
          means_string};
}

StoreCall<int64_t> add(const StoreKeys& keys, std::string_view key, int64_t delta) {
  return {RequestWriter(Op::add, name_call("ADD", key))
              .key(keys, key)
              .number(delta)
              .done(Shape::number),
          means_number};
}

StoreCall<bool> check(const StoreKeys& keys, const Keys& names) {
  return {RequestWriter(Op::check, name_call("CHECK", names)).list(keys, names).done(Shape::flag),
          [](Reply&& reply) { return reply.number == tcpstore::kReady; }};
}

StoreCall<Nothing> wait(const StoreKeys& keys, const Keys& names) {
  return {RequestWriter(Op::wait, name_call("WAIT", names)).list(keys, names).done_waiting(),
          means_nothing};
}

StoreCall<int64_t> num_keys() {
  return {RequestWriter(Op::num_keys, "GETNUMKEYS").done(Shape::number), means_number};
}

StoreCall<bool> delete_key(const StoreKeys& keys, std::string_view key) {
  return {RequestWriter(Op::delete_key, name_call("DELETE_KEY", key))
              .key(keys, key)
              .done(Shape::number),
          [](Reply&& reply) { return reply.number > 0; }};
}

StoreCall<Nothing> append(const StoreKeys& keys, std::string_view key, std::string_view value) {
  return {RequestWriter(Op::append, name_call("APPEND", key))
              .key(keys, key)
              .value(value)
              .done(Shape::none),
          means_nothing};
}

StoreCall<std::vector<std::string>> multi_get(const StoreKeys& keys, const Keys& names) {
  return {RequestWriter(Op::multi_get, name_call("MULTI_GET", names))
              .list(keys, names)
              .done(Shape::strings, names.size()),
          means_strings};
}

StoreCall<std::vector<std::string>> list_keys() {
  return {RequestWriter(Op::list_keys, "LIST_KEYS").done(Shape::names), means_strings};
}

std::string_view cancel_wait_bytes() {
  return "\x0c";
}

}  // namespace calls

}  // namespace muster

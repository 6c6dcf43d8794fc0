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

std::string name_call(std::string_view operation, const calls::Keys& names) {
  if (names.empty()) return fmt::format("{} of no keys", operation);
  if (names.size() == 1) return fmt::format("{} {}", operation, names.front());
  return fmt::format("{} {} and {} more", operation, names.front(), names.size() - 1);
}

// Appends the fields of one request and records the first one that the server would reject.
class RequestWriter {
 public:
  RequestWriter(Op op, std::string what) {
    request_.what = std::move(what);
    tcpstore::put_u8(request_.bytes, static_cast<uint8_t>(op));
  }
  RequestWriter(Op op, std::string_view name, const StoreKeys& keys, std::string_view first)
      : RequestWriter(op, fmt::format("{} {}", name, first)) {
    key(keys, first);
  }
  RequestWriter(Op op, std::string_view name, const StoreKeys& keys, const calls::Keys& names)
      : RequestWriter(op, name_call(name, names)) {
    limit(names.size(), tcpstore::kListMax, "a list", "keys", "split the list");
    tcpstore::put_u64(request_.bytes, names.size());
    for (const std::string& one : names)
      key(keys, one);
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

  template <typename T>
  StoreCall<T> answered(Shape shape, T (*meaning)(Reply&&), size_t strings = 0) {
    limit(request_.bytes.size(), tcpstore::kRequestBytesMax, "a request", "bytes",
          "split the request");
    request_.shape = shape;
    request_.strings = strings;
    return {std::move(request_), meaning};
  }

 private:
  void key(const StoreKeys& keys, std::string_view name) {
    const std::string full = keys.full(name);
    limit(full.size(), tcpstore::kKeyBytesMax, "a key", "bytes", "use a shorter key");
    tcpstore::put_string(request_.bytes, full);
  }
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
  return RequestWriter(Op::validate, "VALIDATE")
      .small_number(tcpstore::kMagic)
      .answered(Shape::none, means_nothing);
}

StoreCall<uint32_t> ping(uint32_t nonce) {
  return RequestWriter(Op::ping, "PING")
      .small_number(nonce)
      .answered<uint32_t>(Shape::nonce,
                          [](Reply&& reply) { return static_cast<uint32_t>(reply.number); });
}

StoreCall<Nothing> set(const StoreKeys& keys, std::string_view key, std::string_view value) {
  return RequestWriter(Op::set, "SET", keys, key).value(value).answered(Shape::none, means_nothing);
}

StoreCall<std::string> compare_set(const StoreKeys& keys, std::string_view key,
                                   std::string_view expected, std::string_view desired) {
  return RequestWriter(Op::compare_set, "COMPARE_SET", keys, key)
      .value(expected)
      .value(desired)
      .answered(Shape::strings, means_string, 1);
}

StoreCall<std::string> get(const StoreKeys& keys, std::string_view key) {
  return RequestWriter(Op::get, "GET", keys, key).answered(Shape::strings, means_string, 1);
}

StoreCall<int64_t> add(const StoreKeys& keys, std::string_view key, int64_t delta) {
  return RequestWriter(Op::add, "ADD", keys, key)
      .number(delta)
      .answered(Shape::number, means_number);
}

StoreCall<bool> check(const StoreKeys& keys, const Keys& names) {
  return RequestWriter(Op::check, "CHECK", keys, names)
      .answered<bool>(Shape::flag, [](Reply&& reply) { return reply.number == tcpstore::kReady; });
}

StoreCall<Nothing> wait(const StoreKeys& keys, const Keys& names) {
  StoreCall<Nothing> call =
      RequestWriter(Op::wait, "WAIT", keys, names).answered(Shape::flag, means_nothing);
  call.request.waits = true;
  return call;
}

StoreCall<int64_t> num_keys() {
  return RequestWriter(Op::num_keys, "GETNUMKEYS").answered(Shape::number, means_number);
}

StoreCall<bool> delete_key(const StoreKeys& keys, std::string_view key) {
  return RequestWriter(Op::delete_key, "DELETE_KEY", keys, key)
      .answered<bool>(Shape::number, [](Reply&& reply) { return reply.number > 0; });
}

StoreCall<Nothing> append(const StoreKeys& keys, std::string_view key, std::string_view value) {
  return RequestWriter(Op::append, "APPEND", keys, key)
      .value(value)
      .answered(Shape::none, means_nothing);
}

StoreCall<std::vector<std::string>> multi_get(const StoreKeys& keys, const Keys& names) {
  return RequestWriter(Op::multi_get, "MULTI_GET", keys, names)
      .answered(Shape::strings, means_strings, names.size());
}

StoreCall<std::vector<std::string>> list_keys() {
  return RequestWriter(Op::list_keys, "LIST_KEYS").answered(Shape::names, means_strings);
}

std::string_view cancel_wait_bytes() {
  return "\x0c";
}

}  // namespace calls

}  // namespace muster

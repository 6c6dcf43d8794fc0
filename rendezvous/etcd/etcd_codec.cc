#include "rendezvous/etcd/etcd_codec.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <mbedtls/base64.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

using EtcdJson = nlohmann::json;

constexpr size_t kTokenBytesMax = 4096;
constexpr size_t kMessageBytesMax = 300;

const unsigned char* etcd_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // Includes room for a NUL.
  size_t size = 0;
  CHECK(mbedtls_base64_encode(reinterpret_cast<unsigned char*>(text.data()), text.size(), &size,
                              etcd_bytes(bytes), bytes.size()) == 0);
  text.resize(size);
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3 + 3, '\0');
  size_t size = 0;
  if (mbedtls_base64_decode(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), &size,
                            etcd_bytes(text), text.size()) != 0)
    return std::nullopt;
  bytes.resize(size);
  return bytes;
}

// etcd's range_end is exclusive, so it is the key just after `last`.
EtcdJson json_of(const EtcdRange& range) {
  return {{"key", to_base64(range.first)}, {"range_end", to_base64(range.last + '\0')}};
}

// ---- fields of an answer; an absent value is the zero of its type

std::optional<EtcdJson> parse_object(std::string_view text) {
  EtcdJson json = EtcdJson::parse(text, nullptr, false);
  return json.is_object() ? std::optional(std::move(json)) : std::nullopt;
}

// Returns null if the member is absent or of another type.
const EtcdJson* etcd_member(const EtcdJson& object, const char* name, EtcdJson::value_t type) {
  const auto found = object.find(name);
  return found != object.end() && found->type() == type ? &*found : nullptr;
}

const EtcdJson* etcd_object(const EtcdJson& object, const char* name) {
  return etcd_member(object, name, EtcdJson::value_t::object);
}

std::string_view etcd_text(const EtcdJson& object, const char* name) {
  const EtcdJson* const text = etcd_member(object, name, EtcdJson::value_t::string);
  return text != nullptr ? std::string_view(text->get_ref<const std::string&>()) : "";
}

bool etcd_truth(const EtcdJson& object, const char* name) {
  const EtcdJson* const truth = etcd_member(object, name, EtcdJson::value_t::boolean);
  return truth != nullptr && truth->get<bool>();
}

// 64-bit numbers come as strings, smaller ones as numbers. Returns nullopt if it is neither.
std::optional<int64_t> etcd_number(const EtcdJson& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_string()) return whole_number<int64_t>(found->get_ref<const std::string&>());
  if (found->is_number_unsigned() && found->get<uint64_t>() > INT64_MAX) return std::nullopt;
  return found->is_number_integer() ? std::optional(found->get<int64_t>()) : std::nullopt;
}

std::optional<int64_t> etcd_revision(const EtcdJson& answer) {
  const EtcdJson* const header = etcd_object(answer, "header");
  return header != nullptr ? etcd_number(*header, "revision") : std::nullopt;
}

std::optional<EtcdValue> value_of(const EtcdJson& json) {
  if (!json.is_object()) return std::nullopt;
  auto key = from_base64(etcd_text(json, "key"));
  auto value = from_base64(etcd_text(json, "value"));
  const auto revision = etcd_number(json, "mod_revision");
  const auto lease = etcd_number(json, "lease");
  if (!key || !value || !revision || !lease) return std::nullopt;
  return EtcdValue{std::move(*key), std::move(*value), *revision, *lease};
}

bool read_values(const EtcdJson& range, std::vector<EtcdValue>& values) {
  const EtcdJson* const list = etcd_member(range, "kvs", EtcdJson::value_t::array);
  if (list == nullptr) return true;
  for (const EtcdJson& item : *list) {
    auto value = value_of(item);
    if (!value) return false;
    values.push_back(std::move(*value));
  }
  return true;
}

}  // namespace

std::string etcd_range_request(const EtcdRange& range) {
  return json_of(range).dump();
}

std::string etcd_txn_request(const EtcdTxn& txn) {
  EtcdJson compare = EtcdJson::array();
  for (const auto& [key, revision] : txn.revisions)
    compare.push_back({{"target", "MOD"},
                       {"key", to_base64(key)},
                       {"result", "EQUAL"},
                       {"mod_revision", std::to_string(revision)}});
  for (const auto& [key, value] : txn.values)
    compare.push_back({{"target", "VALUE"},
                       {"key", to_base64(key)},
                       {"result", "EQUAL"},
                       {"value", to_base64(value)}});
  EtcdJson success = EtcdJson::array();
  for (const auto& [key, value, lease] : txn.puts)
    success.push_back({{"request_put",
                        {{"key", to_base64(key)},
                         {"value", to_base64(value)},
                         {"lease", std::to_string(lease)}}}});
  for (const std::string& key : txn.deletes)
    success.push_back({{"request_delete_range", {{"key", to_base64(key)}}}});
  const EtcdJson failure = EtcdJson::array({{{"request_range", json_of(txn.read_else)}}});
  return EtcdJson{{"compare", compare}, {"success", success}, {"failure", failure}}.dump();
}

std::string etcd_lease_grant_request(int64_t ttl_s) {
  return EtcdJson{{"TTL", std::to_string(ttl_s)}}.dump();
}

std::string etcd_lease_request(int64_t lease) {
  return EtcdJson{{"ID", std::to_string(lease)}}.dump();
}

std::string etcd_watch_request(const EtcdRange& range, int64_t start_revision) {
  EtcdJson request = json_of(range);
  request["start_revision"] = std::to_string(start_revision);
  return EtcdJson{{"create_request", request}}.dump();
}

std::string etcd_authenticate_request(std::string_view user, std::string_view password) {
  // Names and passwords of etcd are UTF-8. Others must be refused by etcd, not throw here.
  return EtcdJson{{"name", user}, {"password", password}}.dump(-1, ' ', false,
                                                               EtcdJson::error_handler_t::replace);
}

std::optional<EtcdValues> decode_etcd_range(std::string_view text) {
  const auto json = parse_object(text);
  const auto revision = json ? etcd_revision(*json) : std::nullopt;
  EtcdValues answer;
  if (!revision || !read_values(*json, answer.values)) return std::nullopt;
  answer.revision = *revision;
  return answer;
}

std::optional<EtcdValues> decode_etcd_txn(std::string_view text) {
  const auto json = parse_object(text);
  const auto revision = json ? etcd_revision(*json) : std::nullopt;
  if (!revision) return std::nullopt;
  EtcdValues answer{etcd_truth(*json, "succeeded"), *revision, {}};
  const EtcdJson* const responses = etcd_member(*json, "responses", EtcdJson::value_t::array);
  if (responses == nullptr) return answer;
  for (const EtcdJson& response : *responses) {
    const EtcdJson* const range =
        response.is_object() ? etcd_object(response, "response_range") : nullptr;
    if (range != nullptr && !read_values(*range, answer.values)) return std::nullopt;
  }
  return answer;
}

std::optional<EtcdLease> decode_etcd_lease(std::string_view text) {
  const auto json = parse_object(text);
  if (!json) return std::nullopt;
  const EtcdJson* const result = etcd_object(*json, "result");  // Renewals are streamed.
  const EtcdJson& answer = result != nullptr ? *result : *json;
  const auto id = etcd_number(answer, "ID");
  const auto ttl = etcd_number(answer, "TTL");
  if (!id || !ttl || *id == 0 || *ttl < 0) return std::nullopt;
  return EtcdLease{*id, *ttl};
}

std::optional<EtcdWatchNews> decode_etcd_watch(std::string_view line) {
  const auto json = parse_object(line);
  const EtcdJson* const result = json ? etcd_object(*json, "result") : nullptr;
  if (result == nullptr) return std::nullopt;
  const EtcdJson* const events = etcd_member(*result, "events", EtcdJson::value_t::array);
  return EtcdWatchNews{events != nullptr && !events->empty(), etcd_truth(*result, "canceled"),
                       etcd_number(*result, "compact_revision").value_or(0) != 0};
}

std::optional<std::string> decode_etcd_token(std::string_view text) {
  const auto json = parse_object(text);
  const std::string_view token = json ? etcd_text(*json, "token") : "";
  const bool fits = !token.empty() && token.size() <= kTokenBytesMax;
  return fits && printable(token, token.size()) == token ? std::optional(std::string(token))
                                                         : std::nullopt;
}

std::optional<EtcdFailure> decode_etcd_failure(std::string_view text) {
  const auto json = parse_object(text);
  if (!json) return std::nullopt;
  const EtcdJson* const within = etcd_object(*json, "error");
  const EtcdJson& failure = within != nullptr ? *within : *json;
  const char* const name = failure.contains("grpc_code") ? "grpc_code" : "code";
  const auto code = etcd_number(failure, name);
  if (!failure.contains("message") || !code) return std::nullopt;
  return EtcdFailure{static_cast<int>(std::clamp<int64_t>(*code, 0, 99)),
                     printable(etcd_text(failure, "message"), kMessageBytesMax)};
}

}  // namespace muster

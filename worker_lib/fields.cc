#include "worker_lib/fields.h"

#include <charconv>

namespace muster::worker {

std::string encode_fields(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& field : fields)
    text.append(std::to_string(field.size())).append(1, ':').append(field);
  return text;
}

std::optional<std::vector<std::string>> decode_fields(std::string_view text) {
  std::vector<std::string> fields;
  while (!text.empty()) {
    size_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<size_t>(end - text.data());
    if (error != std::errc() || digits == text.size() || text[digits] != ':') return std::nullopt;
    text.remove_prefix(digits + 1);
    if (length > text.size()) return std::nullopt;
    fields.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return fields;
}

}  // namespace muster::worker

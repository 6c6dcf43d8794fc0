#include "worker_lib/fields.h"

#include "rendezvous/base/text.h"

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
    const std::optional<size_t> length = take_number<size_t>(text);
    if (!length || !text.starts_with(':')) return std::nullopt;
    text.remove_prefix(1);
    if (*length > text.size()) return std::nullopt;
    fields.emplace_back(text.substr(0, *length));
    text.remove_prefix(*length);
  }
  return fields;
}

}  // namespace muster::worker

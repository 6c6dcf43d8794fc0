// Encodes several strings as one, for values in the store: each as its length, a colon, and its
// bytes (netstrings without the comma). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

std::string encode_fields(const std::vector<std::string>& fields);
// nullopt: malformed.
std::optional<std::vector<std::string>> decode_fields(std::string_view text);

}  // namespace muster::worker

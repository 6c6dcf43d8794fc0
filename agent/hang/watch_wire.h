// The hang detector's small messages to the other nodes: which ranks to sample, and what was found.
// Pure; decoding treats its input as hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::hang {

// `ranks`: ascending; those that do not fit into a message are left out.
std::string encode_ranks(const std::vector<int>& ranks);
// Returns those from `first` to `last`. nullopt: malformed.
std::optional<std::vector<int>> decode_ranks(std::string_view bytes, int first, int last);

struct NumberedNews {
  uint64_t number = 0;  // Counts findings from 1.
  uint64_t oldest = 0;  // The oldest that can still be sent.
  std::string_view news;
};
std::string encode_news(const NumberedNews& news);
std::optional<NumberedNews> decode_news(std::string_view bytes);

}  // namespace muster::hang

// The small messages of the hang detector to the other nodes: which ranks to look at, and what was
// found. Pure; decoding treats its input as hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::hang {

// Ranks, ascending; those that do not fit into a message are left out.
std::string encode_ranks(const std::vector<int>& ranks);
// Of these, the ones from `first` to `last`. nullopt: not such a message.
std::optional<std::vector<int>> decode_ranks(std::string_view bytes, int first, int last);

struct NumberedNews {
  uint64_t number = 0;  // From 1 on, in the order in which it was found.
  uint64_t oldest = 0;  // The first one that can still be told.
  std::string_view news;
};
std::string encode_news(const NumberedNews& news);
std::optional<NumberedNews> decode_news(std::string_view bytes);

}  // namespace muster::hang

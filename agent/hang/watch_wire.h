// The hang detector's small messages: which ranks to sample and what was found, to the other nodes,
// and what the clients of the job's store wait for, from its host.
// Pure; decoding treats its input as hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/awaited_keys.h"

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

// Without connections and addresses; leaves out what does not fit into `bytes_max` >= 4.
std::string encode_awaited(std::vector<AwaitedKeys> waits, size_t bytes_max);
std::optional<std::vector<AwaitedKeys>> decode_awaited(std::string_view bytes);

}  // namespace muster::hang

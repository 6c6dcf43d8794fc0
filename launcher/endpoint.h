// Parsers for --nnodes, --rdzv-endpoint, --rdzv-conf and --store-allow, with torchrun's special
// cases (a bare "[::1]" is a host, the last colon separates the port, quotes stay part of keys and
// values). Pure; problems are phrases as in values.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/values/values.h"
#include "rendezvous/net/address.h"

namespace muster {

struct NodeRange {
  int min = 1;
  int max = 1;

  friend bool operator==(const NodeRange&, const NodeRange&) = default;
};

// "N" or "MIN:MAX" with 0 < MIN <= MAX.
Parsed<NodeRange> parse_node_range(std::string_view text);

struct Endpoint {
  std::string host;  // The brackets removed; empty: none was given.
  std::optional<int> port;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

Parsed<Endpoint> parse_endpoint(std::string_view text);

using RendezvousConf = std::vector<std::pair<std::string, std::string>>;

// "key=value,key=value"; a repeated key keeps its first place and its last value.
Parsed<RendezvousConf> parse_rendezvous_conf(std::string_view text);

// Checks the values of the keys that `backend` knows; ignores other keys.
Parsed<void> check_rendezvous_conf(std::string_view backend, const RendezvousConf& conf);

// One phrase for each key that no backend knows.
std::vector<std::string> unknown_conf_keys(const RendezvousConf& conf);

// One phrase for each known key without effect: it is for other backends, or only for torchrun.
std::vector<std::string> conf_keys_without_effect(std::string_view backend,
                                                  const RendezvousConf& conf);

std::optional<std::string> conf_value(const RendezvousConf& conf, std::string_view key);

// torchrun's boolean words: 1, true, t, yes, y and 0, false, f, no, n, in any case.
std::optional<bool> truth_of(std::string_view text);

// Parses addresses and ADDRESS/BITS, separated by commas.
Parsed<std::vector<Network>> parse_networks(std::string_view text);

}  // namespace muster

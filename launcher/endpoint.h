// How nodes are counted and found: the grammar of --nnodes, --rdzv-endpoint, --rdzv-conf and
// --store-allow, with torchrun's special cases (a bare "[::1]" is a host, the last colon separates
// the port, quotes stay part of keys and values). Pure; problems are phrases as in values.h.
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
  std::string host;  // Brackets removed. Empty: nothing was given.
  std::optional<int> port;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

Parsed<Endpoint> parse_endpoint(std::string_view text);

using RendezvousConf = std::vector<std::pair<std::string, std::string>>;

// "key=value,key=value"; a repeated key keeps its first place and its last value.
Parsed<RendezvousConf> parse_rendezvous_conf(std::string_view text);

// Checks the type of every key's value if `backend` knows the key; unknown keys are ignored.
Parsed<void> check_rendezvous_conf(std::string_view backend, const RendezvousConf& conf);

// One phrase for each key that is unknown to all backends.
std::vector<std::string> unknown_conf_keys(const RendezvousConf& conf);

// One phrase for each known key without effect: it is for other backends only, or for torchrun.
std::vector<std::string> conf_keys_without_effect(std::string_view backend,
                                                  const RendezvousConf& conf);

// The value of `key`, or nothing.
std::optional<std::string> conf_value(const RendezvousConf& conf, std::string_view key);

// torchrun's boolean words: 1, true, t, yes, y and 0, false, f, no, n, in any case.
std::optional<bool> truth_of(std::string_view text);

// Addresses and ADDRESS/BITS, separated by commas.
Parsed<std::vector<Network>> parse_networks(std::string_view text);

}  // namespace muster

#include "launcher/endpoint.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

enum class ConfType { positive_int, non_negative_number, boolean, store_type, text };

constexpr std::string_view kElasticBackends = "c10d,file,etcd";

struct ConfKey {
  std::string_view name;
  ConfType type;
  std::string_view backends;            // The backends that know it, separated by commas.
  std::string_view why_no_effect = {};  // Set for a key that has no effect in muster.

  bool is_for(std::string_view backend) const {
    return std::ranges::count(split(backends, ','), backend) > 0;
  }
};

constexpr std::array<ConfKey, 21> kConfKeys{{
    {"join_timeout", ConfType::positive_int, kElasticBackends},
    {"last_call_timeout", ConfType::positive_int, kElasticBackends},
    {"close_timeout", ConfType::positive_int, kElasticBackends,
     "the host of the job stays until every node has left"},
    {"heartbeat_timeout", ConfType::positive_int, kElasticBackends,
     "a node is lost once it has been silent for --lease"},
    {"keep_alive_interval", ConfType::positive_int, kElasticBackends},
    {"keep_alive_max_attempt", ConfType::positive_int, kElasticBackends},
    {"cas_backoff_max_seconds", ConfType::non_negative_number, kElasticBackends,
     "nodes do not compete for a shared value here"},
    {"is_host", ConfType::boolean, "c10d"},
    {"read_timeout", ConfType::positive_int, kElasticBackends},
    {"store_type", ConfType::store_type, "c10d,file"},
    {"timeout", ConfType::positive_int, "static,etcd"},
    // read_etcd_options() reads these.
    {"protocol", ConfType::text, "etcd"},
    {"cacert", ConfType::text, "etcd"},
    {"ca_cert", ConfType::text, "etcd"},
    {"cert", ConfType::text, "etcd"},
    {"ssl_cert", ConfType::text, "etcd"},
    {"key", ConfType::text, "etcd"},
    {"ssl_cert_key", ConfType::text, "etcd"},
    {"etcd_prefix", ConfType::text, "etcd"},
    {"user", ConfType::text, "etcd"},
    {"password_file", ConfType::text, "etcd"},
}};

// Keys that other flags set, and these flags.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kReservedKeys{{
    {"backend", "--rdzv-backend"},
    {"endpoint", "--rdzv-endpoint"},
    {"run_id", "--rdzv-id"},
    {"min_nodes", "--nnodes"},
    {"max_nodes", "--nnodes"},
    {"local_addr", "--local-addr"},
}};

std::string conf_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

Parsed<void> check_conf_value(ConfType type, const std::string& value) {
  const std::string lower = conf_lower_case(value);
  switch (type) {
    case ConfType::positive_int:
      if (const auto number = parse_int(value, 1); !number) return problem(number.error());
      return {};
    case ConfType::non_negative_number:
      if (const auto number = parse_number(value); !number || *number < 0) {
        return problem("not a number of 0 or more");
      }
      return {};
    case ConfType::boolean:
      if (truth_of(value)) return {};
      return problem("neither true nor false; give true or false");
    case ConfType::store_type:
      if (lower == "tcp" || lower == "file") return {};
      return problem("unknown; give tcp or file");
    case ConfType::text:
      return {};
  }
  return {};
}

// Null if no backend knows the key.
const ConfKey* find_conf_key(std::string_view key) {
  const auto known = std::ranges::find(kConfKeys, key, &ConfKey::name);
  return known == kConfKeys.end() ? nullptr : &*known;
}

std::string quote_hint(std::string_view key) {
  const bool quoted = key.front() == '\'' || key.front() == '"';
  return quoted ? "; the quotes came from the command line and are part of it" : "";
}

bool is_host_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         (static_cast<unsigned char>(c) & 0x80) || c == '_' || c == '.' || c == ':' || c == '-';
}

Parsed<void> check_host(const std::string& host) {
  if (host.empty()) return problem("the host is missing; give HOST[:PORT]");
  if (!std::all_of(host.begin(), host.end(), is_host_character)) {
    return problem(fmt::format("{} is not a host name or address; give HOST[:PORT]", shown(host)));
  }
  // A host with colons is an IPv6 address; "::1" without brackets would be host ":" and port 1.
  if (contains(host, ":") && !IpAddress::parse(host)) {
    return problem(fmt::format(
        "{} is not an IPv6 address; put the address in brackets, as in [::1]:29400", shown(host)));
  }
  return {};
}

Parsed<int> parse_port(std::string_view text) {
  const std::optional<uint16_t> port =
      text.size() <= 5 ? whole_number<uint16_t>(text) : std::nullopt;
  if (!port) return problem(fmt::format("port {} is not a number from 0 to 65535", shown(text)));
  return *port;
}

}  // namespace

Parsed<NodeRange> parse_node_range(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() > 2) return problem("too many colons; give N or MIN:MAX");
  const Parsed<int> min = parse_int(parts.front(), 1);
  const Parsed<int> max = parse_int(parts.back(), 1);
  if (!min || !max) {
    const std::string& reason = min ? max.error() : min.error();
    return problem(reason + ", as N or MIN:MAX");
  }
  if (*min > *max) {
    return problem(fmt::format("the minimum {} is above the maximum {}; give MIN:MAX", *min, *max));
  }
  return NodeRange{*min, *max};
}

Parsed<Endpoint> parse_endpoint(std::string_view text) {
  text = trim(text);
  if (text.empty()) return Endpoint{};
  Endpoint endpoint;
  std::string_view host = text;
  const std::size_t colon = text.rfind(':');
  const bool bare_address = text.front() == '[' && text.back() == ']';
  if (!bare_address && colon != std::string_view::npos) {
    host = text.substr(0, colon);
    const Parsed<int> port = parse_port(text.substr(colon + 1));
    if (!port) return problem(port.error());
    endpoint.port = *port;
  }
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  endpoint.host = std::string(host);
  if (const Parsed<void> fine = check_host(endpoint.host); !fine) return problem(fine.error());
  return endpoint;
}

Parsed<RendezvousConf> parse_rendezvous_conf(std::string_view text) {
  RendezvousConf conf;
  if (trim(text).empty()) return conf;
  for (const std::string_view item : split(trim(text), ',')) {
    const std::size_t equals = item.find('=');
    const std::string key(trim(item.substr(0, equals)));
    const std::string value(equals == std::string_view::npos ? std::string_view{}
                                                             : trim(item.substr(equals + 1)));
    if (key.empty()) return problem("an entry has no key; give KEY=VALUE,KEY=VALUE");
    if (value.empty()) {
      return problem(fmt::format("key {} has no value; give KEY=VALUE,KEY=VALUE", shown(key)));
    }
    const auto known = std::ranges::find(conf, key, &RendezvousConf::value_type::first);
    if (known == conf.end()) {
      conf.emplace_back(key, value);
    } else {
      known->second = value;
    }
  }
  return conf;
}

Parsed<void> check_rendezvous_conf(std::string_view backend, const RendezvousConf& conf) {
  for (const auto& [key, value] : conf) {
    for (const auto& [reserved, flag] : kReservedKeys) {
      if (key == reserved) return problem(fmt::format("key {} is set by {} instead", key, flag));
    }
    const ConfKey* const known = find_conf_key(key);
    if (known == nullptr || !known->is_for(backend)) continue;
    if (const Parsed<void> fine = check_conf_value(known->type, value); !fine) {
      return problem(fmt::format("{}={} is {}", key, shown(value), fine.error()));
    }
  }
  return {};
}

std::vector<std::string> unknown_conf_keys(const RendezvousConf& conf) {
  std::vector<std::string> phrases;
  for (const auto& [key, value] : conf) {
    if (find_conf_key(key) != nullptr) continue;
    phrases.push_back(fmt::format("key {} is unknown and ignored{}", shown(key), quote_hint(key)));
  }
  return phrases;
}

std::vector<std::string> conf_keys_without_effect(std::string_view backend,
                                                  const RendezvousConf& conf) {
  std::vector<std::string> phrases;
  for (const auto& [key, value] : conf) {
    const ConfKey* const known = find_conf_key(key);
    if (known == nullptr) continue;
    if (!known->is_for(backend)) {
      phrases.push_back(
          fmt::format("{} has no meaning for the {} backend and is ignored", key, backend));
    } else if (!known->why_no_effect.empty()) {
      phrases.push_back(fmt::format("{} has no effect: {}", key, known->why_no_effect));
    }
  }
  return phrases;
}

std::optional<bool> truth_of(std::string_view text) {
  static constexpr std::array<std::string_view, 5> kTrue{"1", "true", "t", "yes", "y"};
  static constexpr std::array<std::string_view, 5> kFalse{"0", "false", "f", "no", "n"};
  const std::string lower = conf_lower_case(text);
  if (std::ranges::count(kTrue, lower) > 0) return true;
  if (std::ranges::count(kFalse, lower) > 0) return false;
  return std::nullopt;
}

Parsed<std::vector<Network>> parse_networks(std::string_view text) {
  std::vector<Network> networks;
  for (const std::string_view item : split(text, ',')) {
    const std::optional<Network> network = Network::parse(trim(item));
    // Neither brackets nor a scope are part of a network.
    if (!network || contains(item, "[") || contains(item, "%")) {
      return problem(fmt::format(
          "{} is neither an address nor a network; give for example 10.0.0.0/8,fd00::/8, or any",
          shown(trim(item))));
    }
    networks.push_back(*network);
  }
  return networks;
}

std::optional<std::string> conf_value(const RendezvousConf& conf, std::string_view key) {
  for (const auto& [name, value] : conf) {
    if (name == key) return value;
  }
  return std::nullopt;
}

}  // namespace muster

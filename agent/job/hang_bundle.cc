#include "agent/job/hang_bundle.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/wire_json.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

using nlohmann::ordered_json;

constexpr int kBundleVersion = 1;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kValueBytesMax = 1024;
constexpr size_t kValuesMax = 16;  // Per variable.
constexpr size_t kSaidBytesMax = 65'536;
constexpr size_t kUnansweredMax = 1024;
constexpr const char* kHidden = "(hidden)";

// Words that mark a secret in names, and in values such as connection strings.
constexpr std::string_view kSecretNames[] = {"TOKEN",  "SECRET",     "PASS", "PWD",
                                             "KEY",    "CREDENTIAL", "AUTH", "CONNECTION",
                                             "COOKIE", "JWT",        "DSN",  "WEBHOOK"};
constexpr std::string_view kSecretValues[] = {
    "PASSWORD", "PASSWD", "PWD=", "TOKEN=", "SECRET", "KEY=", "SIG=", "BEARER ", "-----BEGIN"};

// Variables of the shell, of the session and of the node's launcher; each between blanks.
constexpr std::string_view kMeantToDiffer =
    " RANK LOCAL_RANK GROUP_RANK ROLE_RANK NODE_RANK PET_NODE_RANK HOSTNAME HOST PWD "
    "OLDPWD SHLVL _ SSH_CLIENT SSH_CONNECTION SSH_TTY XDG_SESSION_ID INVOCATION_ID "
    "JOURNAL_STREAM SYSTEMD_EXEC_PID JOB_COMPLETION_INDEX POD_NAME POD_IP NODE_NAME "
    "SLURM_NODEID SLURM_PROCID SLURM_LOCALID SLURM_GTIDS SLURM_TASK_PID "
    "SLURM_TOPOLOGY_ADDR SLURMD_NODENAME OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK "
    "OMPI_COMM_WORLD_NODE_RANK PMI_RANK PMIX_RANK PBS_NODENUM PBS_VNODENUM PBS_TASKNUM "
    "TORCHELASTIC_TIMER_FILE ";

bool holds_any(std::string_view text, std::span<const std::string_view> words) {
  std::string upper(text);
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return std::ranges::any_of(words, [&](std::string_view word) { return contains(upper, word); });
}

// True for a value like "postgres://user:secret@host/".
bool names_a_user(std::string_view value) {
  for (auto rest = text_after(value, "://"); rest; rest = text_after(*rest, "://")) {
    if (contains(rest->substr(0, rest->find('/')), "@")) return true;
  }
  return false;
}

bool may_be_secret(std::string_view name, std::string_view value) {
  return holds_any(name, kSecretNames) || holds_any(value, kSecretValues) || names_a_user(value);
}

int short_digest(std::string_view value) {
  uint64_t hash = fnv1a(value);
  hash ^= hash >> 32;
  return static_cast<int>((hash ^ hash >> 16) & 0xffff);
}

// One variable on each node; nullptr: it is not set there.
using OnNodes = std::map<int, const control::Variable*>;

bool is_the_same(const control::Variable* a, const control::Variable* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->value == b->value && a->digest == b->digest;
}

ordered_json value_json(const control::Variable* variable) {
  if (variable == nullptr) return {};
  return variable->value.value_or(kHidden);
}

// The values of a variable, that of most nodes first; null: all are the same.
ordered_json values_json(const OnNodes& on_nodes) {
  struct Value {
    const control::Variable* variable = nullptr;
    std::vector<int> nodes;
  };
  std::vector<Value> values;
  for (const auto& [node, variable] : on_nodes) {
    const auto same = std::ranges::find_if(
        values, [one = variable](const Value& known) { return is_the_same(known.variable, one); });
    Value& value = same != values.end() ? *same : values.emplace_back(Value{variable, {}});
    value.nodes.push_back(node);
  }
  if (values.size() < 2) return {};
  std::ranges::sort(values, [](const Value& a, const Value& b) {
    return std::tuple(b.nodes.size(), a.nodes.front()) <
           std::tuple(a.nodes.size(), b.nodes.front());
  });
  values.resize(std::min(values.size(), kValuesMax));
  ordered_json list = ordered_json::array();
  for (const Value& value : values)
    list.push_back({{"value", value_json(value.variable)}, {"nodes", value.nodes}});
  return list;
}

ordered_json fitting(const ordered_json& list, size_t bytes_max) {
  ordered_json kept = ordered_json::array();
  size_t bytes = 0;
  for (const ordered_json& one : list) {
    bytes += wire::dump(one).size() + 1;
    if (bytes > bytes_max) break;
    kept.push_back(one);
  }
  return kept;
}

ordered_json head_of(const HangBundle& bundle, size_t bytes_max) {
  ordered_json head;
  head["version"] = kBundleVersion;
  head["time"] = wall_time_iso(bundle.time);
  head["run_id"] = bundle.run_id;
  head["verdict"] = bundle.verdict ? hang_json(*bundle.verdict) : ordered_json();
  head["text"] = wire::fitting_text(bundle.text, kSaidBytesMax);
  head["variables"] = fitting(differing_variables(bundle.variables), bytes_max / 8);
  head["unanswered"] = bundle.unanswered;
  if (bundle.unanswered.size() > kUnansweredMax)
    head["unanswered"] =
        std::vector(bundle.unanswered.begin(), bundle.unanswered.begin() + kUnansweredMax);
  head["left_out"] = bundle.world_size;
  return head;
}

// What each rank adds to the file, as JSON.
template <typename Rank>
class RankList {
 public:
  RankList(const char* key, const std::vector<Rank>& ranks) : key_(key) {
    for (const Rank& rank : ranks)
      texts_.emplace_back(rank.rank, control::encode(rank));
  }

  void add_bytes(std::map<int, size_t>& bytes_of) const {
    for (const auto& [rank, text] : texts_)
      bytes_of[rank] += text.size() + 1;
  }

  std::string of(const std::set<int>& ranks) const {
    std::string list;
    for (const auto& [rank, text] : texts_) {
      if (!ranks.contains(rank)) continue;
      list += list.empty() ? "" : ",";
      list += text;
    }
    return std::string(",\"") + key_ + "\":[" + list + "]";
  }

 private:
  const char* key_;
  std::vector<std::pair<int, std::string>> texts_;
};

}  // namespace

std::vector<int> bundle_ranks(const std::optional<HangReport>& verdict, int world_size,
                              size_t ranks_max) {
  std::vector<int> ranks;
  std::set<int> known;
  const auto take = [&](int rank) {
    if (ranks.size() < ranks_max && known.insert(rank).second) ranks.push_back(rank);
  };
  if (verdict) {
    std::ranges::for_each(verdict->ranks, take);
    std::ranges::for_each(verdict->waiting, take);
  }
  for (int rank = 0; rank < world_size && ranks.size() < ranks_max; ++rank)
    take(rank);
  return ranks;
}

std::string bundle_file(const HangBundle& bundle, size_t bytes_max) {
  constexpr size_t kAroundLists = 64;
  ordered_json head = head_of(bundle, bytes_max);
  const RankList records("records", bundle.records);
  const RankList stacks("stacks", bundle.stacks);
  std::map<int, size_t> bytes_of;
  records.add_bytes(bytes_of);
  stacks.add_bytes(bytes_of);
  size_t bytes = wire::dump(head).size() + kAroundLists;
  std::set<int> kept;
  for (const int rank : bundle.ranks) {
    bytes += bytes_of[rank];
    if (bytes > bytes_max) break;
    kept.insert(rank);
  }
  head["left_out"] = bundle.world_size - static_cast<int>(kept.size());
  std::string file = wire::dump(head);
  file.pop_back();
  return file + records.of(kept) + stacks.of(kept) + "}\n";
}

control::Variables shown_variables(const std::map<std::string, std::string>& environment) {
  control::Variables variables;
  for (const auto& [name, value] : environment) {
    if (contains(kMeantToDiffer, " " + name + " ")) continue;
    control::Variable& shown = variables.emplace_back();
    shown.name = wire::fitting_text(name, kNameBytesMax);
    shown.digest = short_digest(value);
    if (!may_be_secret(name, value)) shown.value = wire::fitting_text(value, kValueBytesMax);
  }
  return variables;
}

nlohmann::ordered_json differing_variables(const std::vector<NodeVariables>& nodes) {
  std::map<std::string_view, OnNodes> by_name;
  for (const NodeVariables& node : nodes) {
    for (const control::Variable& variable : node.variables)
      by_name[variable.name][node.node_rank] = &variable;
  }
  ordered_json list = ordered_json::array();
  for (auto& [name, on_nodes] : by_name) {
    for (const NodeVariables& node : nodes)
      on_nodes.try_emplace(node.node_rank, nullptr);
    ordered_json values = values_json(on_nodes);
    if (!values.is_null()) list.push_back({{"name", name}, {"values", std::move(values)}});
  }
  return list;
}

}  // namespace muster

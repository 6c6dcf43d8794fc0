// Engines' facts about a job, in variables and in a hosts file that may be cut off or foreign;
// above all Slurm's lists of nodes and counts. Checked: the facts are consistent.
#include <array>
#include <string>
#include <string_view>

#include "launcher/engines/engine.h"
#include "launcher/engines/node_list.h"
#include "rendezvous/base/text.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, 3> kEngines{"slurm", "mpi", "kubernetes"};

void check(const EngineFacts& facts) {
  CHECK(facts.nodes.value >= 0 && facts.node_rank.value >= 0);
  CHECK(!facts.workers || facts.workers->value >= 0);
  if (!facts.task) return;
  CHECK(facts.task->local_rank >= 0 && facts.task->local_rank < facts.task->local_size);
  CHECK(facts.node_rank.value < facts.nodes.value);
}

// The input has lines of NAME=value and, after an empty line, the hosts file.
void read_facts(const std::string& text) {
  const size_t blank = text.find("\n\n");
  const std::string hosts = blank == std::string::npos ? "" : text.substr(blank + 2);
  Environment environment;
  for (const std::string_view line : split(std::string_view(text).substr(0, blank), '\n')) {
    const size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      environment[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  for (const std::string_view engine : kEngines) {
    const EngineOutcome found =
        find_engine(environment, [&hosts](std::string_view) { return hosts; }, engine);
    if (found && *found) check(**found);
  }
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  muster::read_facts(text);
  const std::string host = muster::first_host_of(text);
  const auto position = muster::position_of_host(text, host);
  CHECK(!position || *position >= 0);
  return 0;
}

#include "launcher/engines/slurm_step_command.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// Variables that make srun give fewer CPUs or GPUs, place tasks otherwise, or change output lines.
constexpr std::array<std::string_view, 11> kMisleading{
    "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_CPUS_PER_TASK",
    "SRUN_CPUS_PER_TASK",  "SLURM_EXACT",         "SLURM_EXCLUSIVE",      "SLURM_DISTRIBUTION",
    "SLURM_HOSTFILE",      "SLURM_LABELIO",       "SLURM_OVERCOMMIT"};

// Variables of a heterogeneous job's first part, which srun would apply to all parts.
constexpr std::array<std::string_view, 4> kOfOnePart{"SLURM_GPUS", "SLURM_NTASKS", "SLURM_NPROCS",
                                                     "SLURM_CPUS_PER"};

int number_of(const Environment& environment, const char* name) {
  return whole_number<int>(lookup(environment, name).value_or("")).value_or(0);
}

// The number of GPUs to ask for if the job got its GPUs per task, else 0. Without asking, a step of
// fewer tasks would get fewer GPUs.
int gpus_by_task(const Environment& environment, int nodes) {
  const int each = number_of(environment, "SLURM_GPUS_PER_TASK");
  return each * std::max(number_of(environment, "SLURM_NTASKS"), nodes);
}

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word)
    text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace

SlurmStepCommand slurm_step_command(const StepToStart& step, const SlurmStepNames& names,
                                    const std::vector<std::string>& args,
                                    const Environment& environment) {
  const int nodes = step.on.nodes.value;
  const bool parts = step.on.parts > 1;
  SlurmStepCommand command;
  std::vector<std::string>& argv = command.argv;
  argv = {"srun", "--job-name=" + names.step, "--export=ALL"};
  if (parts) {
    argv.push_back(fmt::format("--het-group=0-{}", step.on.parts - 1));
  } else {
    argv.insert(argv.end(), {fmt::format("--nodes={}", nodes), fmt::format("--ntasks={}", nodes)});
  }
  argv.insert(argv.end(), {"--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0"});
  if (step.elastic) argv.push_back("--no-kill");
  if (const int gpus = gpus_by_task(environment, nodes); gpus > 0 && !parts)
    argv.push_back(fmt::format("--gpus={}", gpus));
  argv.push_back(names.muster);
  argv.insert(argv.end(), args.begin(), args.end());

  command.environment = environment;
  std::erase_if(command.environment, [parts](const auto& variable) {
    const std::string& name = variable.first;
    const auto begins = [&name](std::string_view one) { return name.starts_with(one); };
    return std::ranges::count(kMisleading, name) > 0 ||
           (parts && std::ranges::any_of(kOfOnePart, begins));
  });
  if (!step.token_file) command.environment.try_emplace(std::string(env::kToken), names.token);
  return command;
}

std::string SlurmStepCommand::text() const {
  std::string text;
  for (const std::string& word : argv)
    text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

std::vector<std::string> step_ids_in(std::string_view listing, std::string_view name) {
  std::vector<std::string> ids;
  for (const std::string_view line : split(listing, '\n')) {
    const size_t blank = line.find(' ');
    if (blank != std::string_view::npos && trim(line.substr(blank)) == name)
      ids.emplace_back(line.substr(0, blank));
  }
  return ids;
}

}  // namespace muster

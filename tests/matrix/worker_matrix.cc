// Compares every operation of a process group with a reference computed by one process. Run as the
// ranks of a job, once for each world size:
//
//   muster --nproc-per-node 3 --no-python worker_matrix --worlds 1,2,3,4,5 [--backend gloo]
//
// The cases of all world sizes together cover all pairs of parameters; each run performs those of
// its own size. --all performs everything, --case N only one, with the seed that was printed.
// --plant R corrupts the input of rank R, to show that this is found.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/init.h"
#include "rendezvous/base/prng.h"
#include "tests/matrix/case.h"
#include "tests/matrix/perform.h"
#include "tests/matrix/test_cuda.h"
#include "tests/matrix/values.h"

namespace muster::matrix {
namespace {

constexpr int kSkipped = 77;
constexpr uint64_t kSeed = 20240607;
constexpr int kFaultsShown = 10;

struct Arguments {
  Setting setting;
  uint64_t seed = kSeed;
  bool everything = false;
  std::optional<size_t> only;
  bool list = false;
};

uint64_t number_of(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    std::fprintf(stderr, "worker_matrix: '%s' is no number\n", std::string(text).c_str());
    std::exit(2);
  }
  return number;
}

Backend backend_named(std::string_view name) {
  for (const Backend backend : {Backend::cpu, Backend::nccl, Backend::gloo}) {
    if (name == muster::name_of(backend)) return backend;
  }
  std::fprintf(stderr, "worker_matrix: no backend '%s'\n", std::string(name).c_str());
  std::exit(2);
}

std::vector<int> worlds_of(std::string_view list) {
  std::vector<int> worlds;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    worlds.push_back(static_cast<int>(number_of(list.substr(0, end))));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return worlds;
}

Arguments arguments_of(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--all") {
      arguments.everything = true;
    } else if (option == "--list") {
      arguments.list = true;
    } else if (i + 1 < argc && option == "--seed") {
      arguments.seed = number_of(argv[++i]);
    } else if (i + 1 < argc && option == "--case") {
      arguments.only = number_of(argv[++i]);
    } else if (i + 1 < argc && option == "--plant") {
      arguments.setting.planted_rank = static_cast<int>(number_of(argv[++i]));
    } else if (i + 1 < argc && option == "--worlds") {
      arguments.setting.worlds = worlds_of(argv[++i]);
    } else if (i + 1 < argc && option == "--backend") {
      arguments.setting.backend = backend_named(argv[++i]);
    } else {
      std::fprintf(stderr, "worker_matrix: unknown or unfinished option '%s'\n", argv[i]);
      std::exit(2);
    }
  }
  return arguments;
}

// The groups of a run, each made by all its members at the case that uses it first.
class Groups {
 public:
  explicit Groups(uint64_t seed) : seed_(seed) {}

  // Draws two groups of each size. Returns an empty handle if this rank is not a member.
  ProcessGroup group_for(const Case& what, size_t index) {
    if (what.group == GroupKind::world) return world();
    const std::vector<GlobalRank> ranks = drawn(what.members, index % 2);
    if (std::ranges::find(ranks, GlobalRank{rank()}) == ranks.end()) return {};
    const auto found = made_.find(ranks);
    if (found != made_.end()) return found->second;
    return made_.emplace(ranks, new_group(ranks)).first->second;
  }

  size_t count() const { return made_.size(); }

 private:
  std::vector<GlobalRank> drawn(int members, uint64_t which) const {
    std::vector<GlobalRank> all;
    for (int r = 0; r < world_size(); ++r)
      all.push_back(GlobalRank{r});
    Prng prng(mixed(seed_, static_cast<uint64_t>(members) * 2 + which));
    for (size_t i = all.size(); i > 1; --i)
      std::swap(all[i - 1], all[prng.below(i)]);
    all.resize(static_cast<size_t>(members));
    return all;
  }

  uint64_t seed_;
  std::map<std::vector<GlobalRank>, ProcessGroup> made_;
};

bool belongs_here(const Case& what, const Setting& setting) {
  const int world = what.group == GroupKind::world ? what.members : setting.world_max();
  return world == world_size();
}

struct Tally {
  int64_t cases = 0;      // Cases of this world.
  int64_t performed = 0;  // Those with this rank as a member.
  int64_t faults = 0;
};

Tally perform_all(const Arguments& arguments, const Cases& cases, Groups& groups) {
  Tally tally;
  for (size_t i = 0; i < cases.cases.size(); ++i) {
    const Case& what = cases.cases[i];
    if ((arguments.only && *arguments.only != i) || !belongs_here(what, arguments.setting))
      continue;
    ++tally.cases;
    try {
      const ProcessGroup group = groups.group_for(what, i);
      if (!group.valid()) continue;
      ++tally.performed;
      const auto fault = fault_of(group, what, mixed(arguments.seed, i), arguments.setting);
      if (!fault || ++tally.faults > kFaultsShown) continue;
      std::fprintf(stderr, "FAULT: rank %d, case %zu, seed %llu: %s: %s\n", rank(), i,
                   static_cast<unsigned long long>(arguments.seed), describe(what).c_str(),
                   fault->c_str());
    } catch (const DistributedError&) {
      std::fprintf(stderr, "FAULT: rank %d, case %zu, seed %llu: %s threw\n", rank(), i,
                   static_cast<unsigned long long>(arguments.seed), describe(what).c_str());
      throw;
    }
  }
  return tally;
}

// Rank 0 prints the totals of all ranks in one line, which the driver parses.
int report(const Arguments& arguments, const Cases& cases, const Groups& groups, Tally own) {
  // A separate cpu group, since the world's backend may take only GPU memory.
  std::vector<GlobalRank> all;
  for (int r = 0; r < world_size(); ++r)
    all.push_back(GlobalRank{r});
  ProcessGroup everybody = new_group(all, {.name = "tally", .backend = Backend::cpu});
  std::vector<int64_t> sums{own.performed, own.faults, static_cast<int64_t>(groups.count())};
  everybody.all_reduce(sums);
  if (rank() == 0) {
    std::printf(
        "matrix: backend %s, world %d, seed %llu: %lld of %zu cases, which cover %zu pairs; "
        "%lld performances, %lld memberships in drawn groups, %lld faults\n",
        muster::name_of(arguments.setting.backend), world_size(),
        static_cast<unsigned long long>(arguments.seed), static_cast<long long>(own.cases),
        cases.cases.size(), cases.pairs, static_cast<long long>(sums[0]),
        static_cast<long long>(sums[2]), static_cast<long long>(sums[1]));
  }
  return sums[1] == 0 ? 0 : 1;
}

void list(const Cases& cases) {
  for (size_t i = 0; i < cases.cases.size(); ++i) {
    std::printf("%6zu  %s\n", i, describe(cases.cases[i]).c_str());
  }
  std::printf("%zu cases, %zu pairs covered\n", cases.cases.size(), cases.pairs);
}

std::optional<std::string> missing(Backend backend) {
  std::string why;
  if (backend == Backend::nccl && !is_nccl_available(&why)) return why;
  if (backend == Backend::gloo && !is_gloo_available(&why)) return why;
  return std::nullopt;
}

int run(Arguments arguments) {
  if (const auto why = missing(arguments.setting.backend)) {
    std::fprintf(stderr, "SKIPPED: %s\n", why->c_str());
    return kSkipped;
  }
  if (arguments.setting.backend == Backend::nccl) let_ranks_share_gpus();
  InitOptions options;
  options.backend = arguments.setting.backend;
  options.timeout = std::chrono::seconds{60};
  init_process_group(options);
  if (arguments.setting.worlds.empty()) arguments.setting.worlds = {world_size()};
  const Cases cases = cases_of(arguments.setting, arguments.seed, arguments.everything);
  Groups groups(arguments.seed);
  const Tally tally = perform_all(arguments, cases, groups);
  const int status = report(arguments, cases, groups, tally);
  destroy_process_group();
  return status;
}

}  // namespace
}  // namespace muster::matrix

int main(int argc, char** argv) {
  using namespace muster::matrix;
  const Arguments arguments = arguments_of(argc, argv);
  if (arguments.list) {
    list(cases_of(arguments.setting, arguments.seed, arguments.everything));
    return 0;
  }
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "worker_matrix: %s\n", error.what());
    return 1;
  }
}

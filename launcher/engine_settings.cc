#include "launcher/engine_settings.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "launcher/endpoint.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, 3> kMeetingFlags{"rdzv-endpoint", "master-addr",
                                                        "master-port"};

constexpr std::array<std::string_view, 4> kNodeFlags{"gpus", "gpu-binding", "numa-binding",
                                                     "virtual-local-rank"};

class Use {
 public:
  Use(Settings& settings, const EngineFacts& facts) : settings_(settings), facts_(facts) {}

  EngineUse result() {
    read_nodes();
    if (settings_.error()) return use_;
    const bool workers_taken = take_workers();
    const std::string meeting = meeting_flag();
    if (meeting.empty() && settings_.given("spares") &&
        (facts_.nodes.value != 1 || facts_.reserved)) {
      settings_.refuse_value("spares",
                             "an engine's nodes are numbered, and none of them waits; give "
                             "--nnodes MIN:MAX, or --rdzv-endpoint HOST:PORT");
      return use_;
    }
    if (facts_.reserved && starts_step(meeting)) {
      use_.start = StepToStart{*facts_.reserved, nodes_ && nodes_->min < nodes_->max,
                               settings_.given("rdzv-token-file")};
      return use_;
    }
    if (!meeting.empty() || one_node_meant() || facts_.nodes.value == 1 || facts_.reserved) {
      refuse_lone_worlds(meeting);
    } else {
      meet();
    }
    describe(workers_taken);
    return use_;
  }

 private:
  void read_nodes() {
    if (!settings_.given("nnodes")) return;
    nodes_.emplace();
    settings_.read("nnodes", *nodes_, parse_node_range);
  }

  // The flag that replaces the facts about where the nodes meet; empty: none.
  std::string meeting_flag() {
    if (settings_.on("standalone")) return "--standalone";
    for (const std::string_view flag : kMeetingFlags) {
      if (settings_.non_blank(flag)) return settings_.shown_as(flag);
    }
    const std::string backend = settings_.text("rdzv-backend", "");
    const bool elsewhere = !backend.empty() && backend != "c10d" && backend != "static";
    return elsewhere ? settings_.shown_as("rdzv-backend") : "";
  }

  bool one_node_meant() const { return nodes_ && nodes_->max == 1; }

  bool take_workers() {
    if (!facts_.workers || facts_.workers->value == 0 || settings_.given("nproc-per-node"))
      return false;
    settings_.add_fact("nproc-per-node", facts_.workers->value, facts_.workers->shown());
    return true;
  }

  // False if flags say that this process is one node of a job that is started otherwise.
  bool starts_step(const std::string& meeting) {
    return meeting.empty() && !one_node_meant() && !settings_.given("node-rank");
  }

  void refuse(const std::string& why) {
    settings_.refuse(fmt::format("{}: {}; --engine none ignores what it says", facts_.name, why));
  }

  // Refuses one job per process, unless --nnodes or --standalone shows that it is meant.
  void refuse_lone_worlds(const std::string& meeting) {
    if (facts_.reserved || nodes_ || meeting == "--standalone" || facts_.nodes.value == 1) return;
    refuse(
        fmt::format("{} started, each of which would be a job of its own without --nnodes beside "
                    "{}: give --nnodes as well, or leave both out; --nnodes 1 says that this is "
                    "meant",
                    started(), meeting));
  }

  std::string started() const {
    if (facts_.nodes.value == 0) return fmt::format("several pods may be ({})", facts_.nodes.from);
    return fmt::format("{} of muster were ({})", counted(facts_.nodes.value, "process"),
                       facts_.nodes.shown());
  }

  void meet() {
    if (!facts_.unserved.empty()) return refuse(facts_.unserved);
    if (facts_.nodes.value == 0 && !nodes_) {
      return refuse(fmt::format(
          "{} says which pod this is, and not how many there are: set PET_NNODES to the job's "
          "number of completions in the pod template, or give --nnodes; --nnodes 1 says that each "
          "is a job of its own",
          facts_.node_rank.shown()));
    }
    if (nodes_ && facts_.nodes.value > 0 && !check_count()) return;
    if (facts_.task && !(facts_.task->local_size == 1 && is_node_meant())) {
      if (!check_task()) return;
      use_.task = facts_.task;
    }
    use_.meets = true;
    if (!nodes_) settings_.add_fact("nnodes", facts_.nodes.value, facts_.nodes.shown());
    if (!settings_.given("node-rank"))
      settings_.add_fact("node-rank", facts_.node_rank.value, facts_.node_rank.shown());
  }

  bool check_count() {
    if (nodes_->min <= facts_.nodes.value && facts_.nodes.value <= nodes_->max) return true;
    settings_.refuse_value(
        "nnodes",
        fmt::format("{} started {} of muster ({}); start as many as the job has nodes, or "
                    "leave the flag out",
                    facts_.name, counted(facts_.nodes.value, "process"), facts_.nodes.shown()));
    return false;
  }

  // True if a flag is given that a task alone on its node may have, but not one of several.
  bool is_node_meant() {
    return (settings_.given("nproc-per-node") && settings_.text("nproc-per-node", "") != "1") ||
           (nodes_ && nodes_->min != nodes_->max) ||
           std::ranges::any_of(kNodeFlags,
                               [this](std::string_view flag) { return settings_.given(flag); });
  }

  // Refuses flags that contradict tasks, each of which is one worker that the engine has placed.
  bool check_task() {
    if (nodes_ && nodes_->min != nodes_->max) {
      settings_.refuse_value("nnodes",
                             "with several tasks on a node the ranks are the engine's, and their "
                             "number is fixed; start one task on each node");
      return false;
    }
    const std::string workers = settings_.text("nproc-per-node", "1");
    if (settings_.given("nproc-per-node") && workers != "1") {
      settings_.refuse_value(
          "nproc-per-node",
          fmt::format("{} started {} on this node, each of which has one worker; start one task on "
                      "each node, or leave the flag out",
                      facts_.name, counted(facts_.task->local_size, "task")));
      return false;
    }
    for (const std::string_view flag : kNodeFlags) {
      if (!settings_.given(flag)) continue;
      settings_.refuse_value(flag,
                             "with several tasks on a node the engine places them (srun "
                             "--gpus-per-task, --cpu-bind); start one task on each node, or leave "
                             "the flag out");
      return false;
    }
    return true;
  }

  // "Slurm 4711.0: node 2 of 4, 8 workers (SLURM_GPUS_ON_NODE), host n1"
  // "Slurm 4711.0: 32 ranks (SLURM_STEP_NUM_TASKS), 8 of them on this node, host n1"
  void describe(bool workers_taken) {
    std::string line;
    const auto add = [&line](std::string part) { line += (line.empty() ? "" : ", ") + part; };
    if (use_.task) {
      if (facts_.node_rank.value > 0) return;  // Task 0 prints one line for all.
      add(fmt::format("{} ({}), {} of them on this node", counted(facts_.nodes.value, "rank"),
                      facts_.nodes.from, facts_.task->local_size));
    } else if (use_.meets) {
      add(fmt::format("node {} of {}", settings_.text("node-rank", ""),
                      settings_.text("nnodes", "")));
    }
    if (workers_taken) {
      add(fmt::format("{} ({})", counted(facts_.workers->value, "worker"), facts_.workers->from));
    }
    if (use_.meets && !facts_.host.empty()) add("host " + facts_.host);
    if (!line.empty()) use_.line = fmt::format("{}: {}", facts_.name, line);
  }

  Settings& settings_;
  const EngineFacts& facts_;
  std::optional<NodeRange> nodes_;  // The user's --nnodes.
  EngineUse use_;
};

}  // namespace

EngineUse use_engine(Settings& settings, const EngineFacts& facts) {
  return Use(settings, facts).result();
}

}  // namespace muster

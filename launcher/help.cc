#include "launcher/help.h"

#include <fmt/format.h>

#include "launcher/option_table.h"
#include "launcher/values/values.h"

namespace muster {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kHelpIndent = 8;

constexpr std::string_view kOpening = R"(Usage: muster [FLAGS] PROGRAM [ARGS...]

Starts a program several times, on this machine or with the same command on each
of several, as the workers of one job, tells them their ranks by environment
variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ... as
torchrun does), restarts all of them when one fails or a node is lost, stops
all of them when told to, leaves nothing behind, and says which one failed first
and why. musterctl shows running jobs, their logs and collectives, and sends
signals.

Examples:
  muster --nproc-per-node 4 train.py --lr 0.1
        four workers of a Python script
  muster --nproc-per-node gpu --max-restarts 3 --log-dir logs -t 3 -m pkg.train
        a module, one worker per GPU, three restarts, logs kept and shown
  muster --nproc-per-node 8 --gpu-binding exclusive ./solver case.toml
        any executable, each worker with a GPU of its own
  muster --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d \
         --rdzv-endpoint node0:29400 --rdzv-id job7 train.py
        four machines, this line on each of them
)";

constexpr std::string_view kClosing = R"(
PROGRAM:
  A .py file is run by Python with -u. An executable or a script with a #! line
  is run directly, a name that is no file here is looked up on PATH. Everything
  after PROGRAM belongs to it, also what looks like a flag. In its arguments
  ${local_rank} and $local_rank become the worker's local rank, and $$ a $.

PYTHON:
  --python, else $PYTHON_EXEC, else that of $VIRTUAL_ENV or $CONDA_PREFIX, else
  python or python3 beside muster (unless pipx or uv keeps that for muster
  alone), else python3 or python on PATH.

Environment:
  --a-flag can be set as PET_A_FLAG (flags without a value: 1 or 0); the command
  line wins. Not so --numa-binding, --logs-specs, --use-env and the flags under
  Information. MUSTER_TOKEN is the secret that the nodes of a job share.

Flags may be written with dashes or underscores, as --flag VALUE or as
--flag=VALUE, and be shortened while they stay unambiguous. The last one wins.

Exit code:
  0 success; a failed job ends with the code of the worker that failed first
  (signal n as 128+n). muster's own: 2 wrong usage, 120 internal error, 121 the
  machine refuses (folder, port, limit, GPU), 122 rendezvous failed, 123 a
  worker could not be stopped, 126 the program cannot be executed, 127 it does
  not exist.
)";

std::string heading_of(const OptionRow& row) {
  std::string heading = "  ";
  if (row.letter != 0) heading += fmt::format("-{}, ", row.letter);
  heading += fmt::format("--{}", row.name);
  if (!row.value.empty()) heading += fmt::format("{}{}", row.takes_value() ? " " : "", row.value);
  return heading;
}

std::string paragraph_of(const OptionRow& row) {
  if (row.default_text.empty() || !row.takes_value()) return std::string(row.help);
  return fmt::format("{} Default: {}.", row.help, row.default_text);
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string result;
  std::size_t column = 0;
  for (const std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    if (column > 0 && column + 1 + word.size() > width) {
      result += '\n';
      column = 0;
    }
    const std::size_t gap = column == 0 ? indent : 1;
    result.append(gap, ' ');
    result += word;
    column += gap + word.size();
  }
  return result + "\n";
}

std::string help_text() {
  std::string text(kOpening);
  std::string_view group;
  for (const OptionRow& row : option_rows()) {
    if (row.group.empty()) continue;
    if (row.group != group) text += fmt::format("\n{}:\n", row.group);
    group = row.group;
    text += heading_of(row) + "\n" + wrapped(paragraph_of(row), kHelpIndent, kColumns);
  }
  return text + std::string(kClosing);
}

}  // namespace muster

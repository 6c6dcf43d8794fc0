#include <string_view>

#include <fmt/format.h>

#include "launcher/help.h"
#include "launcher/option_table.h"
#include "launcher/values/values.h"

namespace muster {
namespace {

constexpr std::string_view kManOpening = R"(.TH MUSTER 1
.SH NAME
muster \- start, supervise and restart the workers of a distributed job
.SH SYNOPSIS
.B muster
.RI [ FLAGS ]
.I PROGRAM
.RI [ ARGS ...]
.SH DESCRIPTION
Starts
.I PROGRAM
several times as the workers of one job and tells them their ranks by
environment variables, as torchrun does: RANK, LOCAL_RANK, WORLD_SIZE,
LOCAL_WORLD_SIZE, GROUP_RANK, ROLE_RANK, MASTER_ADDR, MASTER_PORT,
TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_RUN_ID and others.
When a worker fails, all are stopped and, within \fB\-\-max\-restarts\fR, restarted.
When muster is told to end by SIGTERM, SIGINT, SIGQUIT or SIGHUP, the
workers get SIGTERM, a time of grace, then SIGKILL; a second Ctrl-C kills at
once. Nothing of the job outlives muster.
.PP
The same command on several machines makes one job of them (\fB\-\-nnodes\fR). They
meet where \fB\-\-rdzv\-endpoint\fR says; when a node is lost or a new one comes, all
workers are stopped and restarted with those that are there.
.BR musterctl (1)
shows a running job.
.PP
A .py file is run by Python with \-u; an executable or a script with a #! line is
run directly; a name that is no file in the current folder is looked up on PATH.
Everything after
.I PROGRAM
belongs to it. In its arguments ${local_rank} and $local_rank become the worker's
local rank, and $$ becomes $.
.PP
Flags may be written with dashes or underscores and be shortened while they stay
unambiguous; the last one wins.
.SH OPTIONS
)";

constexpr std::string_view kManClosing = R"(.SH ENVIRONMENT
.TP
.B PET_*
.RI \-\-a\-flag
can be set as PET_A_FLAG; the command line wins. Flags without a value take 1 or
0. The variables are named beside the flags above.
.TP
.B MUSTER_TOKEN
The secret that the nodes of a job share, where \-\-rdzv\-token\-file is not given.
.TP
.B MUSTER_RUN_DIR
A folder of this user's where musterctl finds the job, or one that others can
enter, too: then muster\-UID in it. Without it: muster in XDG_RUNTIME_DIR, or
/tmp/muster\-UID.
.TP
.B PYTHON_EXEC
The Python interpreter where \-\-python is not given. Without either: that of
VIRTUAL_ENV, of CONDA_PREFIX, python or python3 beside muster (unless pipx or uv
keeps that for muster alone), then on PATH.
.TP
.B TORCH_ELASTIC_SHUTDOWN_TIMEOUT
Default of \-\-shutdown\-timeout, in seconds.
.TP
.B TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
Default of \-\-log\-line\-prefix\-template.
.TP
.B OMP_NUM_THREADS
Where it is unset, workers get the usable cores divided by their number.
.SH EXIT STATUS
A failed job ends with the exit code of the worker that failed first, or 128+n
where signal n killed it. Codes of muster itself:
.TP
.B 0
Every worker succeeded.
.TP
.B 2
Wrong usage: an unknown flag, a value that makes no sense, a contradiction.
.TP
.B 120
An internal error.
.TP
.B 121
The machine refuses: log folder, port, descriptor limit, current folder, GPU.
.TP
.B 122
The nodes did not meet.
.TP
.B 123
A worker could not be stopped.
.TP
.B 126
The program exists but cannot be executed.
.TP
.B 127
The program, its interpreter or its script does not exist.
.SH EXAMPLES
Four workers of a Python script:
.PP
.RS
muster \-\-nproc\-per\-node 4 train.py \-\-lr 0.1
.RE
.PP
A module, one worker per GPU, three restarts, logs kept and shown:
.PP
.RS
muster \-\-nproc\-per\-node gpu \-\-max\-restarts 3 \-\-log\-dir logs \-\-tee 3 \-m pkg.train
.RE
.PP
Any executable, each worker with a GPU of its own:
.PP
.RS
muster \-\-nproc\-per\-node 8 \-\-gpu\-binding exclusive ./solver case.toml
.RE
.PP
Four machines, this line on each of them:
.PP
.RS
muster \-\-nnodes 4 \-\-nproc\-per\-node 8 \-\-rdzv\-backend c10d
\-\-rdzv\-endpoint node0:29400 \-\-rdzv\-id job7 train.py
.RE
.SH SEE ALSO
.BR musterctl (1)
)";

// Escapes backslashes and dashes, and a dot or quote at the beginning of a line.
std::string roff(std::string_view text) {
  std::string escaped;
  if (text.starts_with('.') || text.starts_with('\'')) escaped += "\\&";
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string entry_of(const OptionRow& row) {
  std::string entry = ".TP\n\\fB";
  if (row.letter != 0) entry += fmt::format("\\-{}\\fR, \\fB", row.letter);
  entry += roff(fmt::format("--{}", row.name)) + "\\fR";
  if (!row.value.empty())
    entry += (row.takes_value() ? " \\fI" : "\\fI") + roff(row.value) + "\\fR";
  entry += "\n" + roff(row.help) + "\n";
  if (row.takes_value() && !row.default_text.empty()) {
    entry += fmt::format("Default: {}.\n", roff(row.default_text));
  }
  if (row.traits.reads_variable) entry += fmt::format("Variable: {}.\n", row.variable());
  return entry;
}

}  // namespace

std::string man_page() {
  std::string text(kManOpening);
  std::string_view group;
  for (const OptionRow& row : option_rows()) {
    if (row.group.empty()) continue;
    if (row.group != group) text += fmt::format(".SS {}\n", roff(row.group));
    group = row.group;
    text += entry_of(row);
  }
  return text + std::string(kManClosing);
}

}  // namespace muster

// Determines what a worker executes from what the user named: interpreter, file and arguments.
// Makes all checks that are possible before a process exists, so that a missing script, a folder, a
// foreign binary or a missing interpreter costs one line instead of a start. Reads the file system
// (stat, access, the first bytes of the program), changes nothing.
//
//   PROGRAM in script mode                  runs as
//   x.py, x.pyw, x.pyc, zip, DIR/__main__.py  PYTHON -u PROGRAM args
//   executable ELF, executable with `#!`    directly
//   text without `#!` or extension          PYTHON -u PROGRAM args (torchrun gives Python anything)
//   not executable, `#!` names a python     PYTHON -u PROGRAM args
//   `-`, a pipe, a character device         PYTHON -u PROGRAM args (/dev/stdin, a named pipe)
//   anything else, also a terminal          an error that says why
// A name without a slash that is not a file here, or that this folder's permissions hide from us,
// is looked up on PATH (`muster hostname`).
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "agent/launch_spec.h"
#include "rendezvous/base/error.h"

namespace muster {

// What resolve_command() uses besides the files themselves.
struct HostView {
  std::map<std::string, std::string> environment;
  std::string cwd;               // Absolute; relative programs are relative to it.
  std::string muster_directory;  // The folder of the muster executable; empty: unknown.
};

struct Command {
  std::string executable;         // execve's path: absolute, or with a slash and relative to cwd.
  std::vector<std::string> argv;  // Before per-worker substitution; see worker_argv().
  std::size_t first_arg = 1;      // Index in argv of the program's own first argument.
  bool pass_local_rank = false;

  friend bool operator==(const Command&, const Command&) = default;
};

// Fails with not_found (127) or cannot_execute (126), as a shell would.
Result<Command> resolve_command(const LaunchSpec& spec, const HostView& host);

// The argv of one worker: ${local_rank} and $local_rank are replaced in every argument after
// argv[0], `$$` becomes `$`, any other `$` stays; --local-rank=N is inserted if requested.
std::vector<std::string> worker_argv(const Command& command, int local_rank);

}  // namespace muster

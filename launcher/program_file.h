// What kind of program a file is, and whether the kernel could start it: the first bytes, the mode,
// and what they refer to (the interpreter of a `#!` line, the loader of an ELF file). Not pure:
// reads the file system through stat, access and read; changes nothing, keeps nothing open.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster {

enum class FileKind {
  missing,
  out_of_reach,  // Something may be there, but we cannot follow its path.
  directory,
  stream,      // A pipe, or a character device that is not a terminal: Python reads it to its end.
  unreadable,  // We may not read it, or its type cannot hold a program.
  elf,
  hash_bang,
  zip,     // Python runs it if it has a __main__.py.
  text,    // No NUL byte in its first block; also an empty file.
  binary,  // Anything else.
};

struct ProgramFile {
  FileKind kind = FileKind::missing;
  bool executable = false;
  std::string head;    // The first 4 KiB.
  std::string reason;  // Why it is not a readable file, with the remedy; may be empty.
};

// "cannot run PROGRAM: WHY"
tl::unexpected<Error> cannot_run(ExitCode code, std::string_view program, std::string_view why);

// "a socket", "a block device" and so on, from the file type bits of a mode. REQUIRES: neither a
// regular file nor a folder.
std::string_view file_type(unsigned mode);

ProgramFile inspect_program(const std::string& path);

// Whether the script's own text contains the name of this flag ("nproc-per-node"), in either
// spelling. True for a file that cannot be read or is not regular, since nothing is known of it.
bool names_flag(const std::string& path, std::string name);

// The words of the `#!` line: interpreter and at most one argument, as the kernel splits them.
struct HashBang {
  std::string interpreter;
  std::string argument;
};

HashBang parse_hash_bang(std::string_view head);

// Whether the interpreter exists, and, if it is env, the program that env would start. `path_list`
// is $PATH. `shown_path` names the script in messages.
Result<void> check_hash_bang(const std::string& shown_path, const HashBang& line,
                             std::string_view path_list);

// Whether the header is that of an executable for this machine and its loader exists.
Result<void> check_elf(const std::string& shown_path, std::string_view head);

}  // namespace muster

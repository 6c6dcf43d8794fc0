// Finds out what kind of program a file is and whether the kernel could start it, from its first
// bytes, its mode, and what they refer to (the interpreter of a `#!` line, the loader of an ELF
// file). Reads the file system through stat, access and read; changes nothing, keeps nothing open.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster {

enum class FileKind {
  missing,
  out_of_reach,  // We cannot follow the path, so something may be there.
  directory,
  stream,      // A pipe, or a character device that is not a terminal: Python reads it to its end.
  unreadable,  // We may not read it, or its type cannot hold a program.
  elf,
  hash_bang,
  zip,     // Python runs it if it has a __main__.py.
  text,    // No NUL byte in the head; also an empty file.
  binary,  // Anything else.
};

struct ProgramFile {
  FileKind kind = FileKind::missing;
  bool executable = false;
  std::string head;    // The first 4 KiB.
  std::string reason;  // Why it is not a readable file, and the remedy; may be empty.
};

// "cannot run PROGRAM: WHY"
tl::unexpected<Error> cannot_run(ExitCode code, std::string_view program, std::string_view why);

// "a socket", "a block device" and so on. REQUIRES: not the mode of a regular file or folder.
std::string_view file_type(unsigned mode);

ProgramFile inspect_program(const std::string& path);

// True if the script's text contains the name of this flag ("nproc-per-node"), in either spelling,
// or cannot be read.
bool names_flag(const std::string& path, std::string name);

// The `#!` line as the kernel splits it: interpreter and at most one argument.
struct HashBang {
  std::string interpreter;
  std::string argument;
};

HashBang parse_hash_bang(std::string_view head);

// Fails unless the interpreter exists, and, if it is env, the program that env would start.
// `path_list`: $PATH. `shown_path`: the script's name in messages.
Result<void> check_hash_bang(const std::string& shown_path, const HashBang& line,
                             std::string_view path_list);

// Fails unless the header is that of an executable for this machine and its loader exists.
Result<void> check_elf(const std::string& shown_path, std::string_view head);

}  // namespace muster

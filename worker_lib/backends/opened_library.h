// A shared library that is opened when needed, so that one program runs on hosts with and without
// it. Searched in this order: the copy that is already in this process (two copies of NCCL or of
// the CUDA driver in one process conflict), the file that an environment variable names, the usual
// name on the loader's path. Never closed.
#pragma once

#include <string>

#include "rendezvous/base/symbols.h"
#include "worker_lib/failure.h"

namespace muster::worker {

class OpenedLibrary : public Symbols {
 public:
  struct Names {
    const char* symbol;    // Any of its functions: the file that has it is the library.
    const char* variable;  // An environment variable that holds a path.
    const char* file;      // "libnccl.so.2"
  };

  // Fails with code backend and the loader's message.
  static Outcome<OpenedLibrary> open(const Names& names);

  // The file it was loaded from.
  const std::string& path() const { return path_; }

 private:
  OpenedLibrary(void* handle, const char* symbol);

  std::string path_;
};

}  // namespace muster::worker

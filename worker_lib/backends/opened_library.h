// A library that is looked for when it is needed, so that one program runs on hosts that have it
// and on hosts that have not: first the copy that is already in this process (two copies of NCCL or
// of the CUDA driver in one process do not get along), then the file that an environment variable
// names, then the usual name on the loader's path. Never closed.
#pragma once

#include <string>

#include "worker_lib/failure.h"

namespace muster::worker {

class OpenedLibrary {
 public:
  struct Names {
    const char* symbol;    // Any function of it: whoever has it is the library.
    const char* variable;  // An environment variable with a path.
    const char* file;      // "libnccl.so.2"
  };

  // Fails with what the loader says, of code backend.
  static Outcome<OpenedLibrary> open(const Names& names);

  // The file it came from.
  const std::string& path() const { return path_; }

  // Null: it has no such function.
  void* find(const char* symbol) const;

  // Sets `function`; where there is none, it becomes null and the name is noted in `missing`,
  // unless one is there already.
  template <typename Function>
  void bind(const char* symbol, Function*& function, std::string& missing) const {
    function = reinterpret_cast<Function*>(find(symbol));
    if (function == nullptr && missing.empty()) missing = symbol;
  }

 private:
  OpenedLibrary(void* handle, const char* symbol);

  void* handle_;
  std::string path_;
};

}  // namespace muster::worker

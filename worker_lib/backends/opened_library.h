// A shared library that is opened on demand, so that one program runs on hosts with and without it,
// and never closed. Search order: a copy already in this process (two copies of NCCL or of the CUDA
// driver conflict), the file named by an environment variable, the usual name on the loader's path.
#pragma once

#include <string>

#include "rendezvous/base/symbols.h"
#include "worker_lib/failure.h"

namespace muster::worker {

class OpenedLibrary : public Symbols {
 public:
  struct Names {
    const char* symbol;    // Any function of the library; identifies the library's file.
    const char* variable;  // Environment variable that may hold a path.
    const char* file;      // "libnccl.so.2"
  };

  // Fails with code backend and the loader's message.
  static Outcome<OpenedLibrary> open(const Names& names);

  const std::string& path() const { return path_; }

 private:
  OpenedLibrary(void* handle, const char* symbol);

  std::string path_;
};

}  // namespace muster::worker

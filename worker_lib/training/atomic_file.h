// A file that appears whole or not at all: written under another name in the same folder, forced to
// disk, then renamed (rename(2) is atomic); then the folder is forced to disk too, since only that
// makes the name durable (fsync(2)). Used by one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/failure.h"

namespace muster::worker {

class AtomicFile {
 public:
  // Opens the new file beside `path`, and removes those that killed processes left there.
  static Outcome<std::unique_ptr<AtomicFile>> create(const std::string& path);

  AtomicFile(AtomicFile&&) = delete;
  ~AtomicFile();  // Removes the new file unless commit() succeeded.

  // Appends. Once it has failed, every later call fails alike.
  Outcome<> write(std::string_view bytes);

  // Puts the file in its place. Fails and leaves the old file if any write failed, or if `why` is
  // given, the reason not to use the new one. Call once.
  Outcome<> commit(const char* why = nullptr);

 private:
  AtomicFile(std::string path, std::string unfinished, UniqueFd fd);
  Outcome<> written() const;
  Outcome<> close_forced();

  std::string path_;
  std::string unfinished_;  // Empty once renamed.
  UniqueFd fd_;
  int error_ = 0;  // The errno of the first failed write; 0: none.
};

// Reads the whole file into memory of the caller: `resize` sets its length, keeps what is in it and
// returns where it is; the last call's is the file's length. Returns false if there is no file.
// Fails with system if it cannot be read. Throws what `resize` throws.
Outcome<bool> read_file(const std::string& path, const std::function<void*(size_t)>& resize);

}  // namespace muster::worker

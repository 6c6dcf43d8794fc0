// A file that appears whole or not at all: written under another name in the same folder, forced to
// disk, then renamed (rename(2) is atomic); then the folder is forced to disk too, since only that
// makes the name durable (fsync(2)). Used by one thread.
#pragma once

#include <memory>
#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// A stream buffer over a descriptor that keeps the errno of a failed write, unlike std::filebuf.
class DescriptorBuffer final : public std::streambuf {
 public:
  explicit DescriptorBuffer(int fd);
  // The errno of the first failed write; 0: none.
  int error() const { return error_; }

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* data, std::streamsize size) override;
  int sync() override;

 private:
  bool write_out(const char* data, size_t size);
  bool empty_buffer();

  int fd_;
  int error_ = 0;
  std::vector<char> buffer_;
};

class AtomicFile {
 public:
  // Opens the new file beside `path`, and removes those that killed processes left there.
  static Outcome<std::unique_ptr<AtomicFile>> create(const std::string& path);

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  // Removes the new file unless commit() succeeded.

  std::ostream& stream() { return stream_; }

  // Puts the file in its place. Fails and leaves the old file if any write failed. Call once.
  Outcome<> commit();

 private:
  AtomicFile(std::string path, std::string unfinished, UniqueFd fd);
  Outcome<> close_forced();

  std::string path_;
  std::string unfinished_;  // Empty once renamed.
  UniqueFd fd_;
  DescriptorBuffer buffer_;
  std::ostream stream_;
};

// Returns the whole file; nullopt: there is none. Fails with system if it cannot be read.
Outcome<std::optional<std::string>> read_file(const std::string& path);

}  // namespace muster::worker

// A descriptor that output is written to: a console or a log file. Writes block. Bytes that cannot
// be written are counted and dropped, so that a full disk costs output but never a worker; the next
// write tries again. One thread at a time: the output thread or a console's SinkWriter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.h"

namespace muster {

class Sink {
 public:
  Sink(int borrowed_fd, std::string name) : fd_(borrowed_fd), name_(std::move(name)) {}
  // `content`: what messages call muster's own output, which has whole lines; a line that a full
  // disk cuts is taken back. Empty for workers' output.
  Sink(UniqueFd fd, std::string name, std::string content = {})
      : fd_(fd.get()),
        owned_(std::move(fd)),
        name_(std::move(name)),
        content_(std::move(content)) {}

  // Returns a message for the user on the first failure; later ones are only counted.
  std::optional<std::string> write(std::span<const std::string_view> pieces);
  std::optional<std::string> write(std::string_view bytes) { return write({&bytes, 1}); }

  int fd() const { return fd_; }
  bool reader_gone() const { return reader_gone_; }  // EPIPE: it will never work again.
  uint64_t dropped() const { return dropped_; }
  std::optional<std::string> dropped_line() const;  // A message if bytes were dropped.

 private:
  std::optional<std::string> failed(int error);
  bool take_back_torn_line(std::span<const std::string_view> pieces, size_t written);

  int fd_;
  UniqueFd owned_;
  std::string name_;
  std::string content_;
  uint64_t dropped_ = 0;
  bool reader_gone_ = false;
  bool said_ = false;
  bool torn_ = false;  // True if the last write stopped in the middle of a line.
  char last_byte_ = '\n';
};

}  // namespace muster

#include "agent/output/console.h"

#include <sys/stat.h>
#include <unistd.h>

namespace muster {

Console::Console(int fd, std::string name)
    : sink_(fd, std::move(name)), terminal_(::isatty(fd) == 1) {}

std::optional<std::string> Console::feed(int stream, std::string_view bytes, Instant now) {
  if (gone()) return std::nullopt;
  mux_.feed(stream, bytes, now, pieces_);
  return flush();
}

std::optional<std::string> Console::close(int stream, Instant now) {
  mux_.close(stream, now, pieces_);
  return flush();
}

std::optional<std::string> Console::tick(Instant now) {
  mux_.tick(now, pieces_);
  return flush();
}

std::optional<std::string> Console::flush() {
  if (pieces_.empty()) return std::nullopt;
  std::optional<std::string> message = sink_.write(pieces_);
  pieces_.clear();
  return message;
}

bool same_file(int a, int b) {
  struct stat left{};
  struct stat right{};
  if (a == b) return true;
  if (::fstat(a, &left) != 0 || ::fstat(b, &right) != 0) return false;
  return left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

}  // namespace muster

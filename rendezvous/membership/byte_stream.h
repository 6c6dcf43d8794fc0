// A connected socket as both sides of the agents' protocol use it: bytes come to a handler, bytes
// go out at once or wait in a bounded queue. Idle it holds no buffer: it waits for the socket to
// become readable and reads into the loop's scratch space, so a thousand of them cost a thousand
// descriptors and little else. Whoever does not take what is sent to him for long is hung up on.
// One thread: the loop's. Handlers are called from the loop, never from inside a function of this
// class, and never after close() or the destructor.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

namespace muster {

class ByteStream {
 public:
  struct Handlers {
    std::function<void(std::string_view bytes)> bytes;
    std::function<void(const std::string& why)> closed;  // By the other side, or for its slowness.
  };

  // Takes the descriptor, a connected socket, over.
  ByteStream(boost::asio::io_context& io, int fd, size_t unsent_bytes_max);
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  ~ByteStream();

  void start(Handlers handlers);
  void write(std::string_view bytes);
  // Closes once everything written has been sent; nothing is read any more. The object may be
  // dropped right after this.
  void finish();
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster

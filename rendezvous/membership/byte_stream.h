// A connected socket as both sides of the agents' protocol use it: received bytes go to a handler,
// outgoing bytes are sent at once or wait in a bounded queue. When idle it holds no buffer: it
// waits until the socket is readable and reads into the thread's scratch space, so a thousand
// streams cost a thousand descriptors and little else. A peer that reads so slowly that the queue
// overflows is disconnected. One thread: the loop's. Handlers are called from the loop, never from
// inside a function of this class, and never after close() or the destructor.
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
    std::function<void(const std::string& why)> closed;  // By the peer, or because it is too slow.
  };

  // Takes ownership of the descriptor, a connected socket.
  ByteStream(boost::asio::io_context& io, int fd, size_t unsent_bytes_max);
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  ~ByteStream();

  void start(Handlers handlers);
  void write(std::string_view bytes);
  size_t unsent() const;  // The number of bytes that wait.
  // Closes once everything written has been sent; reads nothing more. The object may be destroyed
  // right after this.
  void finish();
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster

// A connected socket of the agents' protocol: received bytes go to a handler, outgoing bytes are
// sent at once or wait in a bounded queue; a peer too slow for that is disconnected. An idle stream
// holds no buffer (reads use the thread's scratch space), so a thousand cost a thousand descriptors
// and little else. One thread: the loop's. Handlers are called from the loop, never from inside a
// function of this class, and never after close() or the destructor.
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
    std::function<void(const std::string& why)> closed;  // The peer closed, or was too slow.
  };

  // Takes ownership of the descriptor, a connected socket.
  ByteStream(boost::asio::io_context& io, int fd, size_t unsent_bytes_max);
  ByteStream(ByteStream&&) = delete;
  ~ByteStream();

  void start(Handlers handlers);
  void write(std::string_view bytes);
  size_t unsent() const;  // Bytes that wait to be sent.
  // Closes once all that was written is sent; reads no more. The object may be destroyed at once.
  void finish();
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster

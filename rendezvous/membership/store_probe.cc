#include "rendezvous/membership/store_probe.h"

#include <chrono>
#include <string_view>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "rendezvous/membership/byte_stream.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/store/tcpstore_codec.h"

namespace muster {
namespace {

constexpr auto kProbeLimit = std::chrono::seconds(1);
constexpr uint32_t kProbeNumber = 0x4d535452;

}  // namespace

std::string store_question() {
  std::string bytes;
  tcpstore::put_u8(bytes, static_cast<uint8_t>(tcpstore::Op::validate));
  tcpstore::put_u32(bytes, tcpstore::kMagic);
  tcpstore::put_u8(bytes, static_cast<uint8_t>(tcpstore::Op::ping));
  tcpstore::put_u32(bytes, kProbeNumber);
  return bytes;
}

struct StoreProbe::State {
  State(boost::asio::io_context& io, std::function<void(bool)> callback)
      : done(std::move(callback)), limit(io) {}

  void finish(bool is_store) {
    stream.reset();
    connecting = Connecting();
    limit.cancel();
    if (const auto callback = std::exchange(done, nullptr)) callback(is_store);
  }

  void on_bytes(std::string_view bytes) {
    answer += bytes;
    if (answer.size() >= sizeof kProbeNumber)
      finish(tcpstore::read_u32(answer.data()) == kProbeNumber);
  }

  std::function<void(bool)> done;
  boost::asio::steady_timer limit;
  Connecting connecting;
  std::unique_ptr<ByteStream> stream;
  std::string answer;
};

StoreProbe::StoreProbe(boost::asio::io_context& io, const SocketAddress& address,
                       std::function<void(bool)> done)
    : state_(std::make_shared<State>(io, std::move(done))) {
  const std::weak_ptr<State> weak = state_;
  call_after(state_->limit, kProbeLimit, [weak] {
    if (const auto state = weak.lock()) state->finish(false);
  });
  const auto on_connected = [&io, weak](NetResult<TcpSocket> socket) {
    const auto state = weak.lock();
    if (!state) return;
    if (!socket) return state->finish(false);
    state->stream = std::make_unique<ByteStream>(io, socket->release(), 4096);
    state->stream->start({[weak](std::string_view bytes) {
                            if (const auto s = weak.lock()) s->on_bytes(bytes);
                          },
                          [weak](const std::string&) {
                            if (const auto s = weak.lock()) s->finish(false);
                          }});
    state->stream->write(store_question());
  };
  state_->connecting =
      connect_any(io, address.to_string(), {address},
                  std::chrono::steady_clock::now() + kProbeLimit, {}, on_connected);
}

StoreProbe::~StoreProbe() {
  state_->done = nullptr;
}

}  // namespace muster

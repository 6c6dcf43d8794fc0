// Four clients of the store send arbitrary bytes. The input is a list of records: a byte of flags,
// the number of bytes that follow, and those bytes, which one client sends. Checked: cuts make no
// difference; each answer has the shape that the protocol asks for; only waiting clients are woken.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/store/store_machine.h"
#include "rendezvous/store/tcpstore_codec.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

using tcpstore::Op;
using tcpstore::RequestDecoder;
using tcpstore::Shape;

constexpr size_t kClients = 4;
constexpr size_t kRequestBytesMax = 1 << 16;

// Flags of a record; the two lowest bits are the client.
constexpr uint8_t kHangUpFirst = 0x80;
constexpr uint8_t kOneSecondLater = 0x40;
constexpr uint8_t kWithoutHandshake = 0x20;  // On a reconnect.

Shape shape_of(Op op) {
  switch (op) {
    case Op::validate:
    case Op::set:
    case Op::append:
    case Op::multi_set:
    case Op::queue_push:
      return Shape::none;
    case Op::check:
    case Op::wait:
    case Op::barrier:
    case Op::cancel_wait:
      return Shape::flag;
    case Op::ping:
      return Shape::nonce;
    case Op::add:
    case Op::num_keys:
    case Op::delete_key:
    case Op::queue_len:
    case Op::queue_pop:  // A string follows a positive number.
      return Shape::number;
    case Op::get:
    case Op::compare_set:
    case Op::multi_get:
      return Shape::strings;
    case Op::list_keys:
      return Shape::names;
  }
  CHECK(false);
}

bool parks(Op op) {
  return op == Op::wait || op == Op::barrier;
}

// The store and its four clients.
class World {
 public:
  World() : machine_(options()) {
    for (ClientId id = 0; id < kClients; ++id)
      connect(id, true);
  }

  void connect(ClientId id, bool handshake) {
    Client& client = clients_[id];
    client = Client{};
    client.open = true;
    machine_.opened(now_, id);
    if (handshake) say(id, {"\x00\xce\xf7\x85\x3c", 5});
  }

  void hang_up(ClientId id) {
    machine_.closed(id);
    clients_[id].open = false;
  }

  void one_second_later() {
    now_ += std::chrono::seconds(1);
    std::vector<ClientId> late;
    machine_.expire(now_, late);
    for (const ClientId id : late) {
      CHECK(clients_[id].open && !clients_[id].decoder.validated());
      hang_up(id);
    }
    CHECK(machine_.next_deadline() > now_);
  }

  void say(ClientId id, std::string_view bytes) {
    Client& client = clients_[id];
    while (client.open) {
      tcpstore::Request request;
      const RequestDecoder::Decoded outcome = client.decoder.next(bytes, request);
      CHECK(client.decoder.buffered() <= 3 * kRequestBytesMax);
      if (outcome == RequestDecoder::Decoded::request) {
        perform(id, request);
        continue;
      }
      CHECK(outcome == RequestDecoder::Decoded::breach || bytes.empty());
      if (outcome == RequestDecoder::Decoded::breach) hang_up(id);
      return;
    }
  }

  bool is_open(ClientId id) const { return clients_[id].open; }
  const std::string& received(ClientId id) const { return clients_[id].received; }

 private:
  struct Client {
    bool open = false;
    bool may_wait = false;  // True from its request to wait until it cancels it.
    RequestDecoder decoder{kRequestBytesMax};
    std::string received;
  };

  static StoreMachine::Options options() {
    StoreMachine::Options made;
    made.reply_bytes_max = 1 << 18;
    made.stored_bytes_max = 1 << 20;
    return made;
  }

  void perform(ClientId id, const tcpstore::Request& request) {
    const Op op = request.op;
    const size_t strings = op == Op::multi_get ? request.fields.size() : 1;
    Client& client = clients_[id];
    StoreEffects effects;
    if (machine_.request(id, request, effects)) {
      CHECK(effects.reply.empty() && effects.woken.empty());
      hang_up(id);
      return;
    }
    std::string_view reply = effects.reply;
    // A client that wakes itself receives the wake-up before its answer.
    if (client.may_wait && !has_shape(op, strings, reply) && reply[0] == tcpstore::kReady)
      reply.remove_prefix(1);
    CHECK(has_shape(op, strings, reply));
    client.received += effects.reply;
    client.may_wait = (client.may_wait || parks(op)) && op != Op::cancel_wait;
    for (const ClientId woken : effects.woken) {
      CHECK(clients_[woken].open && clients_[woken].may_wait);
      clients_[woken].received += tcpstore::kReady;
    }
  }

  static bool has_shape(Op op, size_t strings, std::string_view reply) {
    if (parks(op) && reply.empty()) return true;
    if (shape_of(op) == Shape::none || (op == Op::multi_get && strings == 0)) return reply.empty();
    tcpstore::ReplyDecoder decoder(shape_of(op), strings);
    if (decoder.next(reply) != tcpstore::ReplyDecoder::Decoded::reply) return false;
    if (op != Op::queue_pop || decoder.take().number <= 0) return reply.empty();
    tcpstore::ReplyDecoder item(Shape::strings, 1);
    return item.next(reply) == tcpstore::ReplyDecoder::Decoded::reply && reply.empty();
  }

  Instant now_{};
  StoreMachine machine_;
  Client clients_[kClients];
};

void say_in_pieces(World& world, ClientId id, std::string_view bytes) {
  feed_in_pieces(bytes, bytes.size(), [&](std::string_view piece) { world.say(id, piece); });
}

void run(std::string_view input) {
  World whole, cut;
  while (!input.empty()) {
    const uint8_t flags = take_byte(input);
    const ClientId id = flags % kClients;
    const std::string_view bytes = take(input, take_byte(input));
    for (World* world : {&whole, &cut}) {
      if ((flags & kOneSecondLater) != 0) world->one_second_later();
      if ((flags & kHangUpFirst) != 0 && world->is_open(id)) world->hang_up(id);
      if (!world->is_open(id)) world->connect(id, (flags & kWithoutHandshake) == 0);
    }
    whole.say(id, bytes);
    say_in_pieces(cut, id, bytes);
    for (ClientId each = 0; each < kClients; ++each) {
      CHECK(whole.is_open(each) == cut.is_open(each));
      CHECK(whole.received(each) == cut.received(each));
    }
  }
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::run(muster::fuzz::as_text(data, size));
  return 0;
}

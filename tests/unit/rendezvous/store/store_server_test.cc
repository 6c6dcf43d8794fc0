#include "rendezvous/store/store_server.h"

#include <atomic>
#include <csignal>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/net/socket_harness.h"
#include "tests/unit/rendezvous/store/store_server_harness.h"

namespace muster {
namespace {

using namespace store_test;
using std::chrono::milliseconds;
using tcpstore::Breach;

uint64_t breaches(const StoreServer::Counters& counters, Breach breach) {
  return counters.breaches[static_cast<size_t>(breach)];
}

TEST(StoreServer, AnswersAllRequestsOfOneWrite) {
  RunningStore store;
  const RawClient client(store.port());
  EXPECT_EQ(client.ask(ping(7), 4), little_endian(7, 4));
  std::string requests;
  std::string replies;
  for (int i = 0; i < 1000; i++) {
    requests += add("/n", 1) + set("/k", std::to_string(i)) + get("/k");
    replies += i64(i + 1) + str(std::to_string(i));
  }
  EXPECT_EQ(client.ask(requests, replies.size()), replies);
  EXPECT_EQ(store.counters().requests, 1u + 1u + 3000u);
}

TEST(StoreServer, ReadsARequestInPiecesOfOneByte) {
  RunningStore store;
  const RawClient client(store.port(), false);
  for (const char byte : kValidate + set("/k", "value") + get("/k"))
    client.say({&byte, 1});
  EXPECT_EQ(client.hear(13), str("value"));
  EXPECT_EQ(store.counters().held_bytes, 0u);
}

TEST(StoreServer, WakesAWaiterForAnotherConnectionsSet) {
  RunningStore store;
  const RawClient waiter(store.port());
  const RawClient setter(store.port());
  EXPECT_EQ(waiter.ask(wait({"/k"}) + ping(1), 4), little_endian(1, 4));
  setter.say(set("/k", "v"));
  EXPECT_EQ(waiter.hear(1), kZero);
  EXPECT_EQ(waiter.ask(get("/k"), 9), str("v"));
}

TEST(StoreServer, OwnersPutWakesWaitersAndIsVisibleToAll) {
  RunningStore store;
  const RawClient waiter(store.port());
  EXPECT_EQ(waiter.ask(wait({"/k"}) + ping(1), 4), little_endian(1, 4));
  store.with([](StoreServer& server) { server.put("k", "v"); });
  EXPECT_EQ(waiter.hear(1), kZero);
  EXPECT_EQ(waiter.ask(get("/k"), 9), str("v"));
  store.with([](StoreServer& server) {
    server.close();
    server.put("k", "to nobody");
    server.open(2);
  });
  EXPECT_EQ(RawClient(store.port()).ask(num_keys(), 8), little_endian(0, 8));
}

TEST(StoreServer, ReturnsALargeValueWhole) {
  RunningStore store;
  const RawClient client(store.port());
  std::string value(size_t{8} << 20, 'v');
  value[12345] = '\0';
  client.say(set("/k", value));
  EXPECT_TRUE(client.ask(get("/k"), 8 + value.size()) == str(value));
  store.wait_until([](const auto& counters) { return counters.held_bytes == 0; });
}

// ---- misbehaving clients

TEST(StoreServer, ReadsRequestsBehindALargeValueInPieces) {
  RunningStore store;
  const RawClient client(store.port());
  const RawClient waiter(store.port());
  EXPECT_EQ(waiter.ask(wait({"/large"}) + ping(1), 4), little_endian(1, 4));
  for (const size_t size :
       {size_t{65535}, size_t{65536}, size_t{1} << 20, tcpstore::kValueBytesMax}) {
    const std::string value = std::string(size - 3, 'v') + "end";
    const std::string request = set("/large", value) + add("/n", 1);
    client.say(std::string_view(request).substr(
        0, 100));  // Sent alone, so that the value comes in pieces.
    client.say(std::string_view(request).substr(100));
    ASSERT_EQ(client.hear(8).size(), 8u);
    EXPECT_EQ(client.ask(get("/large"), 8 + size), str(value));
    const uint64_t stored = 2 * 128 + 6 + size + 2 + 1;
    EXPECT_EQ(store.counters().stored_bytes, stored);
  }
  EXPECT_EQ(waiter.hear(1), kZero);
  EXPECT_EQ(client.ask(set("/large", "small") + get("/large"), 13), str("small"));
  EXPECT_EQ(store.counters().held_bytes, 0u);
}

TEST(StoreServer, ServesOthersBesideAnEndlessPipeline) {
  RunningStore store;
  const RawClient quiet(store.port());
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    const RawClient client(store.port());
    std::string requests;
    for (int i = 0; i < 16; i++)
      requests += add("/busy", 1);
    client.say(requests);
    while (!stop)
      client.ask(requests, 16 * 8);
    client.hear(16 * 8);
  });
  for (int i = 0; i < 500; i++)
    ASSERT_EQ(quiet.ask(add("/quiet", 1), 8), i64(i + 1));
  stop = true;
  busy.join();
}

TEST(StoreServer, ABreachClosesOnlyItsOwnConnection) {
  RunningStore store;
  const RawClient good(store.port());
  good.say(set("/k", "v"));
  for (const std::string& bad : {op(19), op(1) + i64(-1), kValidate, op(6) + i64(131073)}) {
    const RawClient client(store.port());
    // Requests before the breach are answered.
    EXPECT_EQ(client.ask(ping(3) + bad, 5), little_endian(3, 4));
    EXPECT_TRUE(client.hears_the_end());
  }
  for (const std::string& stranger :
       {std::string("GET / HTTP/1.1\r\n\r\n"), ping(1), hex("00 00000000")}) {
    const RawClient client(store.port(), false);
    client.say(stranger);
    EXPECT_TRUE(client.hears_the_end());
  }
  EXPECT_EQ(good.ask(get("/k"), 9), str("v"));
  const StoreServer::Counters counters = store.counters();
  EXPECT_EQ(counters.connections, 1u);
  EXPECT_EQ(breaches(counters, Breach::unknown_operation), 1u);
  EXPECT_EQ(breaches(counters, Breach::value_too_long) + breaches(counters, Breach::key_too_long),
            1u);
  EXPECT_EQ(breaches(counters, Breach::second_validate), 1u);
  EXPECT_EQ(breaches(counters, Breach::too_many_keys), 1u);
  EXPECT_EQ(breaches(counters, Breach::not_validated), 2u);
  EXPECT_EQ(breaches(counters, Breach::bad_magic), 1u);
}

TEST(StoreServer, ClosesSilentConnections) {
  StoreServer::Options options;
  options.machine.handshake_timeout = milliseconds(30);
  RunningStore store(options);
  const RawClient mute(store.port(), false);
  const RawClient half(store.port(), false);
  half.say(kValidate.substr(0, 3));
  const RawClient good(store.port());
  EXPECT_EQ(good.ask(ping(1), 4), little_endian(1, 4));
  EXPECT_TRUE(mute.hears_the_end());
  EXPECT_TRUE(half.hears_the_end());
  EXPECT_EQ(good.ask(ping(2), 4), little_endian(2, 4));
  EXPECT_EQ(store.counters().handshake_timeouts, 2u);
}

TEST(StoreServer, ATrickledRequestDelaysNoOtherClient) {
  RunningStore store;
  const RawClient slow(store.port());
  slow.say(op(1) + str("/k") + i64(100) + "the beginning");
  const RawClient good(store.port());
  EXPECT_EQ(good.ask(set("/k", "v") + get("/k"), 9), str("v"));
  slow.say(std::string(87, '.'));
  EXPECT_EQ(slow.ask(get("/k"), 108).size(), 108u);
}

// The server stops reading from such a client, so the unsent answers stay bounded and the others go
// on. Once the client reads, it gets all answers in order.
TEST(StoreServer, DoesNotServeAClientThatDoesNotRead) {
  StoreServer::Options options;
  options.unsent_bytes_max = size_t{64} << 10;
  RunningStore store(options);
  RawClient slow(store.port());
  const std::string value(20000, 'v');
  slow.say(set("/k", value));
  constexpr int kRequests = 3000;  // 60 MB of answers, far more than the kernel holds.
  std::string requests;
  for (int i = 0; i < kRequests; i++)
    requests += get("/k");
  std::thread writer([&] { slow.say(requests); });
  store.wait_until([](const auto& counters) { return counters.held_bytes > 0; });
  const RawClient good(store.port());
  for (int i = 0; i < 100; i++)
    EXPECT_EQ(good.ask(ping(5), 4), little_endian(5, 4));
  EXPECT_LT(store.counters().held_bytes, size_t{1} << 20);
  for (int i = 0; i < kRequests; i++)
    ASSERT_TRUE(slow.hear(8 + value.size()) == str(value)) << i;
  writer.join();
  EXPECT_EQ(slow.ask(ping(6), 4), little_endian(6, 4));
  store.wait_until([](const auto& counters) { return counters.held_bytes == 0; });
}

// The client asks for far more than its share of one visit, although it reads all the time.
TEST(StoreServer, AnswersAGreedyClientInOrderBesideOthers) {
  StoreServer::Options options;
  options.unsent_bytes_max = size_t{4} << 10;
  RunningStore store(options);
  const RawClient eager(store.port());
  const RawClient modest(store.port());
  eager.say(set("/k", std::string(700, 'v')));
  std::string requests;
  std::string answers;
  for (uint64_t i = 0; i < 3000; i++) {
    requests += get("/k") + ping(static_cast<uint32_t>(i));
    answers += str(std::string(700, 'v')) + little_endian(i, 4);
  }
  std::thread writer([&] { eager.say(requests); });
  std::thread pinger([&] {
    for (int i = 0; i < 200; i++)
      EXPECT_EQ(modest.ask(ping(9), 4), little_endian(9, 4));
  });
  EXPECT_TRUE(eager.hear(answers.size()) == answers);
  writer.join();
  pinger.join();
  EXPECT_EQ(eager.hear_now(), "");
  store.wait_until([](const auto& counters) { return counters.held_bytes == 0; });
}

// More clients than a batch has places, each with more requests than its share.
TEST(StoreServer, AnswersManyGreedyClients) {
  RunningStore store;
  std::vector<RawClient> clients;
  std::string requests;
  std::string answers;
  for (uint64_t i = 0; i < 2000; i++) {
    requests += ping(static_cast<uint32_t>(i));
    answers += little_endian(i, 4);
  }
  for (int i = 0; i < 300; i++)
    clients.emplace_back(store.port());
  for (const RawClient& client : clients)
    client.say(requests);
  for (const RawClient& client : clients)
    ASSERT_TRUE(client.hear(answers.size()) == answers);
}

// The clients that the server asks its owner about.
struct Asked {
  StoreServer::Options options() {
    StoreServer::Options options;
    options.examine = [this](int, uint64_t client) { clients.push_back(client); };
    return options;
  }
  uint64_t first(RunningStore& store) {
    uint64_t client = 0;
    while (client == 0) {
      store.with([&](StoreServer&) {
        if (!clients.empty()) client = clients.front();
      });
    }
    return client;
  }
  std::vector<uint64_t> clients;
};

TEST(StoreServer, ReadsNothingFromAnUndecidedClient) {
  Asked asked;
  RunningStore store(asked.options());
  const RawClient client(store.port());
  client.say(ping(7));
  const uint64_t number = asked.first(store);
  EXPECT_EQ(store.counters().requests, 0u);
  EXPECT_EQ(store.counters().connections, 0u);
  store.with([&](StoreServer& server) {
    EXPECT_FALSE(server.decide(number + 1, true)) << "another client's number";
    EXPECT_TRUE(server.decide(number, true));
    EXPECT_FALSE(server.decide(number, false)) << "already decided";
  });
  EXPECT_EQ(client.hear(4), little_endian(7, 4));
  EXPECT_EQ(store.counters().refused, 0u);
}

TEST(StoreServer, ClosesARefusedClient) {
  Asked asked;
  RunningStore store(asked.options());
  const RawClient client(store.port());
  const uint64_t number = asked.first(store);
  store.with([&](StoreServer& server) { EXPECT_TRUE(server.decide(number, false)); });
  EXPECT_TRUE(client.hears_the_end());
  EXPECT_EQ(store.counters().refused, 1u);
}

TEST(StoreServer, IgnoresALateDecision) {
  Asked asked;
  RunningStore store(asked.options());
  RawClient client(store.port());
  const uint64_t number = asked.first(store);
  client.hang_up();
  store.with([&](StoreServer& server) { EXPECT_FALSE(server.decide(number, false)); });
  asked.clients.clear();
  const RawClient other(store.port());
  const uint64_t next = asked.first(store);
  EXPECT_NE(next, number);
  store.with([&](StoreServer& server) {
    server.close();
    EXPECT_FALSE(server.decide(next, true));
  });
  EXPECT_TRUE(other.hears_the_end());
}

TEST(StoreServer, OneSetWakesFourHundredWaiters) {
  RunningStore store;
  std::vector<RawClient> waiters;
  for (int i = 0; i < 400; i++) {
    waiters.emplace_back(store.port());
    waiters.back().say(wait({"/k"}));
  }
  store.wait_until([](const auto& counters) { return counters.waiting == 400; });
  EXPECT_EQ(RawClient(store.port()).ask(set("/k", "v") + ping(1), 4), little_endian(1, 4));
  for (const RawClient& waiter : waiters)
    EXPECT_EQ(waiter.hear(1), kZero);
  EXPECT_EQ(store.counters().waiting, 0u);
}

TEST(StoreServer, WakesAWaiterThatDoesNotReadInOrder) {
  StoreServer::Options options;
  options.unsent_bytes_max = size_t{64} << 10;
  RunningStore store(options);
  const RawClient slow(store.port());
  const std::string value(size_t{8} << 20, 'v');
  slow.say(set("/big", value) + wait({"/late"}) + get("/big"));
  store.wait_until([](const auto& counters) { return counters.held_bytes > 1000; });
  store.wait_until([](const auto& counters) { return counters.waiting == 1; });
  const RawClient good(store.port());
  EXPECT_EQ(good.ask(set("/late", "") + ping(1), 4), little_endian(1, 4));
  EXPECT_EQ(slow.hear(8 + value.size()).size(), 8 + value.size());
  EXPECT_EQ(slow.hear(1), kZero);
}

TEST(StoreServer, EvictsTheClientThatHoldsMost) {
  StoreServer::Options options;
  options.held_bytes_max = size_t{3} << 20;
  RunningStore store(options);
  const RawClient modest(store.port());
  modest.say(op(1) + str("/k") + i64(100000) + std::string(50000, 'x'));
  const RawClient greedy(store.port());
  greedy.say(op(1) + str("/k") + i64(size_t{8} << 20) + std::string(size_t{5} << 20, 'x'));
  EXPECT_TRUE(greedy.hears_the_end());
  EXPECT_EQ(store.counters().evicted, 1u);
  modest.say(std::string(50000, 'x'));
  EXPECT_EQ(modest.ask(ping(1), 4), little_endian(1, 4));
}

TEST(StoreServer, ForgetsAWaiterThatDisconnects) {
  RunningStore store;
  {
    const RawClient waiter(store.port());
    EXPECT_EQ(waiter.ask(wait({"/k"}) + ping(1), 4), little_endian(1, 4));
  }
  store.wait_until([](const auto& counters) { return counters.connections == 0; });
  EXPECT_EQ(store.counters().waiting, 0u);
  EXPECT_EQ(RawClient(store.port()).ask(set("/k", "v") + ping(1), 4), little_endian(1, 4));
}

TEST(StoreServer, PerformsARequestSentJustBeforeDisconnecting) {
  RunningStore store;
  RawClient(store.port()).say(set("/k", "v"));
  store.wait_until([](const auto& counters) { return counters.keys == 1; });
}

// A client that pipelines for ever gets one buffer at a time.
TEST(StoreServer, BusyClientsDoNotStarveOthers) {
  RunningStore store;
  std::atomic<bool> over{false};
  std::string requests;
  for (int i = 0; i < 10000; i++)
    requests += set("/k", "v");
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; i++) {
    busy.emplace_back([&] {
      const RawClient client(store.port());
      while (!over)
        client.say(requests);
    });
  }
  const RawClient good(store.port());
  for (int i = 0; i < 200; i++)
    EXPECT_EQ(good.ask(ping(9), 4), little_endian(9, 4));
  over = true;
  for (std::thread& thread : busy)
    thread.join();
}

// ---- epochs

TEST(StoreServer, NothingFromAnOldEpochReachesANewOne) {
  RunningStore store;
  const RawClient old(store.port());
  EXPECT_EQ(old.ask(set("/k", "old") + wait({"/other"}) + ping(1), 4), little_endian(1, 4));
  store.with([](StoreServer& server) {
    server.open(2);
    EXPECT_EQ(server.epoch(), 2u);
  });
  EXPECT_TRUE(old.hears_the_end());
  const RawClient fresh(store.port());
  EXPECT_EQ(fresh.ask(num_keys() + get("/k"), 16), i64(0) + str(""));
  EXPECT_EQ(store.counters().waiting, 0u);
}

TEST(StoreServer, RefusesClientsBetweenTwoEpochs) {
  RunningStore store;
  store.with([](StoreServer& server) { server.close(); });
  const RawClient early(store.port());
  EXPECT_TRUE(early.hears_the_end());
  store.with([](StoreServer& server) {
    EXPECT_EQ(server.epoch(), std::nullopt);
    EXPECT_EQ(server.status(), "store closed");
    server.open(7);
    EXPECT_TRUE(server.status().starts_with("store of epoch 7: 0 connections, 0 keys"));
  });
  EXPECT_EQ(RawClient(store.port()).ask(ping(1), 4), little_endian(1, 4));
  EXPECT_EQ(store.counters().refused_closed, 1u);
}

// ---- allowed networks

std::vector<Network> networks(const std::vector<std::string>& texts) {
  std::vector<Network> all;
  for (const std::string& text : texts)
    all.push_back(*Network::parse(text));
  return all;
}

TEST(StoreServer, RefusesOtherAddressesAndReportsThemOnce) {
  std::mutex mutex;
  std::vector<std::string> named;
  StoreServer::Options options;
  options.on_refused = [&](const IpAddress& address) {
    const std::lock_guard lock(mutex);
    named.push_back(address.to_string());
  };
  RunningStore store(options);
  const RawClient early(store.port());
  EXPECT_EQ(early.ask(ping(1), 4), little_endian(1, 4));
  store.with([](StoreServer& server) { server.set_allowed(networks({"10.0.0.0/8"})); });
  EXPECT_TRUE(early.hears_the_end());
  for (int i = 0; i < 3; i++)
    EXPECT_TRUE(RawClient(store.port()).hears_the_end());
  EXPECT_EQ(store.counters().refused, 4u);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(named, std::vector<std::string>{"127.0.0.1"});
}

TEST(StoreServer, AcceptsMembersAlsoAsMappedAddresses) {
  RunningStore store({}, IpAddress::any_v6());  // Clients appear as ::ffff:127.0.0.1.
  store.with([](StoreServer& server) { server.set_allowed(networks({"10.1.2.3", "127.0.0.1"})); });
  EXPECT_EQ(RawClient(store.port()).ask(ping(1), 4), little_endian(1, 4));
  store.with([](StoreServer& server) { server.set_allowed(std::nullopt); });
  EXPECT_EQ(RawClient(store.port()).ask(ping(2), 4), little_endian(2, 4));
}

// ---- adopted sockets

TEST(StoreServer, AdoptsAConnectionWithBytesAlreadyRead) {
  RunningStore other;  // Adopts a connection that the test itself accepts.
  const PlainSocket listening = PlainSocket::bound_to({IpAddress::loopback_v4(), 0});
  const RawClient client(listening.own_address().port);
  client.say(ping(5));
  PlainSocket accepted = listening.accept_one();
  char bytes[7];
  // VALIDATE and two of PING.
  ASSERT_EQ(::recv(accepted.fd(), bytes, sizeof bytes, MSG_WAITALL), 7);
  ASSERT_EQ(::fcntl(accepted.fd(), F_SETFL, O_NONBLOCK), 0);
  other.with([&](StoreServer& server) { server.adopt(accepted.release(), {bytes, sizeof bytes}); });
  EXPECT_EQ(client.hear(4), little_endian(5, 4));
}

// ---- the listener

TEST(StoreListener, GivesThePlaceOfASilentClientToAnother) {
  RunningStore store({}, IpAddress::loopback_v4(), std::make_shared<Places>(3));
  const RawClient early(store.port());
  EXPECT_EQ(early.ask(ping(1), 4), little_endian(1, 4));
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 20; i++)
    silent.push_back(std::make_unique<RawClient>(store.port(), false));
  for (int i = 0; i < 18; i++)
    EXPECT_TRUE(silent[static_cast<size_t>(i)]->hears_the_end());
  const RawClient late(store.port());
  EXPECT_EQ(late.ask(ping(2), 4), little_endian(2, 4));
  EXPECT_TRUE(silent[18]->hears_the_end());
  EXPECT_LE(store.counters().connections, 3u);
}

TEST(StoreListener, MakesOthersWaitIfClientsHoldAllPlaces) {
  RunningStore store({}, IpAddress::loopback_v4(), std::make_shared<Places>(1));
  auto early = std::make_unique<RawClient>(store.port());
  EXPECT_EQ(early->ask(ping(1), 4), little_endian(1, 4));
  const RawClient late(store.port());
  late.say(ping(2));
  while (store.pauses() == 0)
    std::this_thread::yield();
  EXPECT_EQ(store.counters().adopted, 1u);
  early.reset();
  EXPECT_EQ(late.hear(4), little_endian(2, 4));
}

TEST(StoreListener, SaysWhyItCannotListen) {
  RunningStore store;
  boost::asio::io_context io;
  StoreServer server(io, {});
  const SocketAddress taken{IpAddress::loopback_v4(), store.port()};
  const auto second = StoreListener::open(io, server, {taken});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error(),
            (Error{ExitCode::environment,
                   "the store could not listen on 127.0.0.1:" + std::to_string(store.port()) +
                       ": Address already in use; choose another port"}));
  const auto elsewhere =
      StoreListener::open(io, server, {SocketAddress{IpAddress::v4({192, 0, 2, 1}), 0}});
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().message,
            "the store could not listen on 192.0.2.1:0: Cannot assign requested address; choose an "
            "address of this machine");
}

TEST(StoreListener, PausesWithoutDescriptorsWhileOthersGoOn) {
  RunningStore store;
  RawClient good(store.port());
  EXPECT_EQ(good.ask(ping(1), 4), little_endian(1, 4));
  // Room for the next client, none to accept it.
  std::optional<OutOfDescriptors> limit(1);
  const RawClient late(store.port());
  while (store.pauses() < 2)
    std::this_thread::yield();
  EXPECT_EQ(good.ask(ping(2), 4), little_endian(2, 4));
  limit.reset();
  EXPECT_EQ(late.ask(ping(3), 4), little_endian(3, 4));
}

}  // namespace
}  // namespace muster

#include "rendezvous/store/store_machine.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/store/store_harness.h"

namespace muster {
namespace {

using namespace store_test;
using std::chrono::seconds;
using tcpstore::Breach;

class StoreMachineTest : public testing::Test {
 protected:
  PureStore store;
  ClientId a = store.connect();
  ClientId b = store.connect();
  ClientId c = store.connect();
};

// The answers were captured from PyTorch's server.
TEST_F(StoreMachineTest, AnswersAsPyTorchDoes) {
  EXPECT_EQ(store.say(a, hex("0d 7c3c0000")), hex("7c3c0000"));
  EXPECT_EQ(store.say(a, set("/k", "v")), "");
  EXPECT_EQ(store.say(a, get("/k")), hex("0100000000000000 76"));
  EXPECT_EQ(store.say(a, add("/n", 5)), hex("0500000000000000"));
  EXPECT_EQ(store.say(a, add("/n", -7)), hex("feffffffffffffff"));
  EXPECT_EQ(store.say(a, get("/n")), hex("0200000000000000 2d32"));
  EXPECT_EQ(store.say(a, check({"/k", "/n"})), hex("00"));
  EXPECT_EQ(store.say(a, check({"/k", "/nope"})), hex("01"));
  EXPECT_EQ(store.say(a, check({})), hex("00"));
  EXPECT_EQ(store.say(a, wait({"/k"})), hex("00"));
  EXPECT_EQ(store.say(a, wait({})), hex("00"));
  EXPECT_EQ(store.say(a, wait({"/nope"})), "");
  EXPECT_EQ(store.say(a, cancel_wait()), hex("01"));
  EXPECT_EQ(store.say(a, append("/a", "x") + append("/a", "y") + get("/a")), str("xy"));
  EXPECT_EQ(store.say(a, multi_set({{"/m1", "one"}, {"/m2", "two"}})), "");
  EXPECT_EQ(store.say(a, multi_get({"/m1", "/m2"})),
            hex("0300000000000000 6f6e65 0300000000000000 74776f"));
  EXPECT_EQ(store.say(a, num_keys()), i64(5));
  EXPECT_EQ(store.say(a, delete_key("/m1")), i64(1));
  EXPECT_EQ(store.say(a, delete_key("/m1")), i64(0));
  EXPECT_EQ(store.say(a, barrier("/b1", 1)), hex("00"));
}

// Names are looked up a few dozen at a time; the missing one may be in any batch.
TEST_F(StoreMachineTest, OneMissingKeyAmongManyIsFoundAtAnyPosition) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::vector<std::string> keys;
  for (int i = 0; i < 100; i++) {
    keys.push_back("/k" + std::to_string(i));
    pairs.emplace_back(keys.back(), std::to_string(i));
  }
  store.say(a, multi_set(pairs));
  EXPECT_EQ(store.say(a, check(keys) + wait(keys)), kZero + kZero);
  for (size_t i = 0; i < keys.size(); i++) {
    std::vector<std::string> wanted = keys;
    wanted[i] = "/missing";
    EXPECT_EQ(store.say(a, check(wanted)), kOne) << i;
    EXPECT_EQ(store.say(b, wait(wanted)), "") << i;
    EXPECT_EQ(store.machine.waiting(), 1u);
    EXPECT_EQ(store.say(b, cancel_wait()), kOne);
  }
  std::string values;
  for (const auto& [key, value] : pairs)
    values += str(value);
  EXPECT_EQ(store.say(a, multi_get(keys)), values);
}

TEST_F(StoreMachineTest, MultiSetKeepsTheLastValueOfARepeatedKey) {
  store.say(a, multi_set({{"/k", "first"}, {"/other", ""}, {"/k", "last"}}));
  EXPECT_EQ(store.say(a, get("/k") + num_keys()), str("last") + i64(2));
}

TEST_F(StoreMachineTest, EmptyMultiRequestsAreNotAnswered) {
  EXPECT_EQ(store.say(a, multi_set({}) + multi_get({})), "");
  EXPECT_EQ(store.say(a, ping(1)), little_endian(1, 4));
}

TEST_F(StoreMachineTest, AMissingKeyReadsAsEmpty) {
  EXPECT_EQ(store.say(a, get("/none")), str(""));
  EXPECT_EQ(store.say(a, set("/k", "v") + multi_get({"/none", "/k"})), str("") + str("v"));
}

TEST_F(StoreMachineTest, ListKeysFollowsTheOrderOfCreation) {
  store.say(a, set("/z", "") + set("/a", "") + add("init/", 1) + set("/m", "") + set("/z", "new") +
                   delete_key("/a"));
  EXPECT_EQ(store.say(b, list_keys()), i64(3) + str("/z") + str("init/") + str("/m"));
  EXPECT_EQ(store.say(b, set("/a", "") + delete_key("/z") + delete_key("/m") + list_keys()),
            i64(1) + i64(1) + i64(2) + str("init/") + str("/a"));
}

// ---- ADD

TEST_F(StoreMachineTest, AddParsesNumbersLikeStrtoll) {
  const auto sum = [&](const std::string& stored, int64_t delta) {
    store.say(a, set("/n", stored));
    return store.say(a, add("/n", delta));
  };
  EXPECT_EQ(sum("12abc", 1), i64(13));
  EXPECT_EQ(sum(" \t\n12", 1), i64(13));
  EXPECT_EQ(sum("+12", 1), i64(13));
  EXPECT_EQ(sum("-12", 1), i64(-11));
  EXPECT_EQ(sum("007", 1), i64(8));
  EXPECT_EQ(sum(std::string("5\0"
                            "9",
                            3),
                1),
            i64(6));
}

TEST_F(StoreMachineTest, AddToANonNumberHangsUpAndKeepsTheValue) {
  for (const std::string stored : {"", "abc", " ", "+-1", "-", "+", "9223372036854775808"}) {
    const ClientId id = store.connect();
    store.say(b, set("/n", stored));
    EXPECT_EQ(store.say(id, add("/n", 1)), "");
    EXPECT_EQ(store.breach(id), Breach::not_a_number) << stored;
    EXPECT_EQ(store.say(b, get("/n")), str(stored));
  }
}

TEST_F(StoreMachineTest, AddWrapsAround) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(store.say(a, add("/n", most)), i64(most));
  EXPECT_EQ(store.say(a, add("/n", 1)), i64(std::numeric_limits<int64_t>::min()));
  EXPECT_EQ(store.say(a, get("/n")), str("-9223372036854775808"));
}

TEST_F(StoreMachineTest, AddOfZeroCreatesTheKey) {
  EXPECT_EQ(store.say(a, add("/n", 0) + check({"/n"})), i64(0) + kZero);
}

// ---- COMPARE_SET

TEST_F(StoreMachineTest, CompareSetAnswersWithTheResultingValue) {
  EXPECT_EQ(store.say(a, compare_set("/c", "", "1")), str("1"));
  EXPECT_EQ(store.say(a, compare_set("/c", "", "2")), str("1"));
  EXPECT_EQ(store.say(a, compare_set("/c", "1", "2")), str("2"));
  EXPECT_EQ(store.say(a, compare_set("/none", "x", "1")), str("x"));
  EXPECT_EQ(store.say(a, check({"/none"})), kOne);
  EXPECT_EQ(store.say(a, set("/e", "") + compare_set("/e", "", "full")), str("full"));
}

// ---- waiting

TEST_F(StoreMachineTest, EveryOperationThatCreatesAKeyWakesItsWaiters) {
  const std::vector<std::string> makers = {set("/k", ""),
                                           add("/k", 0),
                                           append("/k", ""),
                                           compare_set("/k", "", "1"),
                                           multi_set({{"/k", "v"}}),
                                           barrier("/k", 1)};
  for (const std::string& maker : makers) {
    store.say(a, delete_key("/k") + wait({"/k"}));
    const size_t before = store.heard(a).size();
    store.say(b, maker);
    EXPECT_EQ(store.heard(a).substr(before), kZero);
  }
}

// PyTorch's server wakes waiters here, which then read an empty value.
TEST_F(StoreMachineTest, ACompareSetThatStoresNothingWakesNoWaiter) {
  store.say(a, wait({"/k"}));
  store.say(b, compare_set("/k", "other", "1"));
  EXPECT_EQ(store.heard(a), "");
  EXPECT_EQ(store.machine.waiting(), 1u);
}

TEST_F(StoreMachineTest, AWaiterIsWokenByItsLastMissingKeyInAnyOrder) {
  store.say(b, set("/there", ""));
  store.say(a, wait({"/x", "/there", "/y", "/x"}));
  store.say(b, set("/y", "") + set("/y", "again"));
  EXPECT_EQ(store.heard(a), "");
  store.say(b, set("/x", ""));
  EXPECT_EQ(store.heard(a), kZero);
  store.say(b, set("/x", "") + set("/y", ""));
  EXPECT_EQ(store.heard(a), kZero);
}

TEST_F(StoreMachineTest, AKeyThatExistedOnceSatisfiesAWait) {
  store.say(a, wait({"/x", "/y"}));
  store.say(b, set("/x", "") + delete_key("/x") + set("/y", ""));
  EXPECT_EQ(store.heard(a), kZero);
}

TEST_F(StoreMachineTest, WaitersAreWokenInTheOrderOfTheirArrival) {
  for (const ClientId id : {c, a, b})
    store.say(id, wait({"/k"}));
  store.say(store.connect(), set("/k", "v"));
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{c, a, b}));
}

TEST_F(StoreMachineTest, AParkedWaitDoesNotDelayLaterRequests) {
  EXPECT_EQ(store.say(a, wait({"/k"}) + ping(5)), little_endian(5, 4));
  store.say(b, set("/k", ""));
  EXPECT_EQ(store.heard(a), little_endian(5, 4) + kZero);
}

TEST_F(StoreMachineTest, AConnectionMayWakeItself) {
  EXPECT_EQ(store.say(a, wait({"/k"}) + ping(5) + set("/k", "v") + get("/k")),
            little_endian(5, 4) + kZero + str("v"));
  EXPECT_TRUE(store.order_of_waking.empty());
}

TEST_F(StoreMachineTest, NoWakeUpFollowsTheAnswerToACancel) {
  EXPECT_EQ(store.say(a, wait({"/k"}) + cancel_wait()), kOne);
  store.say(b, set("/k", ""));
  EXPECT_EQ(store.heard(a), kOne);
}

TEST_F(StoreMachineTest, AWakeUpBeforeACancelIsSentFirst) {
  store.say(a, wait({"/k"}));
  store.say(b, set("/k", ""));
  store.say(a, cancel_wait());
  EXPECT_EQ(store.heard(a), kZero + kOne);
}

TEST_F(StoreMachineTest, AConnectionsOwnWakeUpPrecedesTheAnswer) {
  store.say(a, wait({"/n"}));
  EXPECT_EQ(store.say(a, add("/n", 5)), kZero + i64(5));
  store.say(a, wait({"/c"}));
  EXPECT_EQ(store.say(a, compare_set("/c", "", "v")), kZero + str("v"));
}

TEST_F(StoreMachineTest, CancelIsAlwaysAnswered) {
  EXPECT_EQ(store.say(a, cancel_wait() + cancel_wait()), kOne + kOne);
}

TEST_F(StoreMachineTest, AClosedConnectionIsForgottenAndOthersAreWoken) {
  for (const ClientId id : {a, b, c})
    store.say(id, wait({"/k", "/l"}));
  store.hang_up(b);
  const ClientId other = store.connect();
  store.say(other, set("/k", "") + set("/l", ""));
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{a, c}));
  EXPECT_EQ(store.machine.waiting(), 0u);
}

TEST_F(StoreMachineTest, ASecondParkedWaitReplacesTheFirst) {
  store.say(a, wait({"/x"}) + wait({"/y"}));
  store.say(b, set("/x", ""));
  EXPECT_EQ(store.heard(a), "");
  store.say(b, set("/y", ""));
  EXPECT_EQ(store.heard(a), kZero);
}

TEST_F(StoreMachineTest, AWaitThatIsAnsweredAtOnceKeepsTheParkedOne) {
  store.say(b, set("/there", ""));
  EXPECT_EQ(store.say(a, wait({"/x"}) + wait({"/there"})), kZero);
  store.say(b, set("/x", ""));
  EXPECT_EQ(store.heard(a), kZero + kZero);
}

TEST_F(StoreMachineTest, DeletingAKeyWakesNoWaiter) {
  store.say(b, barrier("/k", 2));
  store.say(a, delete_key("/k"));
  EXPECT_EQ(store.heard(b), "");
}

TEST_F(StoreMachineTest, AMultiSetIsCompleteBeforeItWakesWaiters) {
  store.say(a, wait({"/1", "/2"}));
  store.say(c, wait({"/2"}));
  store.say(b, multi_set({{"/1", ""}, {"/2", ""}}));
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{a, c}));
}

TEST_F(StoreMachineTest, AHalfReceivedMultiSetHasNoEffect) {
  store.say(a, wait({"/1"}));
  const std::string whole = multi_set({{"/1", "v"}, {"/2", "v"}});
  store.say(b, whole.substr(0, whole.size() - 1));
  EXPECT_EQ(store.say(c, num_keys()), i64(0));
  EXPECT_EQ(store.heard(a), "");
  store.say(b, whole.substr(whole.size() - 1));
  EXPECT_EQ(store.heard(a), kZero);
}

// ---- queues

TEST_F(StoreMachineTest, AQueueIsFifoAndAPopReturnsTheLengthBeforeIt) {
  store.say(a, queue_push("/q", "1") + queue_push("/q", "2"));
  EXPECT_EQ(store.say(b, queue_len("/q")), i64(2));
  EXPECT_EQ(store.say(b, queue_pop("/q") + queue_pop("/q") + queue_pop("/q")),
            i64(2) + str("1") + i64(1) + str("2") + i64(0));
  EXPECT_EQ(store.say(b, queue_len("/q")), i64(0));
}

TEST_F(StoreMachineTest, AQueueAndAKeyMayShareAName) {
  store.say(a, set("/x", "key") + queue_push("/x", "item"));
  EXPECT_EQ(store.say(a, num_keys() + get("/x") + delete_key("/x") + queue_len("/x")),
            i64(1) + str("key") + i64(1) + i64(1));
  EXPECT_EQ(store.say(a, check({"/x"}) + list_keys()), kZero + i64(0));
  EXPECT_EQ(store.say(a, queue_pop("/x") + check({"/x"})), i64(1) + str("item") + kOne);
}

TEST_F(StoreMachineTest, EachPushWakesTheLongestWaiter) {
  for (const ClientId id : {b, a, c})
    store.say(id, wait({"/q"}));
  const ClientId producer = store.connect();
  store.say(producer, queue_push("/q", "1"));
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{b}));
  store.say(producer, queue_push("/q", "2"));
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{b, a}));
}

TEST_F(StoreMachineTest, ASetOfAQueuesNameWakesAllWaiters) {
  store.say(a, wait({"/q"}));
  store.say(b, wait({"/q"}));
  store.say(c, set("/q", ""));
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{a, b}));
}

// PyTorch's server counts the queue as missing and never wakes the waiter.
TEST_F(StoreMachineTest, ANonEmptyQueueCountsAsPresentInAWait) {
  store.say(b, queue_push("/q", "1"));
  store.say(a, wait({"/q", "/k"}));
  store.say(b, set("/k", ""));
  EXPECT_EQ(store.heard(a), kZero);
}

// PyTorch's server ends the later wait at the next push.
TEST_F(StoreMachineTest, APushDoesNotEndALaterWaitOfAServedConsumer) {
  store.say(a, wait({"/q"}));
  store.say(b, queue_push("/q", "1"));
  EXPECT_EQ(store.say(a, queue_pop("/q")), i64(1) + str("1"));
  store.say(a, wait({"/other"}));
  const size_t before = store.heard(a).size();
  store.say(b, queue_push("/q", "2"));
  EXPECT_EQ(store.heard(a).size(), before);
  store.say(b, set("/other", ""));
  EXPECT_EQ(store.heard(a).substr(before), kZero);
}

TEST_F(StoreMachineTest, APushIsNotSpentOnAWaiterThatMissesMore) {
  store.say(a, wait({"/q", "/later"}));
  store.say(b, wait({"/q"}));
  store.say(c, queue_push("/q", "1"));
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{b}));
  store.say(c, set("/later", ""));
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{b, a}));
}

// ---- barriers

TEST_F(StoreMachineTest, ABarrierOpensAtTheLastArrivalAndStaysOpen) {
  EXPECT_EQ(store.say(a, barrier("/b", 3)), "");
  EXPECT_EQ(store.say(b, barrier("/b", 3)), "");
  EXPECT_EQ(store.say(c, barrier("/b", 3)), kZero);
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{a, b}));
  EXPECT_EQ(store.say(c, get("/b")), str("3"));
  EXPECT_EQ(store.say(store.connect(), barrier("/b", 3)), kZero);
}

TEST_F(StoreMachineTest, ACancelledArrivalStaysCounted) {
  EXPECT_EQ(store.say(a, barrier("/b", 2) + cancel_wait()), kOne);
  EXPECT_EQ(store.say(b, barrier("/b", 2)), kZero);
  EXPECT_EQ(store.heard(a), kOne);
}

TEST_F(StoreMachineTest, ASetOnABarrierWakesItsWaiters) {
  store.say(a, barrier("/b", 2));
  store.say(b, set("/b", "whatever"));
  EXPECT_EQ(store.heard(a), kZero);
}

TEST_F(StoreMachineTest, TheFirstArrivalCreatesTheBarriersKey) {
  store.say(a, wait({"/b"}));
  store.say(b, barrier("/b", 3));
  store.say(c, barrier("/b", 3));
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{a}));
}

TEST_F(StoreMachineTest, ABarrierOnANonNumberHangsUp) {
  store.say(b, set("/b", "word"));
  store.say(a, barrier("/b", 2));
  EXPECT_EQ(store.breach(a), Breach::not_a_number);
}

TEST_F(StoreMachineTest, ABarrierForZeroMembersIsOpen) {
  EXPECT_EQ(store.say(a, barrier("/b", 0) + barrier("/c", -5)), kZero + kZero);
}

// ---- limits

TEST(StoreMachine, AFullStoreRefusesTheWholeRequest) {
  PureStore store({.stored_bytes_max = 2000});
  const ClientId a = store.connect();
  const ClientId b = store.connect();
  store.say(a, set("/small", "v"));
  store.say(b, multi_set({{"/1", "v"}, {"/2", std::string(2000, 'v')}}));
  EXPECT_EQ(store.breach(b), Breach::store_full);
  EXPECT_EQ(store.say(a, num_keys()), i64(1));
  for (const std::string& request :
       {set("/x", std::string(2000, 'v')), append("/small", std::string(2000, 'v')),
        compare_set("/small", "v", std::string(2000, 'v')),
        queue_push("/q", std::string(2000, 'v')), add(std::string(2000, 'k'), 1),
        barrier(std::string(2000, 'k'), 1), wait({std::string(2000, 'k')})}) {
    const ClientId id = store.connect();
    store.say(id, request);
    EXPECT_EQ(store.breach(id), Breach::store_full);
  }
  EXPECT_EQ(store.say(a, get("/small") + queue_len("/q")), str("v") + i64(0));
}

TEST(StoreMachine, RemovingValuesFreesTheirBytes) {
  PureStore store;
  const ClientId a = store.connect();
  const size_t empty = store.machine.stored_bytes();
  store.say(a, set("/k", std::string(1000, 'v')) + set("/k", "") + append("/k", "more") +
                   add("/n", 1) + queue_push("/q", "1") + queue_push("/q", "2") +
                   wait({"/x", "/y", "/x"}));
  EXPECT_GT(store.machine.stored_bytes(), empty);
  store.say(
      a, cancel_wait() + delete_key("/k") + delete_key("/n") + queue_pop("/q") + queue_pop("/q"));
  EXPECT_EQ(store.machine.stored_bytes(), empty);
}

TEST(StoreMachine, AnAnswersSizeIsLimited) {
  PureStore store({.reply_bytes_max = 100});
  const ClientId writer = store.connect();
  store.say(writer, set("/a", std::string(46, 'v')) + set("/b", std::string(38, 'v')));
  EXPECT_EQ(store.say(writer, multi_get({"/a", "/b"})).size(), 100u);
  store.say(writer, append("/b", "v"));
  for (const std::string& request : {multi_get({"/a", "/b"}), multi_get({"/a", "/a"})}) {
    const ClientId id = store.connect();
    EXPECT_EQ(store.say(id, ping(1) + request), little_endian(1, 4));
    EXPECT_EQ(store.breach(id), Breach::reply_too_large);
  }
  store.say(writer, append("/b", std::string(100, 'v')));
  store.say(writer, get("/b"));
  EXPECT_EQ(store.breach(writer), Breach::reply_too_large);
}

TEST(StoreMachine, AValueMayGrowBeyondTheLimitOfARequest) {
  PureStore store;
  const ClientId a = store.connect();
  const std::string part(size_t{5} << 20, 'v');
  store.say(a, append("/a", part) + append("/a", part));
  EXPECT_EQ(store.say(a, get("/a")).size(), 8 + 2 * part.size());
}

// ---- the handshake

TEST(StoreMachine, AnUnvalidatedConnectionExpiresOnce) {
  PureStore store({.handshake_timeout = seconds(5)});
  EXPECT_EQ(store.machine.next_deadline(), kNever);
  const ClientId mute = store.connect_silently();
  EXPECT_EQ(store.machine.next_deadline(), store.now + seconds(5));
  store.connect();
  const ClientId gone = store.connect_silently();
  store.hang_up(gone);
  std::vector<ClientId> late;
  store.machine.expire(store.now + seconds(5) - Duration(1), late);
  EXPECT_EQ(late, std::vector<ClientId>{});
  store.machine.expire(store.now + seconds(5), late);
  EXPECT_EQ(late, std::vector<ClientId>{mute});
  store.machine.expire(store.now + seconds(500), late);
  EXPECT_EQ(late, std::vector<ClientId>{mute});
  EXPECT_EQ(store.machine.next_deadline(), kNever);
}

TEST(StoreMachine, AReusedSlotHasItsOwnDeadline) {
  StoreMachine machine({.handshake_timeout = seconds(5)});
  Instant now{};
  machine.opened(now, 0);
  machine.closed(0);
  machine.opened(now + seconds(3), 0);
  std::vector<ClientId> late;
  machine.expire(now + seconds(5), late);
  EXPECT_EQ(late, std::vector<ClientId>{});
  machine.expire(now + seconds(8), late);
  EXPECT_EQ(late, std::vector<ClientId>{0});
}

TEST(StoreMachine, StatusCountsKeysBytesAndWaiters) {
  PureStore store;
  const ClientId a = store.connect();
  store.say(a, set("/k", "v") + wait({"/x"}));
  EXPECT_TRUE(store.machine.status().starts_with("1 keys, ")) << store.machine.status();
  EXPECT_TRUE(store.machine.status().ends_with(" bytes, 1 waiting")) << store.machine.status();
}

// ---- what clients wait for

TEST_F(StoreMachineTest, SaysWhatClientsWaitForAndWhichClientsCreatedSuchKeys) {
  store.say(a, ping(100) + set("/init/0", "") + set("/init/00", ""));
  store.say(b, ping(200) + multi_set({{"/init/1", ""}, {"/x1", ""}}));
  store.say(c, ping(300) + wait({"/init/2", "/init/1", "/x10"}));
  store.say(b, wait({"/init/2"}));
  const std::vector<AwaitedKeys> waits = store.machine.awaited();
  ASSERT_EQ(waits.size(), 1u);
  ASSERT_EQ(waits[0].waiting.size(), 2u);
  EXPECT_EQ(waits[0].waiting[0].pid, 200);
  EXPECT_EQ(waits[0].waiting[1].pid, 300);
  EXPECT_FALSE(waits[0].is_barrier);
  ASSERT_EQ(waits[0].keys.size(), 1u);  // The first waiter's.
  EXPECT_EQ(waits[0].keys[0].name, "/init/2");
  const std::vector<AwaitedKey::Sibling>& siblings = waits[0].keys[0].siblings;
  ASSERT_EQ(siblings.size(), 2u);
  for (const int i : {0, 1}) {
    const AwaitedKey::Sibling& sibling = siblings[static_cast<size_t>(i)];
    EXPECT_EQ(sibling.place, 6u);
    EXPECT_EQ(sibling.awaited, 2);
    EXPECT_EQ(sibling.number, 1 - i);
    EXPECT_EQ(sibling.creator.pid, i == 0 ? 200 : 100);
  }
}

// Its number may be a later client's.
TEST_F(StoreMachineTest, AKeyOfAClientThatHasHungUpHasNoCreator) {
  store.say(a, ping(100) + set("/init/0", ""));
  store.hang_up(a);
  store.say(c, wait({"/init/1"}));
  EXPECT_TRUE(store.machine.awaited()[0].keys[0].siblings.empty());
  store.say(b, ping(200) + delete_key("/init/0") + set("/init/0", ""));
  EXPECT_EQ(store.machine.awaited()[0].keys[0].siblings.size(), 1u);
}

TEST_F(StoreMachineTest, LongWaitsAreCutAndBarriersAreToldApart) {
  std::vector<std::string> names;
  for (int i = 0; i < 20; i++)
    names.push_back("/n/" + std::to_string(i));
  store.say(a, wait(names));
  store.say(b, barrier("/b", 2));
  const std::vector<AwaitedKeys> waits = store.machine.awaited();
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].keys.size(), AwaitedKeys::kKeysMax);
  EXPECT_EQ(waits[0].more, 20 - AwaitedKeys::kKeysMax);
  EXPECT_TRUE(waits[1].is_barrier);
  EXPECT_EQ(waits[1].keys[0].name, "/b");
}

// ---- scale

TEST(StoreMachine, AHundredThousandLinksAreForgotten) {
  PureStore store;
  std::vector<std::string> names;
  for (int i = 0; i < 20000; i++)
    names.push_back("/name/" + std::to_string(i));
  std::vector<ClientId> ids;
  for (int i = 0; i < 5; i++) {
    ids.push_back(store.connect());
    store.say(ids.back(), wait(names));
  }
  store.say(ids[0], cancel_wait());
  store.hang_up(ids[1]);
  const ClientId writer = store.connect();
  for (const std::string& name : names)
    store.say(writer, set(name, ""));
  EXPECT_EQ(store.order_of_waking, (std::vector<ClientId>{ids[2], ids[3], ids[4]}));
  EXPECT_EQ(store.machine.waiting(), 0u);
}

}  // namespace
}  // namespace muster

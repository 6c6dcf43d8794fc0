#include "rendezvous/store/store_calls.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/rendezvous/store/store_harness.h"

namespace muster {
namespace {

using namespace store_test;
using tcpstore::Reply;
using tcpstore::Shape;
using Strings = std::vector<std::string>;

// The bytes were captured from PyTorch's client.
TEST(StoreCalls, WriteTheBytesThatPyTorchWrites) {
  const StoreKeys keys;
  EXPECT_EQ(calls::validate().request.bytes, kValidate);
  EXPECT_EQ(calls::ping(0x3c7c).request.bytes, hex("0d 7c3c0000"));
  EXPECT_EQ(calls::set(keys, "k", "v").request.bytes,
            hex("01 0200000000000000 2f6b 0100000000000000 76"));
  EXPECT_EQ(calls::get(keys, "k").request.bytes, hex("03 0200000000000000 2f6b"));
  EXPECT_EQ(calls::add(keys, "n", -7).request.bytes,
            hex("04 0200000000000000 2f6e f9ffffffffffffff"));
  EXPECT_EQ(calls::compare_set(keys, "c", "", "1").request.bytes, compare_set("/c", "", "1"));
  EXPECT_EQ(calls::check(keys, {"k", "n"}).request.bytes, check({"/k", "/n"}));
  EXPECT_EQ(calls::wait(keys, {"k"}).request.bytes, wait({"/k"}));
  EXPECT_EQ(calls::num_keys().request.bytes, hex("07"));
  EXPECT_EQ(calls::delete_key(keys, "c").request.bytes, delete_key("/c"));
  EXPECT_EQ(calls::append(keys, "a", "x").request.bytes, append("/a", "x"));
  EXPECT_EQ(calls::multi_get(keys, {"m1", "m2"}).request.bytes, multi_get({"/m1", "/m2"}));
  EXPECT_EQ(calls::cancel_wait_bytes(), cancel_wait());
  EXPECT_EQ(calls::list_keys().request.bytes, hex("11"));
}

TEST(StoreCalls, AllowAnyBytesInKeysAndValues) {
  const std::string zero("a\0b", 3);
  EXPECT_EQ(calls::set(StoreKeys(zero), zero, zero).request.bytes,
            set(joined({"/", zero, "/", zero}), zero));
  EXPECT_EQ(calls::get(StoreKeys(), "").request.bytes, get("/"));
}

// Answers have no header, so a wrong shape puts the connection out of step for good.
TEST(StoreCalls, KnowTheShapesOfTheirAnswers) {
  struct Case {
    StoreRequest request;
    Shape shape;
    size_t strings = 0;
    bool waits = false;
  };
  const StoreKeys keys;
  const std::vector<Case> cases = {
      {calls::validate().request, Shape::none},
      {calls::ping(1).request, Shape::nonce},
      {calls::set(keys, "k", "v").request, Shape::none},
      {calls::compare_set(keys, "k", "", "v").request, Shape::strings, 1},
      {calls::get(keys, "k").request, Shape::strings, 1},
      {calls::add(keys, "k", 1).request, Shape::number},
      {calls::check(keys, {"k", "l"}).request, Shape::flag},
      {calls::wait(keys, {"k", "l"}).request, Shape::flag, 0, true},
      {calls::num_keys().request, Shape::number},
      {calls::delete_key(keys, "k").request, Shape::number},
      {calls::append(keys, "k", "v").request, Shape::none},
      {calls::multi_get(keys, {"k", "l", "k"}).request, Shape::strings, 3},
      {calls::multi_get(keys, {}).request, Shape::strings, 0},
      {calls::list_keys().request, Shape::names}};
  for (const Case& one : cases) {
    EXPECT_EQ(one.request.shape, one.shape) << one.request.what;
    EXPECT_EQ(one.request.strings, one.strings) << one.request.what;
    EXPECT_EQ(one.request.waits, one.waits) << one.request.what;
    EXPECT_EQ(one.request.error, std::nullopt) << one.request.what;
  }
}

TEST(StoreCalls, AreNamedByOperationAndKeyWithoutPrefix) {
  const StoreKeys keys("job");
  EXPECT_EQ(calls::validate().request.what, "VALIDATE");
  EXPECT_EQ(calls::ping(1).request.what, "PING");
  EXPECT_EQ(calls::set(keys, "k", "v").request.what, "SET k");
  EXPECT_EQ(calls::compare_set(keys, "k", "", "v").request.what, "COMPARE_SET k");
  EXPECT_EQ(calls::get(keys, "k").request.what, "GET k");
  EXPECT_EQ(calls::add(keys, "k", 1).request.what, "ADD k");
  EXPECT_EQ(calls::check(keys, {}).request.what, "CHECK of no keys");
  EXPECT_EQ(calls::wait(keys, {"k"}).request.what, "WAIT k");
  EXPECT_EQ(calls::multi_get(keys, {"k", "l", "m"}).request.what, "MULTI_GET k and 2 more");
  EXPECT_EQ(calls::num_keys().request.what, "GETNUMKEYS");
  EXPECT_EQ(calls::delete_key(keys, "k").request.what, "DELETE_KEY k");
  EXPECT_EQ(calls::append(keys, "k", "v").request.what, "APPEND k");
  EXPECT_EQ(calls::list_keys().request.what, "LIST_KEYS");
}

template <typename T>
T meaning(const StoreCall<T>& call, Reply reply) {
  return call.meaning(std::move(reply));
}

TEST(StoreCalls, DecodeTheirAnswers) {
  const StoreKeys keys;
  EXPECT_EQ(meaning(calls::ping(7), {0xffffffff, {}}), 0xffffffffu);
  EXPECT_EQ(meaning(calls::compare_set(keys, "k", "", "v"), {0, {"other"}}), "other");
  EXPECT_EQ(meaning(calls::get(keys, "k"), {0, {"v"}}), "v");
  EXPECT_EQ(meaning(calls::add(keys, "k", 1), {-5, {}}), -5);
  EXPECT_TRUE(meaning(calls::check(keys, {"k"}), {tcpstore::kReady, {}}));
  EXPECT_FALSE(meaning(calls::check(keys, {"k"}), {tcpstore::kNotReady, {}}));
  EXPECT_EQ(meaning(calls::num_keys(), {3, {}}), 3);
  EXPECT_TRUE(meaning(calls::delete_key(keys, "k"), {1, {}}));
  EXPECT_FALSE(meaning(calls::delete_key(keys, "k"), {0, {}}));
  EXPECT_EQ(meaning(calls::multi_get(keys, {"k", "l"}), {0, {"1", ""}}), (Strings{"1", ""}));
  EXPECT_EQ(meaning(calls::list_keys(), {2, {"/a/k", "init/"}}), (Strings{"/a/k", "init/"}));
}

TEST(StoreCalls, NestPrefixesAsPyTorchDoes) {
  EXPECT_EQ(StoreKeys().full("k"), "/k");
  EXPECT_EQ(StoreKeys("a").full("k"), "/a/k");
  EXPECT_EQ(StoreKeys("a").nested("b").full("k"), "/a/b/k");
  EXPECT_EQ(StoreKeys("").full("k"), "//k");
  EXPECT_EQ(StoreKeys("a").stripped("/a/b/k"), "b/k");
  EXPECT_EQ(StoreKeys("a").stripped("/a/"), "");
  EXPECT_EQ(StoreKeys("a").stripped("/a"), std::nullopt);
  EXPECT_EQ(StoreKeys("a").stripped("/ab/k"), std::nullopt);
  EXPECT_EQ(StoreKeys().stripped("init/"), std::nullopt);
}

RC_GTEST_PROP(StoreCalls, StripThePrefixesThatTheyAdd,
              (const std::string& outer, const std::string& inner, const std::string& key)) {
  const StoreKeys keys = StoreKeys(outer).nested(inner);
  RC_ASSERT(keys.stripped(keys.full(key)) == key);
  RC_ASSERT(StoreKeys(outer).stripped(keys.full(key)) == inner + "/" + key);
  RC_ASSERT(StoreKeys(outer + "/" + inner).full(key) == keys.full(key));
}

TEST(StoreCalls, FailIfTheServerWouldCloseTheConnection) {
  const StoreKeys keys;
  EXPECT_EQ(calls::set(keys, std::string(8192, 'k'), "").request.error,
            (Error{ExitCode::rendezvous,
                   "cannot send SET " + std::string(8192, 'k') +
                       " to the store: a key of 8193 bytes is more than 8192; use a shorter key"}));
  EXPECT_EQ(calls::set(keys, "k", std::string((8 << 20) + 1, 'v')).request.error->message,
            "cannot send SET k to the store: a value of 8388609 bytes is more than 8388608; split "
            "the value");
  EXPECT_EQ(calls::check(keys, Strings(131073, "k")).request.error->message,
            "cannot send CHECK k and 131072 more to the store: a list of 131073 keys is more than "
            "131072; split the list");
  const Strings large(8192, std::string(8191, 'k'));
  EXPECT_THAT(calls::check(keys, large).request.error->message,
              testing::EndsWith("to the store: a request of 67174409 bytes is more than 67108864; "
                                "split the request"));
}

TEST(StoreCalls, AcceptRequestsAtTheServersLimits) {
  const StoreKeys keys;
  EXPECT_EQ(calls::get(keys, std::string(8191, 'k')).request.error, std::nullopt);
  EXPECT_EQ(calls::append(keys, "k", std::string(8 << 20, 'v')).request.error, std::nullopt);
  EXPECT_EQ(calls::wait(keys, Strings(131072, "k")).request.error, std::nullopt);
}

TEST(StoreCalls, CountThePrefixAsPartOfTheKey) {
  const StoreKeys keys("job");  // "/job/" has five bytes.
  EXPECT_EQ(calls::add(keys, std::string(8187, 'k'), 1).request.error, std::nullopt);
  EXPECT_THAT(calls::add(keys, std::string(8188, 'k'), 1).request.error->message,
              testing::HasSubstr("a key of 8193 bytes is more than 8192"));
  EXPECT_NE(calls::multi_get(keys, {"k", std::string(8188, 'k')}).request.error, std::nullopt);
}

TEST(StoreCalls, ReportTheFirstOfSeveralErrors) {
  const std::string value((8 << 20) + 1, 'v');
  EXPECT_THAT(calls::set(StoreKeys(), std::string(9000, 'k'), value).request.error->message,
              testing::EndsWith("a key of 9001 bytes is more than 8192; use a shorter key"));
  EXPECT_THAT(calls::compare_set(StoreKeys(), "k", "", value).request.error->message,
              testing::HasSubstr("COMPARE_SET k to the store: a value of 8388609 bytes"));
}

}  // namespace
}  // namespace muster

#include "rendezvous/store/tcpstore_codec.h"

#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/store/store_harness.h"

namespace muster {
namespace {

using namespace store_test;
using tcpstore::Breach;
using tcpstore::Op;
using tcpstore::Request;
using tcpstore::RequestDecoder;

// A copy of a request that owns its bytes.
struct Decoded {
  Op op = Op::validate;
  int64_t number = 0;
  std::vector<std::string> fields;

  friend bool operator==(const Decoded&, const Decoded&) = default;
};

std::ostream& operator<<(std::ostream& out, const Decoded& decoded) {
  out << "op " << static_cast<int>(decoded.op) << " number " << decoded.number;
  for (const std::string& field : decoded.fields)
    out << " '" << field << "'";
  return out;
}

// Feeds pieces and collects requests until a breach.
class Feeder {
 public:
  explicit Feeder(size_t request_bytes_max = tcpstore::kRequestBytesMax)
      : decoder(request_bytes_max) {}

  void feed(std::string_view piece) {
    // A copy, so that the sanitizer finds a view that outlives its buffer.
    const std::string bytes(piece);
    std::string_view input(bytes);
    while (!breach) {
      Request request;
      const RequestDecoder::Decoded decoded = decoder.next(input, request);
      if (decoded == RequestDecoder::Decoded::more) break;
      if (decoded == RequestDecoder::Decoded::breach) {
        breach = decoder.breach();
        break;
      }
      requests.push_back({request.op,
                          request.op == Op::validate ? 0 : request.number,
                          {request.fields.begin(), request.fields.end()}});
    }
    if (!breach) {
      EXPECT_TRUE(input.empty());
    }
  }

  RequestDecoder decoder;
  std::vector<Decoded> requests;
  std::optional<Breach> breach;
};

Decoded decode_one(const std::string& bytes) {
  Feeder feeder;
  feeder.feed(kValidate + bytes);
  EXPECT_EQ(feeder.breach, std::nullopt);
  EXPECT_EQ(feeder.requests.size(), 2u);
  EXPECT_EQ(feeder.decoder.buffered(), 0u);
  return feeder.requests.empty() ? Decoded{} : feeder.requests.back();
}

// The bytes were captured from PyTorch's client.
TEST(TcpstoreCodec, DecodesEveryRequestThatPyTorchWrites) {
  EXPECT_EQ(decode_one(hex("0d 7c3c0000")), (Decoded{Op::ping, 0x3c7c, {}}));
  EXPECT_EQ(decode_one(hex("01 0200000000000000 2f6b 0100000000000000 76")),
            (Decoded{Op::set, 0, {"/k", "v"}}));
  EXPECT_EQ(decode_one(hex("01 0200000000000000 2f65 0000000000000000")),
            (Decoded{Op::set, 0, {"/e", ""}}));
  EXPECT_EQ(decode_one(hex("03 0200000000000000 2f6b")), (Decoded{Op::get, 0, {"/k"}}));
  EXPECT_EQ(decode_one(hex("04 0200000000000000 2f6e 0500000000000000")),
            (Decoded{Op::add, 5, {"/n"}}));
  EXPECT_EQ(decode_one(hex("04 0200000000000000 2f6e f9ffffffffffffff")),
            (Decoded{Op::add, -7, {"/n"}}));
  EXPECT_EQ(decode_one(hex("05 0200000000000000 0200000000000000 2f6b 0200000000000000 2f6e")),
            (Decoded{Op::check, 2, {"/k", "/n"}}));
  EXPECT_EQ(decode_one(hex("05 0000000000000000")), (Decoded{Op::check, 0, {}}));
  EXPECT_EQ(decode_one(hex("06 0100000000000000 0500000000000000 2f6e6f7065")),
            (Decoded{Op::wait, 1, {"/nope"}}));
  EXPECT_EQ(decode_one(hex("02 0200000000000000 2f63 0000000000000000 0100000000000000 31")),
            (Decoded{Op::compare_set, 0, {"/c", "", "1"}}));
  EXPECT_EQ(decode_one(hex("07")), (Decoded{Op::num_keys, 0, {}}));
  EXPECT_EQ(decode_one(hex("08 0200000000000000 2f63")), (Decoded{Op::delete_key, 0, {"/c"}}));
  EXPECT_EQ(decode_one(hex("09 0200000000000000 2f61 0100000000000000 78")),
            (Decoded{Op::append, 0, {"/a", "x"}}));
  EXPECT_EQ(decode_one(hex("0a 0200000000000000 0300000000000000 2f6d31 0300000000000000 2f6d32")),
            (Decoded{Op::multi_get, 2, {"/m1", "/m2"}}));
  EXPECT_EQ(decode_one(hex("0b 0200000000000000 0300000000000000 2f6d31 0300000000000000 6f6e65 "
                           "0300000000000000 2f6d32 0300000000000000 74776f")),
            (Decoded{Op::multi_set, 2, {"/m1", "one", "/m2", "two"}}));
  EXPECT_EQ(decode_one(hex("0c")), (Decoded{Op::cancel_wait, 0, {}}));
  EXPECT_EQ(decode_one(hex("0e 0200000000000000 2f71 0200000000000000 6a31")),
            (Decoded{Op::queue_push, 0, {"/q", "j1"}}));
  EXPECT_EQ(decode_one(hex("0f 0200000000000000 2f71")), (Decoded{Op::queue_pop, 0, {"/q"}}));
  EXPECT_EQ(decode_one(hex("10 0200000000000000 2f71")), (Decoded{Op::queue_len, 0, {"/q"}}));
  EXPECT_EQ(decode_one(hex("11")), (Decoded{Op::list_keys, 0, {}}));
  EXPECT_EQ(decode_one(hex("12 0300000000000000 2f6231 0100000000000000")),
            (Decoded{Op::barrier, 1, {"/b1"}}));
  EXPECT_EQ(decode_one(hex("04 0500000000000000 696e69742f 0100000000000000")),
            (Decoded{Op::add, 1, {"init/"}}));
}

TEST(TcpstoreCodec, AllowsAnyBytesInKeysAndValues) {
  const std::string odd("\0\xff/\n", 4);
  EXPECT_EQ(decode_one(set(odd, odd)), (Decoded{Op::set, 0, {odd, odd}}));
  EXPECT_EQ(decode_one(set("", "")), (Decoded{Op::set, 0, {"", ""}}));
}

// Each operation at least once.
std::string transcript() {
  return kValidate + ping(7) + set("/k", "value") + get("/k") + add("/n", -7) +
         compare_set("/c", "", "1") + check({"/k", "/n"}) + check({}) + wait({"/k", "/nope"}) +
         cancel_wait() + num_keys() + delete_key("/c") + append("/a", "x") +
         multi_get({"/k", "/n", ""}) + multi_set({{"/m1", "one"}, {"/m2", ""}}) + multi_set({}) +
         queue_push("/q", "job") + queue_len("/q") + queue_pop("/q") + list_keys() +
         barrier("/b", 2);
}

TEST(TcpstoreCodec, DecodesTheSameRequestsFromAnySplitInTwo) {
  const std::string all = transcript();
  Feeder whole;
  whole.feed(all);
  ASSERT_EQ(whole.requests.size(), 21u);
  for (size_t cut = 0; cut <= all.size(); cut++) {
    Feeder feeder;
    feeder.feed(std::string_view(all).substr(0, cut));
    feeder.feed(std::string_view(all).substr(cut));
    ASSERT_EQ(feeder.requests, whole.requests) << "cut at " << cut;
  }
}

TEST(TcpstoreCodec, DecodesTheSameRequestsFromPiecesOfAnySize) {
  const std::string all = transcript();
  Feeder whole;
  whole.feed(all);
  for (size_t size = 1; size < 40; size++) {
    Feeder feeder;
    for (size_t at = 0; at < all.size(); at += size)
      feeder.feed(std::string_view(all).substr(at, size));
    ASSERT_EQ(feeder.requests, whole.requests) << "pieces of " << size;
    ASSERT_EQ(feeder.decoder.buffered(), 0u);
    ASSERT_TRUE(feeder.decoder.validated());
  }
}

TEST(TcpstoreCodec, DoesNotCopyARequestThatIsWholeInTheInput) {
  RequestDecoder decoder;
  Request request;
  const std::string bytes = kValidate + set("/key", "value");
  std::string_view input(bytes);
  ASSERT_EQ(decoder.next(input, request), RequestDecoder::Decoded::request);
  ASSERT_EQ(decoder.next(input, request), RequestDecoder::Decoded::request);
  EXPECT_EQ(static_cast<const void*>(request.key().data()), bytes.data() + 5 + 1 + 8);
}

// ---- the handshake

std::optional<Breach> breach_of(const std::string& bytes) {
  Feeder feeder;
  feeder.feed(bytes);
  return feeder.breach;
}

TEST(TcpstoreCodec, RefusesARequestBeforeValidate) {
  EXPECT_EQ(breach_of(ping(1)), Breach::not_validated);
  EXPECT_EQ(breach_of(op(1)), Breach::not_validated);  // Its first byte is enough.
  EXPECT_EQ(breach_of("GET / HTTP/1.1\r\n"), Breach::not_validated);
  EXPECT_EQ(breach_of("\x16\x03\x01"), Breach::not_validated);
}

TEST(TcpstoreCodec, RefusesAWrongMagicAndASecondValidate) {
  EXPECT_EQ(breach_of(hex("00 cef7853d")), Breach::bad_magic);
  EXPECT_EQ(breach_of(hex("00 00000000")), Breach::bad_magic);
  EXPECT_EQ(breach_of(kValidate + kValidate), Breach::second_validate);
  EXPECT_EQ(breach_of(kValidate + ping(1) + op(0)), Breach::second_validate);
}

TEST(TcpstoreCodec, RefusesUnknownOperations) {
  for (const int code : {19, 42, 127, 255})
    EXPECT_EQ(breach_of(kValidate + op(code)), Breach::unknown_operation) << code;
}

// ---- limits, at the edge and one over it

TEST(TcpstoreCodec, AllowsKeysOf8192Bytes) {
  EXPECT_EQ(decode_one(get(std::string(8192, 'k'))).fields[0].size(), 8192u);
  EXPECT_EQ(breach_of(kValidate + op(3) + i64(8193)), Breach::key_too_long);
  EXPECT_EQ(breach_of(kValidate + op(3) + i64(-1)), Breach::key_too_long);
  EXPECT_EQ(breach_of(kValidate + get(std::string(8193, 'k'))), Breach::key_too_long);
  EXPECT_EQ(breach_of(kValidate + op(4) + str(std::string(8193, 'k')) + i64(1)),
            Breach::key_too_long);
  EXPECT_EQ(breach_of(kValidate + op(5) + i64(2) + str("k") + i64(8193)), Breach::key_too_long);
  EXPECT_EQ(breach_of(kValidate + op(11) + i64(1) + i64(8193)), Breach::key_too_long);
}

TEST(TcpstoreCodec, AllowsValuesOf8MiB) {
  const size_t most = size_t{8} << 20;
  EXPECT_EQ(decode_one(set("k", std::string(most, 'v'))).fields[1].size(), most);
  const std::string over = i64(static_cast<int64_t>(most) + 1);
  EXPECT_EQ(breach_of(kValidate + op(1) + str("k") + over), Breach::value_too_long);
  EXPECT_EQ(breach_of(kValidate + op(2) + str("k") + over), Breach::value_too_long);
  EXPECT_EQ(breach_of(kValidate + op(2) + str("k") + str("") + over), Breach::value_too_long);
  EXPECT_EQ(breach_of(kValidate + op(9) + str("k") + over), Breach::value_too_long);
  EXPECT_EQ(breach_of(kValidate + op(11) + i64(1) + str("k") + over), Breach::value_too_long);
  EXPECT_EQ(breach_of(kValidate + op(14) + str("k") + i64(-1)), Breach::value_too_long);
}

TEST(TcpstoreCodec, AllowsListsOf131072Keys) {
  EXPECT_EQ(decode_one(check(std::vector<std::string>(131072, "k"))).fields.size(), 131072u);
  for (const int code : {5, 6, 10, 11}) {
    EXPECT_EQ(breach_of(kValidate + op(code) + i64(131073)), Breach::too_many_keys) << code;
    EXPECT_EQ(breach_of(kValidate + op(code) + i64(-1)), Breach::too_many_keys) << code;
  }
}

TEST(TcpstoreCodec, LimitsTheWholeRequest) {
  const std::string fits = set("key", std::string(83, 'v'));  // 1 + 11 + 91 bytes.
  Feeder at_the_edge(fits.size());
  at_the_edge.feed(kValidate + fits + fits);
  EXPECT_EQ(at_the_edge.requests.size(), 3u);
  // A length that will not fit is refused before its bytes arrive.
  Feeder over(fits.size());
  over.feed(kValidate + op(1) + str("key") + i64(84));
  EXPECT_EQ(over.breach, Breach::request_too_large);
  // The limit holds for a key that came whole and for one that is cut.
  const std::string key = get(std::string(92, 'k'));
  Feeder whole(key.size() - 1), cut(key.size() - 1);
  whole.feed(kValidate + key);
  cut.feed(kValidate + key.substr(0, 9));
  EXPECT_EQ(whole.breach, Breach::request_too_large);
  EXPECT_EQ(cut.breach, Breach::request_too_large);
}

TEST(TcpstoreCodec, RefusesAMultiSetOfHugeValuesAtTheLimit) {
  Feeder feeder;
  feeder.feed(kValidate + op(11) + i64(131072));
  const std::string pair = str("k") + str(std::string(size_t{8} << 20, 'v'));
  size_t pairs = 0;
  for (; !feeder.breach && pairs < 100; pairs++)
    feeder.feed(pair);
  EXPECT_EQ(feeder.breach, Breach::request_too_large);
  EXPECT_EQ(pairs, 8u);
}

// ---- memory and time

TEST(TcpstoreCodec, BuffersOnlyAnUnfinishedRequest) {
  Feeder feeder;
  feeder.feed(kValidate + set("k", "v"));
  EXPECT_EQ(feeder.decoder.buffered(), 0u);
  feeder.feed(set("k", "v") + op(1) + str("k") + i64(100000) + std::string(50000, 'x'));
  EXPECT_GT(feeder.decoder.buffered(), 50000u);
  EXPECT_LT(feeder.decoder.buffered(), 200000u);
  feeder.feed(std::string(50000, 'x'));
  EXPECT_EQ(feeder.decoder.buffered(), 0u);
  EXPECT_EQ(feeder.requests.size(), 4u);
}

TEST(TcpstoreCodec, AllocatesNothingForALengthAlone) {
  Feeder feeder;
  feeder.feed(kValidate + op(1) + str("k") + i64(size_t{8} << 20));
  EXPECT_LT(feeder.decoder.buffered(), 1024u);
}

// PyTorch's parser starts over at each piece; it needs 12.8 s for this list in pieces of 4 KiB.
TEST(TcpstoreCodec, DecodesALongListInManyPiecesInLinearTime) {
  const std::string all = kValidate + check(std::vector<std::string>(131072, "/a/key/like/others"));
  const auto begin = std::chrono::steady_clock::now();
  Feeder feeder;
  for (size_t at = 0; at < all.size(); at += 256)
    feeder.feed(std::string_view(all).substr(at, 256));
  EXPECT_EQ(feeder.requests.back().fields.size(), 131072u);
  // It takes a hundredth of this; a parser that starts over takes minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(TcpstoreCodec, WritesLittleEndianNumbersAndCountedStrings) {
  std::string out;
  tcpstore::put_u8(out, 0xfe);
  tcpstore::put_u32(out, 0x3c7c);
  tcpstore::put_i64(out, -2);
  tcpstore::put_string(out, "ab");
  EXPECT_EQ(out, hex("fe 7c3c0000 feffffffffffffff 0200000000000000 6162"));
  EXPECT_EQ(tcpstore::read_u32(out.data() + 1), 0x3c7cu);
  EXPECT_EQ(tcpstore::read_u64(out.data() + 5), static_cast<uint64_t>(-2));
}

}  // namespace
}  // namespace muster

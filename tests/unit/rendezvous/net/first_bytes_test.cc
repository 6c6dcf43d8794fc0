#include "rendezvous/net/first_bytes.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace muster {
namespace {

constexpr std::string_view kHello("\0\xce\xf7\x85\x3c", 5);

Caller caller(std::string_view bytes) {
  return who_calls(bytes, "MSTR");
}
std::string probe() {
  return std::string(kProbeMagic) + std::string(kNonceBytes, 'n');
}

TEST(WhoCalls, KnowsAStoreClientOnceItsMagicIsComplete) {
  for (size_t n = 1; n < kHello.size(); ++n)
    EXPECT_EQ(caller(kHello.substr(0, n)), Caller::unknown_yet) << n;
  EXPECT_EQ(caller(kHello), Caller::store_client);
  EXPECT_EQ(caller(std::string(kHello) + "\x0d more"), Caller::store_client);
}

TEST(WhoCalls, CallsAWrongStoreMagicAStranger) {
  EXPECT_EQ(caller(std::string_view("\0\xce\xf7\x85\x3d", 5)), Caller::stranger);
  EXPECT_EQ(caller(std::string_view("\0\x06\0\0\0\0\0\0\0", 9)), Caller::stranger);
}

TEST(WhoCalls, KnowsAnAgentOnceItsMagicIsComplete) {
  EXPECT_EQ(caller("M"), Caller::unknown_yet);
  EXPECT_EQ(caller("MST"), Caller::unknown_yet);
  EXPECT_EQ(caller("MSTR"), Caller::agent);
  EXPECT_EQ(caller("MSTR\x01rest"), Caller::agent);
  EXPECT_EQ(caller("MSTX"), Caller::stranger);
}

TEST(WhoCalls, WaitsForTheWholeProbe) {
  for (size_t n = 1; n < probe().size(); ++n)
    EXPECT_EQ(caller(probe().substr(0, n)), Caller::unknown_yet) << n;
  EXPECT_EQ(caller(probe()), Caller::probe);
  EXPECT_EQ(caller("MSPROBE2"), Caller::stranger);
}

TEST(WhoCalls, NeverChangesItsMindWithMoreBytes) {
  rc::check([](const std::string& tail) {
    const std::string whole =
        *rc::gen::element(std::string(kHello), probe(), std::string("MSTR"), std::string("M"),
                          std::string("MSPRO"), std::string()) +
        tail;
    Caller before = Caller::unknown_yet;
    for (size_t n = 0; n <= whole.size(); ++n) {
      const Caller now = caller(std::string_view(whole).substr(0, n));
      RC_ASSERT(before == Caller::unknown_yet || now == before);
      before = now;
    }
  });
}

TEST(DescribeStranger, NamesCommonProtocols) {
  EXPECT_EQ(describe_stranger("GET /metrics HTTP/1.1\r\nHost: a\r\n"),
            "a web browser or other HTTP client (GET /metrics HTTP/1.1)");
  EXPECT_EQ(describe_stranger("PRI * HTTP/2.0\r\n\r\nSM"),
            "a web browser or other HTTP client (PRI * HTTP/2.0)");
  EXPECT_EQ(describe_stranger("\x16\x03\x01\x02"), "a TLS client");
  EXPECT_EQ(describe_stranger("SSH-2.0-OpenSSH_9.2\r\n"), "an ssh client (SSH-2.0-OpenSSH_9.2)");
  EXPECT_EQ(describe_stranger(""), "a client that sent nothing");
  EXPECT_EQ(describe_stranger("\x80\xff hello you"),
            "a client of an unknown protocol (first bytes 80 ff 20 68 65 6c 6c 6f)");
}

TEST(DescribeStranger, NamesTheStoreClientsOfOldPyTorch) {
  const std::string old = "a store client of a PyTorch before 2.2, which speaks another protocol";
  EXPECT_EQ(describe_stranger(std::string_view("\x03\x06\0\0\0\0\0\0\0/init/", 15)), old);
  EXPECT_EQ(describe_stranger(std::string_view("\0\x06\0\0\0\0\0\0\0/init/", 15)), old);
  EXPECT_EQ(describe_stranger(kHello.substr(1)), old);
}

TEST(DescribeStranger, IsOneShortPrintableLineForAnyBytes) {
  rc::check([](const std::string& bytes) {
    const std::string prefix =
        *rc::gen::element(std::string(), std::string("GET "), std::string("SSH-"));
    const std::string text = describe_stranger(prefix + bytes);
    RC_ASSERT(text.size() <= 120u);
    RC_ASSERT(std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c <= 0x7e; }));
  });
}

}  // namespace
}  // namespace muster

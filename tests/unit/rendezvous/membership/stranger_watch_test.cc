#include "rendezvous/membership/stranger_watch.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

using member::ConnectionFailed;

constexpr std::string_view kWeb = "HTTP/1.1 400 Bad Request\r\n";
constexpr std::string_view kShell = "SSH-2.0-OpenSSH_9.2\r\n";

TEST(StrangerWatch, OneOddAnswerProvesNothing) {
  StrangerWatch watch("node0:29400");
  EXPECT_FALSE(watch.on_store().fatal);
  watch.on_host();
  EXPECT_FALSE(watch.on_store().fatal);
  EXPECT_FALSE(watch.on_silence().fatal);
  EXPECT_FALSE(watch.on_store().fatal);
  EXPECT_FALSE(watch.on_hangup().fatal);
  EXPECT_FALSE(watch.on_store().fatal);
  EXPECT_TRUE(watch.on_store().fatal);
}

TEST(StrangerWatch, SilenceAndHangupsAreNeverFatal) {
  StrangerWatch watch("node0:29400");
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(watch.on_hangup().fatal);
    EXPECT_FALSE(watch.on_silence().fatal);
  }
}

TEST(StrangerWatch, AServersFirstBytesAreFatalFromTheThirdTimeOn) {
  StrangerWatch watch("node0:29400");
  for (const bool fatal : {false, false, true, true})
    EXPECT_EQ(watch.on_bytes(kWeb).fatal, fatal);
  watch.on_host();
  EXPECT_FALSE(watch.on_bytes(kWeb).fatal);
}

// A proxy and its backend, or two machines behind one name, may alternate.
TEST(StrangerWatch, AlternatingServersAreNeverFatal) {
  StrangerWatch watch("node0:29400");
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(watch.on_bytes(kWeb).fatal);
    EXPECT_FALSE(watch.on_bytes(kWeb).fatal);
    EXPECT_FALSE(watch.on_bytes(kShell).fatal);
    EXPECT_FALSE(watch.on_store().fatal);
  }
}

TEST(StrangerWatch, SaysWhatAnswersAndWhatToDo) {
  StrangerWatch watch("node0:29400");
  const auto failed = [](const std::string& message, bool fatal) {
    return ConnectionFailed{{ExitCode::rendezvous, message}, false, fatal};
  };
  EXPECT_EQ(watch.on_silence(), failed("node0:29400 accepts connections but sends nothing: its "
                                       "host is stopped or very busy, or it is not a muster host",
                                       false));
  EXPECT_EQ(watch.on_hangup(), failed("node0:29400 accepts connections and closes them: it is a "
                                      "forwarder whose host is not up yet, or not a muster host",
                                      false));
  EXPECT_EQ(watch.on_bytes(kShell),
            failed("at node0:29400 answers an SSH server (SSH-2.0-OpenSSH_9.2), not a muster host: "
                   "start all nodes with muster, or use another port",
                   false));
  const std::string store =
      "at node0:29400 answers a PyTorch TCPStore server (of torchrun or of a training script), not "
      "a muster host: start all nodes with muster, or use another port";
  EXPECT_EQ(watch.on_store(), failed(store, false));
  EXPECT_EQ(watch.on_store(), failed(store, true));
}

TEST(StrangerWatch, ServersThatSpeakFirstAreNamed) {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"HTTP/1.1 400 Bad Request\r\nServer: x", "a web server or proxy (HTTP/1.1 400 Bad Request)"},
      {"SSH-2.0-OpenSSH_9.2p1\r\n", "an SSH server (SSH-2.0-OpenSSH_9.2p1)"},
      {"\x15\x03\x03", "a TLS server"},
      {"\x16\x03\x01", "a TLS server"},
      {"220 mail.example.com ESMTP\r\n", "a mail or FTP server (220 mail.example.com ESMTP)"},
      {"220-Welcome\r\n220 more", "a mail or FTP server (220-Welcome)"},
      {"-ERR unknown command", "a Redis server (-ERR unknown command)"},
      {"\x01\x02\xff", "an unknown server (it says \"...\")"},
      {"\x16\x02", "an unknown server (it says \"..\")"},
      {"\x16", "an unknown server (it says \".\")"},
      {"220", "an unknown server (it says \"220\")"},
      {"hello\x7f"
       "a\tb\nrest",
       "an unknown server (it says \"hello.a.b\")"},
      {"", "an unknown server (it says \"\")"}};
  for (const auto& [bytes, name] : expected)
    EXPECT_EQ(describe_server(bytes), name);
}

TEST(StrangerWatch, ShowsFortyBytesOfALongFirstLine) {
  const std::string line = "HTTP/" + std::string(100, 'x');
  EXPECT_EQ(describe_server(line), "a web server or proxy (" + line.substr(0, 40) + ")");
}

RC_GTEST_PROP(StrangerWatch, DescribesAnyBytesInOneShortPrintableLine, (const std::string& bytes)) {
  const auto start =
      *rc::gen::element<std::string>("", "HTTP/", "SSH-", "220 ", "-ERR", "\x16\x03");
  const std::string name = describe_server(start + bytes);
  RC_ASSERT(name.size() <= 80u);
  RC_ASSERT(std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
}

}  // namespace
}  // namespace muster

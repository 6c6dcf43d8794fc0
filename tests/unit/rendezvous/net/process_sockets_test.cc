#include "rendezvous/net/process_sockets.h"

#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster {
namespace {

TEST(ProcessSockets, AreReadFromTheTableOfTheKernel) {
  const std::vector<TcpEntry> sockets = parse_tcp_table(
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "
      "4711 1 0 100 0 0 10 0\n"
      "   1: 0100007F:1F90 0500000A:01BB 01 00000000:00000000 00:00000000 00000000     0        0 "
      "4712 1 0 20 4 30 10 -1\n"
      "   2: 00000000000000000000000001000000:0050 00000000000000000000000001000000:0051 01 0:0 "
      "0:0 0 0 0 4713 1\n"
      "   3: 0100007F:1F90 0100007F 01 0:0 0:0 0 0 0 4714 1\n"
      "   4: x\n");
  ASSERT_EQ(sockets.size(), 3U);
  EXPECT_TRUE(sockets[0].listens);
  EXPECT_EQ(sockets[0].local.to_string(), "127.0.0.1:8080");
  EXPECT_FALSE(sockets[1].listens);
  EXPECT_EQ(sockets[1].remote.to_string(), "10.0.0.5:443");
  EXPECT_EQ(sockets[1].link, "socket:[4712]");
  EXPECT_EQ(sockets[2].local.to_string(), "[::1]:80");
}

TEST(ProcessSockets, AreAmongTheOpenFilesOfTheirProcess) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  int seen = 0;
  EXPECT_TRUE(for_each_open_file("self", [&](const std::string& number, const std::string& target) {
    if (number == std::to_string(ends[0]) && target.starts_with("pipe:[")) ++seen;
    return seen == 0;
  }));
  EXPECT_EQ(seen, 1);
  EXPECT_FALSE(for_each_open_file("0", [](const std::string&, const std::string&) {
    ADD_FAILURE();
    return true;
  }));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace muster

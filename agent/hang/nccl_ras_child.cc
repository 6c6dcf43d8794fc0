#include "agent/hang/nccl_ras_child.h"

#include <array>
#include <cstdio>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>
#include <fmt/format.h>

#include "agent/hang/nccl_ras.h"
#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

constexpr size_t kRasAnswerBytesMax = size_t{8} << 20;
// For RAS, which waits so long for processes that do not answer it.
constexpr const char* kRasTimeout = "TIMEOUT 2\n";

// "host:port" or "[IPv6]:port", as NCCL reads it.
RasWitness ask_ras(const std::string& address, const std::vector<pid_t>& own_pids) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return ras_silent(address, "NCCL_RAS_ADDR names no port");
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::asio::ip::tcp::iostream ras;
  ras.expires_after(kRasPatience);
  ras.connect(host, address.substr(colon + 1));
  if (!ras) return ras_silent(address, "nothing listens there: " + ras.error().message());
  const auto reply_to = [&ras](std::string_view request) {
    std::array<char, 256> reply{};
    ras << request << std::flush;
    ras.getline(reply.data(), reply.size());
    return std::string(reply.data());
  };
  const auto is_late = [&ras] { return ras.error() == boost::asio::error::timed_out; };
  const std::string late = fmt::format("no answer within {}", duration_text(kRasPatience));
  if (!reply_to("CLIENT PROTOCOL 2\n").starts_with("SERVER PROTOCOL "))
    return ras_silent(address, is_late() ? late : "what listens there is not NCCL's RAS");
  reply_to(kRasTimeout);
  // Before 2.28.7 it knows no formats, and says so. To ask those for the status has crashed jobs
  // (github.com/NVIDIA/nccl/issues/1669 and 1718), which may not hang after all.
  if (reply_to("SET FORMAT json\n") != "OK")
    return ras_silent(address, is_late() ? late
                                         : "it is older than NCCL 2.28.7, and may crash the job "
                                           "when it is asked");
  ras << "STATUS\n" << std::flush;
  std::string answer(kRasAnswerBytesMax, '\0');
  ras.read(answer.data(), static_cast<std::streamsize>(answer.size()));
  answer.resize(static_cast<size_t>(ras.gcount()));
  if (answer.empty()) return ras_silent(address, is_late() ? late : "it sent no answer");
  const bool is_whole = ras.error() == boost::asio::error::eof;
  return ras_witness(address, answer, is_whole ? "" : "its end is missing", own_pids);
}

}  // namespace

int ras_child_main(const std::vector<std::string>& args) {
  if (args.empty()) return static_cast<int>(ExitCode::usage);
  std::vector<pid_t> pids;
  for (size_t i = 1; i < args.size(); ++i)
    pids.push_back(whole_number<pid_t>(args[i]).value_or(-1));
  const std::string printed = encode_ras(ask_ras(args[0], pids));
  std::fwrite(printed.data(), 1, printed.size(), stdout);
  std::fflush(stdout);
  return 0;
}

}  // namespace muster::hang

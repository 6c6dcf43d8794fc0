// An agent's first step, alone: asks the PMI of the mpirun or mpiexec that started it, and prints
// the answer.
//
//   pmi_query HOST_TEXT SECONDS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "agent/meeting/pmi_child.h"
#include "agent/process/helper_process.h"
#include "agent/process/spawn.h"
#include "agent/process/worker_processes.h"

int main(int argc, char** argv) {
  using namespace muster;
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() != 2) return 2;
  if (args[0] == kPmiFlag) return pmi_child_main({args.begin() + 1, args.end()});  // As muster is.
  // An agent has sockets with low numbers; it must not take one of them for PMI's.
  int own[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, own) != 0) return 1;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  boost::asio::io_context io;
  WorkerProcesses processes{io, {}};
  HelperProcess helper{io, processes};
  std::string printed;
  ask_pmi(helper, current_environment(), args[0], std::chrono::seconds(std::atoi(args[1].c_str())),
          [&](const Result<PmiAnswer>& answer) { printed = encode_pmi(answer); });
  while (printed.empty())
    io.run_one();
  return std::fputs(printed.c_str(), stdout) < 0 ? 1 : 0;
}

// Messages that blame a peer, each as its library prints it; tests/fixtures/last_words has whole
// outputs.
#include "agent/report/blame.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/report/last_words.h"

namespace muster {
namespace {

struct Accusation {
  std::string type;
  std::string words;
  std::vector<int> ranks;
};

const std::vector<Accusation>& accusations() {
  const std::string gloo = "[/pytorch/third_party/gloo/gloo/transport/tcp/";
  static const std::vector<Accusation> list = {
      {"RuntimeError", gloo + "pair.cc:561] Connection closed by peer [127.0.0.1]:39821.", {}},
      {"RuntimeError", gloo + "pair.cc:525] Read error [10.0.0.1]:1: Connection reset by peer", {}},
      {"RuntimeError", gloo + "pair.cc:525] Read timeout [10.0.0.1]:1", {}},
      {"RuntimeError", gloo + "pair.cc:525] Write timeout [10.0.0.1]:1", {}},
      {"RuntimeError", gloo + "pair.cc:525] Write error [10.0.0.1]:1: Broken pipe", {}},
      {"RuntimeError", gloo + "pair.cc:799] connect [10.0.0.1]:2: Connection refused", {}},
      {"RuntimeError", gloo + "pair.cc:144] Connect timeout [10.0.0.1]:1", {}},
      {"RuntimeError", gloo + "pair.cc:144] Socket closed [10.0.0.1]:1", {}},
      {"RuntimeError", gloo + "pair.cc:144] Socket unexpectedly closed [10.0.0.1]:1", {}},
      {"RuntimeError", gloo + "pair.cc:144] timed out connecting: SO_ERROR: Success", {}},
      {"RuntimeError",
       gloo + "unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation to complete",
       {}},
      {"RuntimeError", "Application timeout caused pair closure", {}},
      {"RuntimeError",
       "Gloo connectFullMesh failed with " + gloo + "pair.cc:144] no error, remote=[10.0.0.1]:1",
       {}},
      {"RuntimeError", "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms", {1}},
      {"RuntimeError", "[Rank 0]: Ranks 11, 2 failed to pass monitoredBarrier in 2000 ms", {2, 11}},
      {"RuntimeError",
       "Rank 3 successfully reached monitoredBarrier, but received errors while waiting for "
       "send/recv from rank 0. Please check rank 0 logs for faulty rank.",
       {0}},
      {"torch.distributed.DistNetworkError",
       "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown "
       "or crash?",
       {}},
      {"torch.distributed.DistNetworkError", "Connection reset by peer", {}},
      {"torch.distributed.DistNetworkError", "Socket Timeout", {}},
      {"torch.distributed.DistNetworkError",
       "The client socket has timed out after 1000ms while trying to connect to (node0, 29500).",
       {}},
      {"torch.distributed.DistNetworkError",
       "The client socket has failed to connect to any network address of (node0, 29500).",
       {}},
      {"torch.distributed.DistStoreError",
       "wait timeout after 2000ms, keys: /default_pg/0//never",
       {}},
      {"torch.distributed.DistStoreError",
       "Timed out after 2 seconds waiting for clients. 1/2 clients joined.",
       {}},
      {"torch.distributed.DistStoreError", "barrier timeout after 300ms, key: x", {}},
      {"torch.distributed.DistStoreError", "Timeout waiting for key: default_pg/0/0", {}},
      {"torch.distributed.DistStoreError",
       "Timed out initializing process group in store based barrier on rank 1, for key: "
       "store_based_barrier_key:1 (world_size=2, num_workers_joined=1, timeout=0:00:10 error=x)",
       {}},
      {"RuntimeError", "Connection reset by peer", {}},
      {"RuntimeError", "Socket Timeout", {}},
      {"", "[PG ID 0 PG GUID 0(default_pg) Rank 0]  remote error detected from rank: 2", {2}},
      {"c10::DistBackendError", "NCCL communicator was aborted on rank 1. ", {}},
      {"", "Observed flight recorder dump signal from another rank via TCPStore.", {}},
      {"",
       "[PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a collective timeout "
       "from  rank 0 and we will try our best to dump the debug info.",
       {}},
      {"RuntimeError", "Work WorkNCCL(SeqNum=1, OpType=ALLREDUCE) timed out in blocking wait.", {}},
      {"", "Net : Call to recv from 10.0.0.1<58355> failed : Broken pipe", {}},
      {"",
       "socketProgressOpt: Call to recv from 10.0.0.1<3> failed : Connection reset by peer",
       {}},
      {"", "Call to send to 10.0.0.1<3> failed : Connection reset by peer", {}},
      {"", "Call to send to 10.0.0.1<3> failed : Broken pipe", {}},
      {"jax.errors.JaxRuntimeError",
       "DEADLINE_EXCEEDED: Barrier timed out. Id: together::0. This usually happens because a task "
       "died. Some timed out task names:\n/job:jax_worker/replica:0/task:3\n"
       "/job:jax_worker/replica:0/task:1\n\nRPC: /tensorflow.CoordinationService/Barrier",
       {1, 3}},
      {"jaxlib.xla_extension.XlaRuntimeError",
       "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n"
       "/job:jax_worker/replica:0/task:7\nThe tasks have crashed.",
       {7}},
      {"", "MPI_ERR_PROC_FAILED: Process NodeFailure", {}},
      {"horovod.common.exceptions.HorovodInternalError", "Horovod has been shut down.", {}},
      {"RuntimeError",
       "eof (this error originated at tensorpipe/transport/uv/connection_impl.cc:132)",
       {}},
      {"ConnectionResetError", "[Errno 104] Connection reset by peer", {}},
      {"ConnectionRefusedError", "[Errno 111] Connection refused", {}},
      {"ConnectionAbortedError", "[Errno 103] Software caused connection abort", {}},
      {"BrokenPipeError", "[Errno 32] Broken pipe", {}},
      {"EOFError", "", {}},
      {"TimeoutError", "[Errno 110] Connection timed out", {}},
      {"std::system_error", "read: Connection reset by peer", {}},
      {"boost::wrapexcept<boost::system::system_error>", "write: Broken pipe [system:32]", {}},
      {"std::system_error", "connect: Connection refused", {}},
  };
  return list;
}

void expect_ranks(const std::optional<Blame>& blame, const Accusation& one) {
  ASSERT_TRUE(blame.has_value()) << one.type << ": " << one.words;
  EXPECT_EQ(blame->ranks, one.ranks) << one.type << ": " << one.words;
}

// The rank that gave up had waited; a rank that repeats the message may be the missing one.
TEST(Blame, IsSecondHandIfAnotherRankHasGivenUp) {
  const std::string signal = "Received a dump signal due to a collective timeout from ";
  for (const auto& [words, is_hearsay] : std::map<std::string, bool>{
           {signal + " rank 0 and we will try our best", true},
           {signal + "this local rank and we will try our best", false},
           {"Observed flight recorder dump signal from another rank via TCPStore.", true},
           {"Terminating the process after attempting to dump debug info, due to collective "
            "timeout or exception.",
            true},
           {"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)", false}}) {
    const std::optional<Blame> blame = blame_of("", words);
    ASSERT_TRUE(blame) << words;
    EXPECT_EQ(blame->is_hearsay, is_hearsay) << words;
    EXPECT_TRUE(blame->ranks.empty()) << words;
  }
  EXPECT_FALSE(blame_of("",
                        "Terminating the process after attempting to dump debug info, due to "
                        "ProcessGroupNCCL watchdog hang."));
  EXPECT_FALSE(merged({{}, false, true}, {{}, false, false}).is_hearsay);
}

TEST(Blame, IsAboutATimeoutIfTheMessageSaysSo) {
  const auto about = [](const std::string& words) {
    return blame_of("RuntimeError", words)->about;
  };
  const std::string gloo = "[gloo/transport/tcp/pair.cc:525] ";
  EXPECT_EQ(about(gloo + "Read timeout [10.0.0.1]:1"), Blame::About::timeout);
  EXPECT_EQ(about(gloo + "Timed out waiting 2000ms for recv"), Blame::About::timeout);
  EXPECT_EQ(about(gloo + "Connection closed by peer [10.0.0.1]:1"), Blame::About::loss);
  EXPECT_EQ(merged({.about = Blame::About::loss}, {.about = Blame::About::timeout}).about,
            Blame::About::timeout);
}

TEST(Blame, RecognizesEveryKnownMessage) {
  for (const Accusation& one : accusations())
    expect_ranks(blame_of(one.type, one.words), one);
}

TEST(Blame, IsTheSameInTheMessageOfAnErrorFile) {
  for (const Accusation& one : accusations()) {
    if (one.type.empty() || one.type.find("::") != std::string::npos) continue;  // No Python type.
    const std::string message = one.words.empty() ? one.type : one.type + ": " + one.words;
    expect_ranks(blame_in(message), one);
  }
}

TEST(Blame, IsAbsentFromAWorkersOwnErrors) {
  const std::vector<Accusation> own = {
      {"OSError", "[Errno 98] Address already in use", {}},
      {"torch.distributed.DistNetworkError",
       "The server socket has failed to listen on any local network address. port: 29500, useIpv6: "
       "false, code: -98, name: EADDRINUSE, message: address already in use",
       {}},
      {"torch.distributed.DistNetworkError",
       "The client socket has failed to connect to any network address of (nod0, 29500). The IPv6 "
       "network addresses of (nod0, 29500) cannot be retrieved (gai error: -2 - Name or service "
       "not "
       "known).",
       {}},
      {"torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20 GiB", {}},
      {"RuntimeError", "CUDA error: device-side assert triggered", {}},
      {"ValueError", "rank 3 failed to pass monitoredBarrier", {}},
      {"ValueError", "rank 1 died", {}},
      {"FileNotFoundError",
       "[Errno 2] No such file or directory: '/data/Connection closed by remote peer/1.pt'",
       {}},
      {"KeyError", "'ncclRemoteError'", {}},
      {"EOFError", "Ran out of input", {}},
      {"EOFError", "EOF when reading a line", {}},
      {"requests.exceptions.ConnectionError",
       "('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
       {}},
      {"TimeoutError", "", {}},
      {"RuntimeError", "DataLoader worker (pid 7) is killed by signal: Killed.", {}},
      {"RuntimeError", "shard of rank 3 is broken", {}},
      {"RuntimeError",
       "Detected mismatch between collectives on ranks. Rank 0 is running collective: "
       "CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE), but Rank 1 is running "
       "collective: CollectiveFingerPrint(SequenceNumber=0, OpType=BROADCAST)",
       {}},
      {"gloo::EnforceNotMet",
       "[enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:464] "
       "op.preamble.length <= op.nbytes. 8 vs 4. Received data size doesn't match expected size.",
       {}},
      {"", "[Rank 1] ProcessGroupNCCL's watchdog got stuck for 480 seconds", {}},
      {"muster::DistributedError", "all_reduce 17 of group world: rank 2 (n, pid 1) died", {}},
      {"", "", {}},
  };
  for (const Accusation& one : own)
    EXPECT_EQ(blame_of(one.type, one.words), std::nullopt) << one.type << ": " << one.words;
}

TEST(Blame, ComesFromTheRootExceptionOfACallStack) {
  const std::string own =
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nValueError: nan\n\n"
      "During handling of the above exception, another exception occurred:\n\n"
      "Traceback (most recent call last):\n  File \"a.py\", line 2, in f\n"
      "ConnectionResetError: [Errno 104] Connection reset by peer\n";
  EXPECT_EQ(blame_in(own), std::nullopt);
  const std::string wrapped =
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nBrokenPipeError: x\n\n"
      "The above exception was the direct cause of the following exception:\n\n"
      "Traceback (most recent call last):\n  File \"a.py\", line 2, in f\nKeyError: 'shard'\n";
  EXPECT_EQ(blame_in(wrapped), (Blame{{}, true}));
}

TEST(Blame, IgnoresNumbersThatAreNoRanks) {
  EXPECT_EQ(blame_of("", "Rank 99999999999 failed to pass monitoredBarrier"), Blame{});
  EXPECT_EQ(blame_of("", "Rank -1 failed to pass monitoredBarrier"), Blame{});
  EXPECT_EQ(blame_of("", "remote error detected from rank"), Blame{});
}

TEST(Blame, MergesTheRanksOfTwoBlames) {
  EXPECT_EQ(merged({{1, 4}}, {{0, 4}}), (Blame{{0, 1, 4}}));
}

}  // namespace
}  // namespace muster

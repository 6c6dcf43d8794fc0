#!/usr/bin/env python3
"""NCCL's plugin under the launcher: ranks whose NCCL is a host that calls it as each interface version does, without a
GPU ($MUSTER_NCCL_FAULTS, programs/nccl_faults.cc), and what is found of their faults. All limits are a tenth of their
defaults.
"""
import json
import os
import socketserver
import subprocess
import sys
import threading

from hang_cells import HangJob, limits
from harness import LONG, LiveTest, long, require_muster, run, run_tests, wait_for
from ports import free_port

PROGRAM = os.environ.get("MUSTER_NCCL_FAULTS", "")
SECOND = os.environ.get("MUSTER_SECOND_PROFILER", "")
VERSIONS = range(3, 8) if LONG else (3, 7)  # unit.Versions/NcclPlugin has all.
RANKS, CULPRIT = 3, 1
SHOW = 'echo "$NCCL_PROFILER_PLUGIN ${MUSTER_NCCL_PROFILER_CHAIN-none} ${MUSTER_RECORD_KERNELS-no}"'


class PluginTest(LiveTest):
    def job(self, fault, version, *flags, **env):
        job = HangJob(self.folder.name, fault, *limits(0.1), *flags, ranks=RANKS, culprit=CULPRIT,
                      env={"VERSION": str(version), "OMP_NUM_THREADS": "1", **env}, program=("--no-python", PROGRAM))
        self.addCleanup(job.__exit__)
        return job

    NEVER = {"ranks": [CULPRIT], "class": "never_entered", "by": "time", "group": "world", "ordinal": 31,
             "operation": "all_reduce of 1000 float32", "waiting": [0, 2]}


class NcclPluginTest(PluginTest):
    def check(self, fault, name, facts, **env):
        """The verdict is the same for all versions."""
        for version in VERSIONS:
            with self.subTest(version=version):
                job = self.job(fault, version, **env)
                event = job.wait_found(name)
                job.stop()
                self.assertEqual({key: event[key] for key in facts}, facts, job.stderr())
                self.assertEqual(len(job.found("hang", "mismatch")), 1, job.stderr())
                self.assertEqual(job.found("withdrawn"), [])

    @long
    def test_a_rank_that_never_enters_a_call(self):
        self.check("blocked_read", "hang", self.NEVER)

    def test_the_same_beside_another_profiler(self):
        self.check("blocked_read", "hang", self.NEVER, NCCL_PROFILER_PLUGIN=SECOND, SECOND_MASK="2",
                   SECOND_LOG=self.path("log"))
        with open(self.path("log")) as log:
            self.assertNotIn("a strange handle", log.read())

    def test_a_rank_that_calls_another_size(self):
        self.check("other_size", "mismatch",
                   {"ranks": [CULPRIT], "class": "signature", "by": "proof", "group": "world", "ordinal": 31})

    @long
    def test_a_rank_that_ends_before_a_call(self):
        self.check("early_exit", "hang",
                   {"ranks": [CULPRIT], "class": "exited", "by": "proof", "group": "world", "ordinal": 31, "waiting": [0, 2]})

    def test_a_receive_without_its_send(self):
        self.check("no_send", "hang", {"ranks": [CULPRIT], "class": "never_entered", "by": "time", "group": "world",
                                       "operation": "recv from rank 1", "waiting": [2]})

    def test_a_rank_that_comes_late_is_told_so_and_nothing_is_left(self):
        job = self.job("blocked_read", 6)
        job.wait_found("hang")
        job.go_on()
        job.wait_found("withdrawn")
        job.stop()
        self.assertEqual(len(job.found("hang")), 1)

    def test_calls_in_captured_graphs_accuse_nobody(self):
        for version in VERSIONS:
            with self.subTest(version=version):
                job = self.job("captured", version, "--on-hang", "stop", STAYS="no")
                wait_for(lambda job=job: "fault" in job.stdout(), "the culprit reads")
                with self.assertRaises(subprocess.TimeoutExpired):
                    job.process.wait(3)
                job.go_on()
                self.assertEqual(job.wait(), 0, job.stderr())
                self.assertEqual(job.events(), [])


class Ras(socketserver.ThreadingTCPServer):
    """What listens where NCCL's RAS would, a stand-in. `answer`: a function that gives its status; None: it never sends
    one. `knows_json`: as from NCCL 2.28.7 on."""
    allow_reuse_address, daemon_threads = True, True

    def __init__(self, answer, knows_json=True):
        self.answer, self.knows_json, self.asked, self.closed = answer, knows_json, [], threading.Event()
        super().__init__(("127.0.0.1", 0), RasClient)
        self.address = f"localhost:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.closed.set()
        self.shutdown()
        self.server_close()


class RasClient(socketserver.StreamRequestHandler):
    def handle(self):
        requests = []
        self.server.asked.append(requests)
        for line in self.rfile:
            requests.append(line.decode())
            if requests[-1] == "STATUS\n":
                if not self.server.answer:
                    self.server.closed.wait()
                return self.wfile.write(self.server.answer().encode() if self.server.answer else b"")
            known = self.server.knows_json or "FORMAT" not in requests[-1]
            reply = "SERVER PROTOCOL 2" if len(requests) == 1 else "OK" if known else "ERROR: Unknown command SET FORMAT json"
            self.wfile.write(f"{reply}\n".encode())


class RasTest(PluginTest):
    """A second witness of a verdict: it changes nothing of it."""
    ASKED = ["CLIENT PROTOCOL 2\n", "TIMEOUT 2\n", "SET FORMAT json\n", "STATUS\n"]

    def witness(self, address, **env):
        """What the bundle of the usual verdict has of RAS, and what was said of it."""
        self.hang = self.job("blocked_read", 6, NCCL_RAS_ADDR=address, **env)
        event = self.hang.wait_found("hang")
        self.assertEqual({key: event[key] for key in self.NEVER}, self.NEVER)
        bundle = wait_for(self.hang.bundles, "the bundle")["hang_1.json"]
        self.hang.stop()
        self.assertEqual((bundle["unanswered"], self.hang.found("withdrawn")), ([], []))
        said = [line for line in self.hang.stderr().split("\n") if "RAS" in line]
        return bundle["nccl_ras"], said

    def ras(self, *args, **options):
        server = Ras(*args, **options)
        self.addCleanup(server.close)
        return server

    def status(self):
        """Given once the verdict is out: that does not wait for it."""
        wait_for(lambda: self.hang.found("hang"), "the verdict")
        return self.status_of(self.hang.pids()[0])

    @staticmethod
    def status_of(pid):
        """Of a job in which one rank does not answer."""
        well = {"rank": 0, "host": "127.0.0.1", "pid": pid, "status": {"init_state": 0, "async_error": 0}}
        lost = {"rank": 1, "host": "127.0.0.1", "pid": 4711, "status": {"unresponsive": True, "considered_dead": False}}
        return json.dumps({"communicators": [{"size": 3, "ranks": [well], "missing_ranks": [lost]}]}, indent=1)

    def answer_to_the_child(self, address):
        """What the process that asks for the agent says: the line for people, and the member of the bundle."""
        code, out, err = run("--internal-nccl-ras", address, os.getpid())
        self.assertEqual((code, err), (0, ""))
        line, member = out.splitlines()
        return line, json.loads(member)

    def test_one_that_answers(self):
        server = self.ras(lambda: self.status())
        member, said = self.witness(server.address)
        self.assertEqual((member["address"], member["why_none"]), (server.address, None))
        self.assertEqual(member["answer"], json.loads(self.status()))
        self.assertEqual(said, ["muster: NCCL's RAS: not responding: process 4711 on 127.0.0.1 (rank 1 of 3)"])
        self.assertEqual(server.asked, [self.ASKED])

    def test_one_of_an_older_version(self):
        """Which could crash: it is not asked for the status."""
        server = self.ras(lambda: "NCCL version 2.27.5\n", knows_json=False)
        line, member = self.answer_to_the_child(server.address)
        self.assertEqual((member["answer"], line, server.asked), (None, "", [self.ASKED[:-1]]))
        self.assertEqual(member["why_none"], "it is older than NCCL 2.28.7, and may crash the job when it is asked")

    def test_one_of_another_job(self):
        line, member = self.answer_to_the_child(self.ras(lambda: self.status_of(1)).address)
        self.assertEqual((member["why_none"], line), ("it names no process of this node: it may be another job's", ""))

    def test_one_that_never_answers(self):
        server = self.ras(None)
        member, said = self.witness(server.address)
        self.assertEqual((member, said), ({"address": server.address, "answer": None, "why_none": "no answer within 4.0 s"}, []))

    def test_none_that_listens(self):
        address = f"127.0.0.1:{free_port()}"
        line, member = self.answer_to_the_child(address)
        self.assertEqual((member["address"], member["answer"], line), (address, None, ""))
        self.assertRegex(member["why_none"], "^nothing listens there: ")

    def test_one_that_is_off(self):
        server = self.ras(lambda: self.status())
        member, said = self.witness(server.address, NCCL_RAS_ENABLE="0")
        self.assertEqual((member, said, server.asked),
                         ({"address": None, "answer": None, "why_none": "NCCL_RAS_ENABLE=0"}, [], []))

    def test_a_rank_fails_for_a_proof_though_it_never_answers(self):
        job = self.job("other_size", 6, NCCL_RAS_ADDR=self.ras(None).address)
        self.assertNotEqual(job.wait(), 0)
        (mismatch,) = job.found("mismatch")
        self.assertEqual((mismatch["ranks"], mismatch["class"], mismatch["by"]), ([CULPRIT], "signature", "proof"))


class Environment(LiveTest):
    def shown(self, *flags, **env):
        code, out, err = run(*flags, "--nproc-per-node", 1, "--no-python", "sh", "-c", SHOW, env=env)
        self.assertEqual((code, err), (0, ""))
        return out.strip()

    def test_of_workers(self):
        plugin = r"^\S+/\d+\.python/libnccl-profiler-muster\.so"
        self.assertRegex(self.shown(), plugin + " none no$")
        self.assertRegex(self.shown("--record-kernels", "--no-python-hook"), plugin + " none 1$")
        self.assertRegex(self.shown(NCCL_PROFILER_PLUGIN="own"), plugin + " own no$")
        self.assertEqual(self.shown("--no-recorder", NCCL_PROFILER_PLUGIN="own"), "own none no")


def main():
    require_muster()
    for name, program in ("MUSTER_NCCL_FAULTS", PROGRAM), ("MUSTER_SECOND_PROFILER", SECOND):
        if not os.access(program, os.X_OK):
            sys.exit(f"{name}={program!r}: set it to what is to be used")
    run_tests()


if __name__ == "__main__":
    main()

"""A disk, a terminal or a driver that stalls on one of several nodes costs the job nothing but the wait.

    MUSTER=build/release/muster MUSTER_BUILD=build/release nodes_stall_test.py

Stalls last 8 s with a lease of 1 s; MUSTER_STALL_S=30 makes them that long, with the default lease.
"""
import os
import pty
import threading
import time
import tty

from harness import Job, alive_with, long, main, nothing_happens_for, pause, wait_for
from nodes_harness import WORKER, NodesTest

STALL_S = float(os.environ.get("MUSTER_STALL_S", "8"))
LEASE = ("--lease", "1") if STALL_S < 15 else ()
SHORT = ("--shutdown-timeout", "5")
FAKE_LIBRARY = os.path.join(os.environ.get("MUSTER_BUILD", ""), "tests", "fake_nvml")
TWO_GPUS = """gpu 00000000:3B:00.0 GPU-aaaa1111-0000-0000-0000-000000000000 NVIDIA Test
gpu 00000000:5E:00.0 GPU-bbbb2222-0000-0000-0000-000000000000 NVIDIA Test
"""


class StallTest(NodesTest):
    def setUp(self):
        super().setUp()
        # The workers write without end, so that their output is always in use.
        chatty = WORKER.replace("read -t 0.02", 'echo "a line of rank $RANK"\n      read -t 0.02')
        self.worker = self.write(f"c-{self.marker}.sh", chatty.format(
            log=self.path("log"), folder=self.folder.name, fifo=self.path("fifo"), marker=self.marker))

    def pair(self, *flags_of_second, env=None, first=(), both=()):
        common = ("--node-rank", 0, *LEASE, *SHORT, *both)
        host = self.elastic("n0", "1:2", "--rdzv-conf", "is_host=true", *common, *first)
        flags = ("--node-rank", 1, *common[2:], *flags_of_second)
        other = self.elastic("n1", "1:2", "--rdzv-conf", "is_host=false", *flags, env=env)
        return host, other

    def stand_still(self):
        """Waits for the length of the stall; no worker may start."""
        self.no_new_round(STALL_S)

    def assert_nobody_was_lost(self):
        errors = self.all_errors()
        for words in ("no sign of life", "was lost", "connection", "a new round"):
            self.assertNotIn(words, errors)


class Disk(StallTest):
    def test_a_frozen_log_disk_loses_no_lease(self):
        disk, freeze, thaw = self.frozen_disk()
        jobs = self.pair("--log-dir", disk, "--tee", 3, env={"TMPDIR": disk})
        self.assert_world(self.wait_starts(2), 2, 2, restart=0)
        wait_for(lambda: "a line" in jobs[1].stdout(), "output")
        freeze()
        self.stand_still()
        thaw()
        self.end_well(*jobs)
        self.assert_nobody_was_lost()

    @long
    def test_a_frozen_disk_of_the_host_loses_no_lease(self):
        disk, freeze, thaw = self.frozen_disk()
        jobs = self.pair(first=("--log-dir", disk, "--tee", 3))
        self.wait_starts(2)
        wait_for(lambda: "a line" in jobs[0].stdout(), "output")
        freeze()
        self.stand_still()
        thaw()
        self.end_well(*jobs)
        self.assert_nobody_was_lost()

    @long
    def test_a_restart_beside_a_frozen_disk_is_one_restart(self):
        disk, freeze, thaw = self.frozen_disk()
        jobs = self.pair("--log-dir", disk, "--tee", 3, env={"TMPDIR": disk}, both=("--max-restarts", 1))
        self.wait_starts(2)
        wait_for(lambda: "a line" in jobs[1].stdout(), "output")
        freeze()
        self.order("fail3", "n0.0")
        wait_for(lambda: "exited with 3" in jobs[0].stderr(), "the failure is told")
        nothing_happens_for(STALL_S, lambda: self.assertLess(len(self.starts()), 4, "the frozen node starts nothing"))
        thaw()
        self.assert_world(self.wait_starts(4)[2:], 2, 2, restart=1)
        self.end_well(*jobs)
        self.assertNotIn("no sign of life", self.all_errors())

    def test_a_frozen_disk_holds_no_verdict_back_on_the_other_node(self):
        disk, freeze, thaw = self.frozen_disk()
        jobs = self.pair("--log-dir", disk, "--tee", 3)
        self.wait_starts(2)
        wait_for(lambda: "a line" in jobs[1].stdout(), "output")
        freeze()
        began = time.monotonic()
        self.order("fail7", "n0.0")
        wait_for(lambda: "exited with 7" in jobs[0].stderr(), "the failure is told")
        print(f"\nfailure told after {time.monotonic() - began:.2f} s with the other node's disk frozen")
        pause(STALL_S, "the disk stays frozen")
        thaw()
        for job in jobs:
            self.assert_exit(job, 7)
        self.assertEqual(self.verdict(jobs[0]), self.verdict(jobs[1]))


class Terminal(StallTest):
    """One node's terminal accepts no byte: a pseudo-terminal that is not read until read_it()."""

    def setUp(self):
        super().setUp()
        self.master, slave = pty.openpty()
        self.addCleanup(os.close, self.master)
        self.addCleanup(os.close, slave)
        tty.setraw(slave)
        self.slave = slave
        self.shown = b""

    def fill(self):
        """Fills the terminal until it accepts no more."""
        os.set_blocking(self.slave, False)
        try:
            while os.write(self.slave, b"." * 64):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(self.slave, True)

    def read_it(self):
        def read():
            try:
                while data := os.read(self.master, 65536):
                    self.shown += data
            except OSError:
                pass
        threading.Thread(target=read, daemon=True).start()

    def pair_with_terminal(self, *flags):
        return self.pair("--tee", 3, "--log-dir", self.path("logs"), *flags)

    def node(self, name, *flags, env=None):
        if name != "n1":
            return super().node(name, *flags, env=env)
        job = Job(*flags, "--no-python", self.worker, env={"NODE": name}, stdout=self.slave, stderr=self.slave)
        job.name = name
        self.jobs.append(job)
        return job

    @long
    def test_an_unread_terminal_loses_no_lease(self):
        jobs = self.pair_with_terminal()
        self.wait_starts(2)
        self.fill()
        self.stand_still()
        self.read_it()
        self.end_well(*jobs)
        self.assertNotIn("no sign of life", self.all_errors())

    def test_a_failure_behind_an_unread_terminal_reaches_every_node(self):
        jobs = self.pair_with_terminal()
        self.wait_starts(2)
        self.fill()
        self.stand_still()
        began = time.monotonic()
        self.order("fail7", "n1.0")
        self.assert_exit(jobs[0], 7)
        print(f"\nverdict on the other node after {time.monotonic() - began:.2f} s")
        self.read_it()
        self.assert_exit(jobs[1], 7)


class Driver(StallTest):
    """The GPU driver hangs on one node when asked which processes still use the GPUs before a restart."""

    def test_a_driver_call_that_hangs_loses_no_lease(self):
        machine = self.write("machine", TWO_GPUS)
        env = {"FAKE_NVML": machine, "LD_LIBRARY_PATH": FAKE_LIBRARY}
        jobs = self.pair("--nproc-per-node", "gpu", env=env, both=("--max-restarts", 1))
        self.assert_world(self.wait_starts(3), 2, 3, restart=0)
        self.write("machine", TWO_GPUS + "hang nvmlDeviceGetComputeRunningProcesses_v3\n")
        began = time.monotonic()
        self.order("fail3", "n1.0")
        wait_for(lambda: alive_with("--internal-device-users"), "the driver is asked")
        starts = self.wait_starts(6)[3:]
        self.assert_world(starts, 2, 3, restart=1)
        print(f"\na driver that hangs held the restart back for {time.monotonic() - began:.1f} s")
        self.end_well(*jobs)
        self.assert_nobody_was_lost()

    @long
    def test_a_driver_that_hangs_at_the_start_only_delays_the_others(self):
        machine = self.write("machine", TWO_GPUS + "hang nvmlInit_v2\n")
        env = {"FAKE_NVML": machine, "LD_LIBRARY_PATH": FAKE_LIBRARY}
        host = self.elastic("n0", 2, "--node-rank", 0, *LEASE)
        other = self.elastic("n1", 2, "--node-rank", 1, "--nproc-per-node", "gpu", *LEASE, env=env)
        self.assert_exit(other, 121, 60)
        self.assertIsNone(host.process.poll(), "it waits for its second node")
        self.write("machine", TWO_GPUS)
        other = self.elastic("n1", 2, "--node-rank", 1, "--nproc-per-node", "gpu", *LEASE, env=env)
        self.assert_world(self.wait_starts(3), 2, 3, restart=0)
        self.end_well(host, other)


if __name__ == "__main__":
    main()

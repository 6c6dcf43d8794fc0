"""Ranks that wait for a key of the job's store are told of, with the rank that has not set it and what that does instead.

All limits are a tenth of their defaults.
"""
import os

import netns
from harness import MUSTER, Job, LiveTest, main, wait_for
from netns_nodes import PORT, NodeJob
from ports import free_port

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "store_waits.py")
PYTHON = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "python")
LIMIT_S = 60


class StoreWaits(LiveTest):
    def setUp(self):
        super().setUp()
        if not os.access(PYTHON, os.X_OK):
            self.skipTest(f"no PyTorch: {PYTHON} (set MUSTER_TORCH_VENV; ./dev test makes it)")
        os.mkfifo(self.path("gate"))
        os.mkfifo(self.path("end"))
        self.ends = os.open(self.path("end"), os.O_RDWR)
        self.addCleanup(os.close, self.ends)

    def start(self, scene, *args, program=("--python", PYTHON, PROGRAM), workers=3, **env):
        job = Job("--nproc-per-node", workers, "--hang-timeout", 1.2, *args, *program, scene,
                  env={"FOLDER": self.folder.name, "OMP_NUM_THREADS": "1", **env})
        self.addCleanup(job.__exit__)
        return job

    def open_the_gate(self):
        with open(self.path("gate"), "wb") as gate:
            gate.write(b"1")

    def told(self, job, what):
        wait_for(lambda: what in job.stderr(), what, LIMIT_S)
        return next(line for line in job.stderr().splitlines() if what in line)

    def test_name_the_rank_that_sets_such_keys(self):
        job = self.start("own_keys")
        line = self.told(job, "for the key 'ready/2' in the job's store, which rank 2 (pid ")
        self.assertIn("ranks 0-1 have waited ", line)
        self.assertIn(") has not set; rank 2 is blocked in openat()", line)
        self.open_the_gate()
        self.told(job, "the key 'ready/2' in the job's store was set after ")
        os.write(self.ends, b"012")
        self.assertEqual(job.wait(LIMIT_S), 0)

    def test_name_the_others_where_nothing_shows_who_sets_the_key(self):
        job = self.start("one_key")
        self.assertIn("which no rank has set; rank 0 is blocked in openat()", self.told(job, "for the key 'weights' in the job's store"))
        self.open_the_gate()
        self.assertEqual(job.wait(LIMIT_S), 0)

    def test_show_a_rank_that_does_not_come_to_init_process_group(self):
        job = self.start("init")
        self.told(job, "rank 1 is blocked in openat()")
        self.open_the_gate()
        self.assertEqual(job.wait(LIMIT_S), 0)

    def test_explain_groups_that_not_all_ranks_have_made(self):
        line = self.told(self.start("new_group"), " in forming group of ranks 0,2")
        self.assertRegex(line, r"; rank [02] has another group of these ranks: all ranks must call new_group\(\)")

    def test_name_a_rank_of_another_node_below_a_shell(self):
        """The host is the node with rank 1 here, and the detector's that with rank 0."""
        self.write("run.sh", f"#!/bin/sh\n{PYTHON} {PROGRAM} own_keys\nexit $?\n")
        endpoint = f"127.0.0.1:{free_port()}"
        jobs = [self.start("own_keys", "--nnodes", 3, "--node-rank", rank, "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint,
                           "--rdzv-conf", f"is_host={int(rank == 1)}", "--rdzv-id", "job", program=("--no-python", self.path("run.sh")), workers=1) for rank in range(3)]
        for job in jobs:
            line = self.told(job, "for the key 'ready/2' in the job's store, which rank 2 (")
            self.assertIn("ranks 0-1 have waited ", line)
            self.assertRegex(line, r"has not set; rank 2 is blocked in openat\(\) \(process [0-9]+, python\)")
        self.open_the_gate()
        os.write(self.ends, b"012")
        self.assertEqual([job.wait(LIMIT_S) for job in jobs], [0, 0, 0])

    def test_name_a_pod_whose_processes_have_the_same_numbers_as_the_others(self):
        cluster = netns.Cluster(3)
        cluster.__enter__()
        self.addCleanup(cluster.down)
        launcher = ["env", f"FOLDER={self.folder.name}", "unshare", "--pid", "--fork", "--mount-proc", "--kill-child", MUSTER]
        jobs = [NodeJob(cluster, i + 1, ["--nnodes", "3", "--node-rank", str(i), "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                         f"node1:{PORT}", "--rdzv-id", "job", "--hang-timeout", "1.2", "--python", PYTHON, PROGRAM,
                                         "own_keys"], launcher) for i in range(3)]
        for job in jobs:
            self.addCleanup(job.__exit__)
        for job in jobs:
            line = self.told(job, "for the key 'ready/2' in the job's store, which rank 2 (")
            self.assertIn("ranks 0-1 have waited ", line)
        self.open_the_gate()
        os.write(self.ends, b"012")
        self.assertEqual([job.wait(LIMIT_S) for job in jobs], [0, 0, 0])

    def test_explain_a_time_out(self):
        """The ranks that gave up are not to blame."""
        job = self.start("time_out", PATIENCE="6")
        self.told(job, "which rank 2 (pid ")
        self.assertNotEqual(job.wait(LIMIT_S), 0)
        self.assertRegex(job.stderr(), r"rank 2 of 3 has not set the key 'ready/2' in the job's store; 2 other ranks have waited [2-9]\.")


if __name__ == "__main__":
    main()

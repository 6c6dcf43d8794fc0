"""musterctl with a real job: its status, its workers' output, and signals to some or all of them."""
import json
import os

from harness import MUSTERCTL, main, musterctl, require_programs, wait_for
from nodes_harness import NodesTest


class RealJob(NodesTest):
    def setUp(self):
        require_programs(MUSTERCTL=MUSTERCTL)
        super().setUp()
        os.mkdir(self.path("run"), 0o700)
        self.env = {"MUSTER_RUN_DIR": self.path("run")}

    def ctl(self, *args):
        return musterctl(*args, env=self.env)

    def status(self, *args):
        code, out, err = self.ctl("status", *args, "--json")
        return json.loads(out)["status"] if code == 0 else None

    def solo(self, script, *flags):
        self.worker = self.write(f"solo-{self.marker}.sh", f"#!/bin/bash\n{script}\n# {self.marker}\n")
        return self.node("solo", "--nproc-per-node", 2, "--rdzv-id", "solo-job", *flags, env=self.env)

    def test_a_job_is_listed_and_described_until_it_ends(self):
        job = self.solo(f"touch {self.path('up')}.$RANK; while [ ! -e {self.path('go')} ]; do sleep 0.02; done")
        self.wait_for_files("up.0", "up.1")
        code, out, err = self.ctl("list")
        self.assertEqual(code, 0, err)
        self.assertIn("solo-job", out)
        self.assertIn(str(job.pid), out)
        status = self.status()
        self.assertEqual((status["job_id"], status["pid"], status["world_size"]), ("solo-job", job.pid, 2), status)
        self.assertIn("running, 2 of 2 workers", status["phase"])
        self.assertEqual([n["workers"] for n in status["nodes"]], [2])
        for name in ("solo-job", job.pid):
            self.assertEqual(self.status(name)["pid"], job.pid)
        self.write("go", "")
        self.assert_exit(job, 0)
        self.assertEqual(self.ctl("status")[0], 1)
        self.assertEqual(os.listdir(self.path("run")), [])

    def test_logs_show_what_the_workers_printed_last(self):
        self.solo(f"for i in $(seq 1 50); do echo out $RANK $i; done; echo err $RANK >&2; touch {self.path('up')}.$RANK; "
                  "exec sleep 1000")
        self.wait_for_files("up.0", "up.1")
        wait_for(lambda: "err 1" in self.ctl("logs", "--ranks", "1")[1], "the last line has come through")
        code, out, err = self.ctl("logs", "--ranks", "1", "-n", "3")
        self.assertEqual(code, 0, err)
        self.assertIn("err 1", out)
        self.assertNotIn("out 0", out)
        self.assertNotIn("out 1 10\n", out)
        for flags in ((), ("-f",)):
            code, out, err = self.ctl("logs", *flags, "--ranks", "7")
            self.assertEqual((code, out), (1, ""), err)
            self.assertIn("none of these ranks runs on this node, which has 0 to 1", err)

    def test_a_signal_reaches_only_the_named_ranks(self):
        self.solo(f"trap 'touch {self.path('usr')}.$RANK' USR1; touch {self.path('up')}.$RANK; "
                  "while true; do sleep 0.02; done")
        self.wait_for_files("up.0", "up.1")
        code, _, err = self.ctl("signal", "USR1", "--ranks", "1")
        self.assertEqual(code, 0, err)
        self.wait_for_files("usr.1")
        self.assertFalse(self.exists("usr.0"))
        code, _, err = self.ctl("signal", "USR1", "--ranks", "7")
        self.assertEqual(code, 1)
        self.assertIn("0 to 1", err)

    def test_a_stop_signal_stops_the_job(self):
        job = self.solo(f"touch {self.path('up')}.$RANK; exec sleep 1000")
        self.wait_for_files("up.0", "up.1")
        self.assertEqual(self.ctl("signal", "TERM")[0], 0)
        self.assert_exit(job, 143)

    def test_several_jobs_are_told_apart(self):
        jobs = [self.elastic(f"n{i}", 2, env=self.env) for i in range(2)]
        self.wait_starts(2)
        code, _, err = self.ctl("status")
        self.assertEqual(code, 2, err)
        self.assertIn(str(jobs[0].pid), err)
        for i, job in enumerate(jobs):
            status = self.status(job.pid)
            self.assertEqual((status["job_id"], status["world_size"]), ("job", 2))
            nodes = status["nodes"]
            self.assertEqual([(n["node_rank"], n["first_rank"], n["workers"], n["state"]) for n in nodes],
                             [(0, 0, 1, "running"), (1, 1, 1, "running")])
        self.end_well(*jobs)


if __name__ == "__main__":
    main()

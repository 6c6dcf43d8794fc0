#!/usr/bin/env python3
"""The NCCL plugin under the launcher, without a GPU: each rank's program ($MUSTER_NCCL_FAULTS, programs/nccl_faults.cc)
calls the plugin as NCCL does, for each interface version, and the verdict must name the rank at fault. All limits are a
tenth of their defaults.
"""
import os
import subprocess

from hang_cells import HangJob, limits
from harness import LONG, LiveTest, long, require_muster, require_programs, run, run_tests, wait_for

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
        """Checks that all versions give the same verdict."""
        for version in VERSIONS:
            with self.subTest(version=version):
                job = self.job(fault, version, **env)
                event = job.wait_found(name)
                job.stop()
                self.assertEqual({key: event[key] for key in facts}, facts, job.stderr())
                self.assertEqual(len(job.found("hang", "mismatch")), 1, job.stderr())
                self.assertEqual(job.found("withdrawn"), [])

    @long
    def test_names_the_rank_that_never_enters_a_call(self):
        self.check("blocked_read", "hang", self.NEVER)

    def test_names_the_absent_rank_beside_another_profiler(self):
        self.check("blocked_read", "hang", self.NEVER, NCCL_PROFILER_PLUGIN=SECOND, SECOND_MASK="2",
                   SECOND_LOG=self.path("log"))
        with open(self.path("log")) as log:
            self.assertNotIn("a strange handle", log.read())

    def test_names_the_rank_that_calls_another_size(self):
        self.check("other_size", "mismatch",
                   {"ranks": [CULPRIT], "class": "signature", "by": "proof", "group": "world", "ordinal": 31})

    @long
    def test_names_the_rank_that_ends_before_a_call(self):
        self.check("early_exit", "hang",
                   {"ranks": [CULPRIT], "class": "exited", "by": "proof", "group": "world", "ordinal": 31, "waiting": [0, 2]})

    def test_names_the_rank_that_never_sends(self):
        self.check("no_send", "hang", {"ranks": [CULPRIT], "class": "never_entered", "by": "time", "group": "world",
                                       "operation": "recv from rank 1", "waiting": [2]})

    def test_withdraws_the_hang_if_the_rank_goes_on(self):
        job = self.job("blocked_read", 6)
        job.wait_found("hang")
        job.go_on()
        job.wait_found("withdrawn")
        job.stop()
        self.assertEqual(len(job.found("hang")), 1)

    def test_calls_in_captured_graphs_accuse_no_rank(self):
        for version in VERSIONS:
            with self.subTest(version=version):
                job = self.job("captured", version, "--on-hang", "stop", STAYS="no")
                wait_for(lambda job=job: "fault" in job.stdout(), "the culprit reads")
                with self.assertRaises(subprocess.TimeoutExpired):
                    job.process.wait(3)
                job.go_on()
                self.assertEqual(job.wait(), 0, job.stderr())
                self.assertEqual(job.events(), [])


class Environment(LiveTest):
    def shown(self, *flags, **env):
        code, out, err = run(*flags, "--nproc-per-node", 1, "--no-python", "sh", "-c", SHOW, env=env)
        self.assertEqual((code, err), (0, ""))
        return out.strip()

    def test_workers_load_the_plugin_and_chain_to_the_users(self):
        plugin = r"^\S+/\d+\.python/libnccl-profiler-muster\.so"
        self.assertRegex(self.shown(), plugin + " none no$")
        self.assertRegex(self.shown("--record-kernels", "--no-python-hook"), plugin + " none 1$")
        self.assertRegex(self.shown(NCCL_PROFILER_PLUGIN="own"), plugin + " own no$")
        self.assertEqual(self.shown("--no-recorder", NCCL_PROFILER_PLUGIN="own"), "own none no")


def main():
    require_muster()
    require_programs(MUSTER_NCCL_FAULTS=PROGRAM, MUSTER_SECOND_PROFILER=SECOND)
    run_tests()


if __name__ == "__main__":
    main()

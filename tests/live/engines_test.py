"""A real mpirun of Open MPI or mpiexec of MPICH starts muster without a flag about nodes: the result is one job whose workers
get the right variables, on this machine and over three network namespaces."""
import collections
import os
import re
import shutil
import signal
import subprocess
import sys

import netns
from harness import MUSTER, LiveTest, main

# In Debian both packages provide mpirun and mpiexec; these names are unambiguous. Root may run the tests, too.
OPEN_MPI = ["mpirun.openmpi", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
HYDRA = ["mpiexec.hydra"]
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "MASTER_ADDR")
WORLD = ["--no-python", "sh", "-c", "echo " + " ".join(f"${name}" for name in NAMES) + " $(hostname)"]
ALONE = ["--no-python", "sh", "-c", "echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE"]
Worker = collections.namedtuple("Worker", [*(name.lower() for name in NAMES), "host"])
# Stands in for ssh: runs the command on the named node of the cluster.
SHELL = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1; shift
PFX={prefix} exec {script} exec "${{host#node}}" sh -c "$*"
"""


def finished(start):
    """(exit code, stdout, stderr). In one of several thousand runs MPICH's mpiexec dies of SIGPIPE, because it writes to
    ranks that have all just ended; such a run is repeated. Open MPI's mpirun warns if the ssh that it forked calls exec before
    mpirun calls setpgid for it; that line is left out."""
    for _ in range(3):
        process = start(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=60)
        if process.returncode != -signal.SIGPIPE:
            break
    return process.returncode, out, re.sub(r"\[\S+\] plm:rsh: Warning: setpgid\(.*\) failed in parent with errno=.*\n", "", err)


def run(command, *args):
    return finished(lambda **streams: subprocess.Popen([*map(str, [*command, *args])], **streams))


class EngineTest(LiveTest):
    def workers(self, result):
        code, out, err = result
        self.assertEqual(code, 0, err)
        self.assertNotIn("cannot", err)
        workers = []
        for line in out.splitlines():
            words = line.split()
            workers.append(Worker(*map(int, words[:6]), *words[6:]))
        workers.sort()
        self.assertEqual([w.rank for w in workers], list(range(len(workers))), out)
        self.assertEqual({w.world_size for w in workers}, {len(workers)})
        # Each worker has whichever of the host's addresses answered first: with IPv6 and under load these differ.
        self.assertEqual(len({w.torchelastic_run_id for w in workers}), 1, out)
        self.assertTrue(all(w.master_addr for w in workers), out)
        return workers

    def places(self, workers):
        return [(w.host, w.group_rank, w.group_world_size, w.local_rank, w.local_world_size) for w in workers]


class OneMachine(EngineTest):
    def check(self, command, name):
        code, out, err = run([*command, "-np", 4], MUSTER, *WORLD)
        workers = self.workers((code, out, err))
        self.assertEqual([place[1:] for place in self.places(workers)], [(0, 1, i, 4) for i in range(4)])
        self.assertRegex(err, rf"muster: {name}: 4 ranks \(\w+_SIZE\), 4 of them on this node\n")
        self.assertEqual(err.count("of them on this node"), 1, "one line for all")

    def test_open_mpi_starts_one_job(self):
        self.check(OPEN_MPI, "mpirun of Open MPI")

    def test_hydra_starts_one_job(self):
        self.check(HYDRA, "mpiexec")

    def test_a_failure_prints_one_screen(self):
        for command in (OPEN_MPI, HYDRA):
            for rank in (0, 2):
                code, _, err = run([*command, "-np", 4], MUSTER, "--max-restarts", 1, "--no-python", "sh", "-c",
                                   f"[ $RANK != {rank} ] || exit 3; exec sleep 1000")
                self.assertEqual(code, 3, err)
                self.assertEqual(err.count(f"sh FAILED: rank {rank} of 4"), 1, err)
                self.assertEqual(err.count("Root Cause"), 1, err)
                self.assertEqual(err.count("restarting, 0 of 1 restarts left\n"), 1, err)

    def test_simultaneous_launches_do_not_meet(self):
        launches = [subprocess.Popen([*HYDRA, "-np", "3", MUSTER, *WORLD], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True) for _ in range(4)]
        ids = set()
        for launch in launches:
            out, err = launch.communicate(timeout=120)
            ids.add(self.workers((launch.returncode, out, err))[0].torchelastic_run_id)
        self.assertEqual(len(ids), 4)

    def test_one_process_runs_without_a_message(self):
        for command in (OPEN_MPI, HYDRA):
            self.assertEqual(run([*command, "-np", 1], MUSTER, *ALONE), (0, "0/1 0/1\n", ""))

    def test_worlds_of_one_start_if_a_flag_asks_for_them(self):
        for meant in (["--nnodes", "1"], ["--standalone"], ["--engine", "none"]):
            code, out, err = run([*OPEN_MPI, "-np", 2], MUSTER, *meant, *ALONE)
            self.assertEqual((code, out, err), (0, "0/1 0/1\n" * 2, ""), meant)

    def test_a_muster_in_a_worker_is_a_job_of_its_own(self):
        code, out, err = run([*OPEN_MPI, "-np", 2], MUSTER, "--nnodes", 1, "--no-python", MUSTER, *ALONE)
        self.assertEqual((code, out, err), (0, "0/1 0/1\n" * 2, ""))

    def test_workers_inherit_no_variable_of_the_engine(self):
        script = "env | grep -E '^(OMPI_COMM|PMIX?_|HYDI_|MPI_LOCAL)' | sort"
        for command in (OPEN_MPI, HYDRA):
            code, out, err = run([*command, "-np", 2], MUSTER, "--no-python", "sh", "-c", script)
            self.assertEqual((code, out), (0, ""), err)

    def test_a_worker_count_that_contradicts_the_tasks_is_refused(self):
        code, out, err = run([*HYDRA, "-np", 2], MUSTER, "--nproc-per-node", 2, *ALONE)
        self.assertNotEqual(code, 0)
        self.assertEqual(out, "")
        self.assertIn("--nproc-per-node 2: mpiexec started 2 tasks on this node, each of which has one worker", err)


class ThreeMachines(EngineTest):
    def setUp(self):
        super().setUp()
        cluster = netns.Cluster(3)
        cluster.__enter__()
        self.addCleanup(cluster.down)
        self.cluster = cluster
        self.shell = self.write("shell", SHELL.format(prefix=cluster.prefix, script=netns.SCRIPT))

    def on_node_1(self, command):
        return finished(lambda **streams: self.cluster.run(1, [*command, MUSTER, *WORLD], **streams))

    def open_mpi(self, hosts, *flags):
        file = self.write("hosts", "".join(f"node{i} slots={slots}\n" for i, slots in hosts))
        return [*OPEN_MPI, "--mca", "plm_rsh_agent", self.shell, "--hostfile", file, *flags]

    def hydra(self, hosts, *flags):
        names = ",".join(f"node{i}:{slots}" for i, slots in hosts)
        return [*HYDRA, "-launcher", "ssh", "-launcher-exec", self.shell, "-hosts", names, *flags]

    def check_one_on_each(self, command):
        workers = self.workers(self.on_node_1(command))
        self.assertEqual(self.places(workers), [(f"node{i + 1}", i, 3, 0, 1) for i in range(3)])
        self.assertEqual(workers[0].master_addr, "10.99.0.1")

    def test_open_mpi_starts_one_rank_on_each_node(self):
        self.check_one_on_each(self.open_mpi([(1, 1), (2, 1), (3, 1)], "-N", "1"))

    def test_hydra_starts_one_rank_on_each_node(self):
        self.check_one_on_each(self.hydra([(1, 1), (2, 1), (3, 1)], "-ppn", "1"))

    def test_one_task_on_each_node_may_start_several_workers(self):
        command = self.open_mpi([(1, 1), (2, 1)], "-N", "1")
        code, out, err = finished(lambda **streams: self.cluster.run(1, [*command, MUSTER, "--nproc-per-node", 2, *WORLD],
                                                                     **streams))
        self.assertEqual(self.places(self.workers((code, out, err))),
                         [(f"node{i}", i - 1, 2, local, 2) for i in (1, 2) for local in (0, 1)])

    def check_four(self, command):
        workers = self.workers(self.on_node_1(command))
        self.assertEqual(self.places(workers), [("node1", 0, 3, 0, 2), ("node1", 0, 3, 1, 2), ("node2", 1, 3, 0, 1),
                                                ("node3", 2, 3, 0, 1)])

    def test_open_mpi_starts_four_ranks_on_three_nodes(self):
        self.check_four(self.open_mpi([(1, 2), (2, 1), (3, 1)], "-np", "4", "--map-by", "slot"))

    def test_hydra_starts_four_ranks_on_three_nodes(self):
        self.check_four(self.hydra([(1, 2), (2, 1), (3, 1)], "-np", "4"))


if __name__ == "__main__":
    for program in (OPEN_MPI[0], HYDRA[0]):
        if not shutil.which(program):
            print(f"SKIPPED: there is no {program} (Debian: openmpi-bin, mpich)", file=sys.stderr)
            sys.exit(77)
    netns.require_netns()
    main()

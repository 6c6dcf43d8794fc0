"""Started several times by a real engine without flags for nodes: one line with the flags to give, which then do it.

Open MPI's mpirun and MPICH's mpiexec on this machine, and over two network namespaces.
"""
import os
import re
import shutil
import signal
import subprocess
import sys

import netns
from harness import MUSTER, LiveTest, main

# Debian's mpirun and mpiexec are whichever package won; these names are not shared. Root is a user as any other here.
OPEN_MPI = ["mpirun.openmpi", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
HYDRA = ["mpiexec.hydra"]
REFUSAL = re.compile(r"^muster: (.*) and without --nnodes each of them would be a job of its own: (?:give|start one muster a "
                     r"node(?: \((.*?)\))? with) (.*); --nnodes 1 says that this is meant$", re.M)
WORLDS = ["--no-python", "sh", "-c", "echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE"]
# Stands in for ssh: runs the command on that node of the cluster.
SHELL = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1; shift
PFX={prefix} exec {script} exec "${{host#node}}" sh -c "$*"
"""


def finished(start):
    """(exit code, stdout, stderr). MPICH's mpiexec dies of SIGPIPE, once in some thousand times, when all ranks end at once
    and it has something to say to them: that says nothing of muster, so it is started again."""
    for _ in range(3):
        process = start(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=60)
        if process.returncode != -signal.SIGPIPE:
            break
    return process.returncode, out, err


def run(command, *args):
    return finished(lambda **streams: subprocess.Popen([*map(str, [*command, *args])], **streams))


class EngineTest(LiveTest):
    def refusals(self, code, err, count):
        """(facts, how to start, flags): all processes say the same. Once one has ended, mpirun ends those that come later."""
        self.assertEqual(code, 2, err)
        found = REFUSAL.findall(err)
        self.assertIn(len(found), range(1, count + 1), err)
        self.assertEqual(len(set(found)), 1, err)
        return found[0]


class OneMachine(EngineTest):
    def check(self, command, name, evidence):
        code, out, err = run([*command, "-np", 3], MUSTER, *WORLDS)
        facts, _, flags = self.refusals(code, err, 3)
        self.assertEqual(out, "")
        self.assertEqual(facts, f"{name} started 3 processes on 1 node ({evidence}=3),")
        code, out, err = run([*command, "-np", 1], MUSTER, *flags.split(), *WORLDS)
        self.assertEqual((code, sorted(out.split("\n"))), (0, ["", "0/1 0/3", "0/1 1/3", "0/1 2/3"]), err)

    def test_open_mpi(self):
        self.check(OPEN_MPI, "Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE")

    def test_hydra(self):
        self.check(HYDRA, "mpiexec", "PMI_SIZE")

    def test_one_process_is_no_reason_for_a_word(self):
        for command in (OPEN_MPI, HYDRA):
            code, out, err = run([*command, "-np", 1], MUSTER, *WORLDS)
            self.assertEqual((code, out, err), (0, "0/1 0/1\n", ""))

    def test_worlds_of_one_that_are_meant_are_made(self):
        for command in (OPEN_MPI, HYDRA):
            for meant in (["--nnodes", 1], ["--standalone"]):
                code, out, err = run([*command, "-np", 2], MUSTER, *meant, *WORLDS)
                self.assertEqual((code, out, err), (0, "0/1 0/1\n" * 2, ""))

    def test_a_muster_in_a_worker_is_a_job_of_its_own(self):
        code, out, err = run([*OPEN_MPI, "-np", 2], MUSTER, "--nnodes", 1, "--no-python", MUSTER, *WORLDS)
        self.assertEqual((code, out, err), (0, "0/1 0/1\n" * 2, ""))


class TwoMachines(EngineTest):
    def setUp(self):
        super().setUp()
        cluster = netns.Cluster(2)
        cluster.__enter__()
        self.addCleanup(cluster.down)
        self.cluster = cluster
        self.shell = self.write("shell", SHELL.format(prefix=cluster.prefix, script=netns.SCRIPT))

    def on_node_1(self, command, *args):
        return finished(lambda **streams: self.cluster.run(1, [*command, *args], **streams))

    def check(self, command, name, evidence):
        code, _, err = self.on_node_1(command, MUSTER, *WORLDS)
        facts, _, flags = self.refusals(code, err, 2)
        nodes = " on 2 nodes" if "--nnodes 2" in flags else ""  # Hydra tells nobody.
        self.assertEqual(facts, f"{name} started 2 processes{nodes} ({evidence}=2),")
        filled_in = flags.replace("--nnodes N", "--nnodes 2").replace("HOST", "node1").replace(" ID", " job")
        code, out, err = self.on_node_1(command, MUSTER, *filled_in.split(), *WORLDS)
        self.assertEqual((code, sorted(out.split("\n"))), (0, ["", "0/2 0/2", "1/2 1/2"]), err)

    def test_open_mpi(self):
        hosts = self.write("hosts", "node1 slots=1\nnode2 slots=1\n")
        command = [*OPEN_MPI, "--mca", "plm_rsh_agent", self.shell, "--hostfile", hosts, "--map-by", "ppr:1:node"]
        self.check(command, "Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE")

    def test_hydra(self):
        command = [*HYDRA, "-launcher", "ssh", "-launcher-exec", self.shell, "-hosts", "node1,node2", "-ppn", "1", "-np", "2"]
        self.check(command, "mpiexec", "PMI_SIZE")


if __name__ == "__main__":
    for program in (OPEN_MPI[0], HYDRA[0]):
        if not shutil.which(program):
            print(f"SKIPPED: there is no {program} (Debian: openmpi-bin, mpich)", file=sys.stderr)
            sys.exit(77)
    netns.require_netns()
    main()

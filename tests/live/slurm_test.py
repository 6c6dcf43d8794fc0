"""Under a real Slurm of two nodes: what srun, sbatch and salloc start without flags for nodes, and the flags that help."""
import os
import re
import subprocess
import tempfile
import unittest

import netns
import slurm
from harness import MUSTER, main

WORLD = ["--no-python", "sh", "-c", "echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE"]
ALONE = "0/1 0/1\n"
OWN = " and without --nnodes each of them would be a job of its own: "
MEANT = "; --nnodes 1 says that this is meant"


class UnderSlurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        nodes = cls.enterClassContext(netns.Cluster(2))
        # The shell of salloc is then a step of its own, as many sites have it; with a command, salloc runs that as ever.
        cls.slurm = cls.enterClassContext(slurm.Slurm(nodes, cls.folder, launch="use_interactive_step"))

    def lines_of(self, err):
        return sorted(set(line for line in err.splitlines() if line.startswith("muster: ")))

    def refused(self, *flags):
        """The one line that every task of this srun says, and nothing is run."""
        code, out, err = self.slurm.run("srun", *flags, MUSTER, *WORLD)
        self.assertEqual((code, out), (2, ""), err)
        lines = self.lines_of(err)
        self.assertEqual(len(lines), 1, err)
        return lines[0]

    def test_two_nodes_are_told_the_flags_that_make_them_one_job(self):
        line = self.refused("-N2")
        self.assertRegex(line, r"^muster: Slurm started 2 processes on 2 nodes \(SLURM_STEP_NUM_TASKS=2\)," + OWN +
                         r"give --nnodes 2 --rdzv-backend c10d --rdzv-endpoint node1:29400 --rdzv-id \d+" + MEANT + "$")
        flags = re.search(OWN + "give (.*)" + MEANT, line).group(1).split()
        code, out, err = self.slurm.run("srun", "-N2", MUSTER, *flags, *WORLD)
        self.assertEqual((code, sorted(out.split("\n"))), (0, ["", "0/2 0/2", "1/2 1/2"]), err)

    def test_several_tasks_on_a_node_are_told_to_be_one_with_several_workers(self):
        line = self.refused("-N1", "-n4")
        self.assertEqual(line, "muster: Slurm started 4 processes on 1 node (SLURM_STEP_NUM_TASKS=4)," + OWN +
                         "start one muster a node (srun --ntasks-per-node=1) with --nproc-per-node 4" + MEANT)
        code, out, err = self.slurm.run("srun", "-N1", "--ntasks-per-node=1", MUSTER, "--nproc-per-node", 4, *WORLD)
        self.assertEqual((code, sorted(out.split("\n"))), (0, ["", *(f"0/1 {i}/4" for i in range(4))]), err)

    def test_two_tasks_on_each_of_two_nodes(self):
        line = self.refused("-N2", "-n4", "--ntasks-per-node=2")
        self.assertIn("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint node1:29400", line)
        self.assertIn("start one muster a node (srun --ntasks-per-node=1) with", line)
        self.assertIn("--nproc-per-node 2", line)

    def test_one_task_is_no_reason_for_a_word(self):
        for flags in (["-N1", "-n1"], ["-N1", "-n1", "--mpi=pmi2"]):
            self.assertEqual(self.slurm.run("srun", *flags, MUSTER, *WORLD), (0, ALONE, ""))

    def test_worlds_of_one_that_are_meant_are_made(self):
        for meant in (["--nnodes", "1"], ["--standalone"]):
            self.assertEqual(self.slurm.run("srun", "-N2", MUSTER, *meant, *WORLD), (0, ALONE * 2, ""))
        self.assertEqual(self.slurm.run("srun", "-N2", MUSTER, *WORLD, env={"PET_NNODES": "1"}), (0, ALONE * 2, ""))

    def test_a_muster_in_a_worker_is_a_job_of_its_own(self):
        nested = [MUSTER, "--nnodes", "1", "--no-python", MUSTER, *WORLD]
        self.assertEqual(self.slurm.run("srun", "-N2", *nested), (0, ALONE * 2, ""))

    def test_what_salloc_runs_is_no_reason_for_a_word(self):
        code, out, err = self.slurm.run("salloc", "-N2", MUSTER, *WORLD)
        self.assertEqual((code, out, self.lines_of(err)), (0, ALONE, []), err)

    def test_the_shell_of_salloc_is_no_reason_for_a_word(self):
        command = f"{self.slurm.programs['salloc']} -N2"
        process = self.slurm.nodes.run(
            1, ["script", "-qec", command, "/dev/null"], env={
                **self.slurm.env, "SHELL": "/bin/sh", "PATH": os.path.dirname(self.slurm.programs["srun"]) + ":" + os.environ["PATH"]},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        script = f"{self.folder}/nested.sh"
        self.slurm.write("nested.sh", f"#!/bin/sh\n{MUSTER} --no-python env\n".encode(), 0o755)
        out, _ = process.communicate(f"{script}; exit\n", timeout=60)
        self.assertIn("SLURM_STEP_NUM_TASKS=1", out)
        self.assertIn("SLURM_NNODES=2", out)
        self.assertNotIn("muster: ", out)

    def test_a_batch_script_is_told_of_the_other_nodes_and_goes_on(self):
        self.slurm.write("batch.sh", f"#!/bin/sh\n{MUSTER} --no-python env\n".encode(), 0o755)
        out = f"{self.folder}/batch.out"
        code, _, err = self.slurm.run("sbatch", "-N2", "--wait", "-o", out, f"{self.folder}/batch.sh")
        self.assertEqual(code, 0, err)
        with open(out, encoding="utf-8") as f:
            text = f.read()
        self.assertIn("WORLD_SIZE=1", text)
        self.assertRegex("\n".join(self.lines_of(text)),
                         r"^muster: Slurm runs this on the first of 2 nodes only \(SLURM_NNODES=2\): start it by srun "
                         r"--ntasks-per-node=1 with --nnodes 2 .* --rdzv-endpoint node1:29400 --rdzv-id \d+; --nnodes 1 says "
                         r"that one node is meant$")


if __name__ == "__main__":
    netns.require_netns()
    slurm.require_slurm()
    main()

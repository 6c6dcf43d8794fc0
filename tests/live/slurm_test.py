"""A real Slurm of four nodes, without flags about nodes: what srun, sbatch and salloc start is one job, with the
contract's variables right."""
import collections
import os
import re
import subprocess

import netns
import slurm
from harness import MUSTER, long, main, wait_for

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "SLURMD_NODENAME",
         "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES")
WORLD = ["--no-python", "sh", "-c", "echo world " + " ".join(f"${{{name}:-none}}" for name in NAMES)]
Worker = collections.namedtuple("Worker", [name.lower() for name in NAMES])
ALONE = ["--no-python", "sh", "-c", "echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE"]


def worker_of(line):
    words = line.split()[1:]
    return Worker(*(int(word) if i < 6 else word for i, word in enumerate(words)))


class UnderSlurm(slurm.OnSlurm):
    # Makes the shell of salloc a step of its own, as at many sites; salloc with a command runs that as ever.
    OPTIONS = {"launch": "use_interactive_step", "gpus": 4}

    def lines_of(self, err):
        return sorted(set(line for line in err.splitlines() if line.startswith("muster: ")))

    def workers_in(self, out):
        return sorted(worker_of(line) for line in out.splitlines() if line.startswith("world "))

    def check_world(self, workers, by_node, named=False):
        """`by_node`: (name, number of workers) of each node, by GROUP_RANK. Unless `named`, other names are accepted: Slurm may
        choose other nodes while those of the job before are not free yet."""
        if not named:
            chosen = dict(sorted((w.group_rank, w.slurmd_nodename) for w in workers))
            self.assertEqual(len(set(chosen.values())), len(by_node), workers)
            by_node = [(chosen.get(i), count) for i, (_, count) in enumerate(by_node)]
        self.assertEqual([w.rank for w in workers], list(range(sum(n for _, n in by_node))))
        places = collections.defaultdict(set)
        for worker in workers:
            name, count = by_node[worker.group_rank]
            self.assertEqual((worker.world_size, worker.local_world_size, worker.group_world_size, worker.slurmd_nodename),
                             (len(workers), count, len(by_node), name), workers)
            places[name].add(worker.local_rank)
        self.assertEqual({name: set(range(count)) for name, count in by_node}, dict(places))
        self.assertEqual(len({(w.master_addr, w.torchelastic_run_id) for w in workers}), 1, workers)

    def one_world(self, program, *args, by_node, flags=()):
        code, out, err = self.run_slurm(program, *args, MUSTER, *flags, *WORLD)
        self.assertEqual(code, 0, err)
        workers = self.workers_in(out)
        self.check_world(workers, by_node)
        return workers, err

    def batch(self, script, *flags):
        """Runs a script of sbatch to its end. Returns its exit code and output."""
        self.slurm.write("batch.sh", f"#!/bin/sh\n{script}\n".encode(), 0o755)
        out = f"{self.folder}/batch.out"
        code, _, err = self.run_slurm("sbatch", *flags, "--wait", "-o", out, f"{self.folder}/batch.sh")
        with open(out, encoding="utf-8") as f:
            text = f.read()
        return code, text + err

    # ---- one task on each node

    @long
    def test_a_task_on_each_node_is_a_node(self):
        workers, err = self.one_world("srun", "-N4", by_node=[(f"node{i}", 1) for i in (1, 2, 3, 4)])
        self.assertRegex(workers[0].torchelastic_run_id, r"^slurm-\d+\.0\.0$")
        self.assertEqual(workers[0].master_addr, "10.99.0.1")
        lines = [line for line in self.lines_of(err) if "host" in line]
        self.assertEqual(len(lines), 4, err)
        self.assertRegex(lines[2], r"^muster: Slurm \d+\.0: node 2 of 4, host node1$")

    def test_a_node_has_as_many_workers_as_gpus(self):
        _, err = self.one_world("srun", "-N2", "--gpus-per-node=2", by_node=[("node1", 2), ("node2", 2)])
        self.assertRegex(err, r"node 1 of 2, 2 workers \(SLURM_GPUS_ON_NODE\), host node\d")
        self.one_world("srun", "-N2", "--gpus-per-node=2", by_node=[("node1", 1), ("node2", 1)],
                       flags=["--nproc-per-node", "1"])

    def test_a_single_node_has_as_many_workers_as_gpus(self):
        _, err = self.one_world("srun", "-N1", "-n1", "--gpus-per-node=3", by_node=[("node1", 3)])
        self.assertRegex(err, r"muster: Slurm \d+\.0: 3 workers \(SLURM_GPUS_ON_NODE\)\n")

    def test_one_task_without_gpus_prints_nothing(self):
        for flags in (["-N1", "-n1"], ["-N1", "-n1", "--mpi=pmi2"]):
            self.assertEqual(self.run_slurm("srun", *flags, MUSTER, *ALONE), (0, "0/1 0/1\n", ""))

    def test_an_elastic_job_forms_one_world(self):
        self.one_world("srun", "-N3", by_node=[(f"node{i}", 1) for i in (1, 2, 3)], flags=["--nnodes", "1:3"])

    def test_a_failure_is_one_screen_of_node_rank_0(self):
        code, _, err = self.run_slurm("srun", "-N2", "--label", MUSTER, "--no-python", "sh", "-c",
                                      "[ $RANK = 0 ] || exit 3; exec sleep 1000")
        self.assertEqual(code, 3, err)
        self.assertEqual(re.findall(r"^(\d): sh FAILED: rank (\d) of 2", err, re.M), [("0", "1")], err)
        self.assertEqual(err.count("Root Cause"), 1, err)

    @long
    def test_a_failure_of_an_elastic_job_is_one_screen(self):
        for failing in (0, 1):
            code, _, err = self.run_slurm("srun", "-N3", MUSTER, "--nnodes", "2:3", "--max-restarts", 1, "--no-python", "sh", "-c",
                                          f"[ $RANK = {failing} ] && [ $WORLD_SIZE = 3 ] && exit 3; exec sleep 1000")
            self.assertEqual(code, 3, err)
            self.assertEqual(err.count(f"sh FAILED: rank {failing} of 3"), 1, err)
            self.assertEqual(err.count("Root Cause"), 1, err)
            self.assertEqual(err.count("restarting, 0 of 1 restarts left\n"), 1, err)

    # ---- several tasks on a node

    @long
    def test_tasks_are_ranks(self):
        self.one_world("srun", "-N2", "--ntasks-per-node=4", by_node=[("node1", 4), ("node2", 4)])
        self.one_world("srun", "-N1", "-n4", by_node=[("node1", 4)])

    def test_tasks_are_ranks_in_slurms_order(self):
        workers, _ = self.one_world("srun", "-N2", "-n5", "-m", "cyclic", by_node=[("node1", 4), ("node2", 1)])
        self.assertEqual([w.group_rank for w in workers[:3]], [0, 1, 0])

    def test_a_task_with_a_gpu_of_its_own_has_local_rank_0(self):
        code, out, err = self.run_slurm("srun", "-N2", "--ntasks-per-node=2", "--gpus-per-task=1", MUSTER, *WORLD)
        self.assertEqual(code, 0, err)
        workers = self.workers_in(out)
        self.assertEqual([(w.rank, w.local_rank, w.local_world_size, w.group_rank) for w in workers],
                         [(0, 0, 2, 0), (1, 0, 2, 0), (2, 0, 2, 1), (3, 0, 2, 1)])
        self.assertEqual([w.cuda_visible_devices for w in workers], ["0", "1"] * 2)

    # ---- steps and jobs

    def test_a_step_on_part_of_a_job_forms_one_world(self):
        code, text = self.batch(f"srun -N2 -w node[3-4] {MUSTER} {self.shell_words(WORLD)}", "-N4")
        self.assertEqual(code, 0, text)
        self.check_world(self.workers_in(text), [("node3", 1), ("node4", 1)], named=True)

    @long
    def test_two_steps_at_once_are_two_worlds(self):
        step = f"{MUSTER} {self.shell_words(WORLD)}"
        code, text = self.batch(f"srun -N2 -w node[1-2] {step} & srun -N2 -w node[3-4] {step} & wait", "-N4")
        self.assertEqual(code, 0, text)
        worlds = collections.defaultdict(list)
        for worker in self.workers_in(text):
            worlds[worker.torchelastic_run_id].append(worker)
        self.assertEqual(sorted([w.slurmd_nodename for w in world] for world in worlds.values()),
                         [["node1", "node2"], ["node3", "node4"]], text)
        for world in worlds.values():
            self.assertEqual([(w.rank, w.world_size) for w in world], [(0, 2), (1, 2)])

    def test_two_jobs_on_the_same_nodes_do_not_meet(self):
        step = f"{MUSTER} {self.shell_words(WORLD)}"
        code, text = self.batch("for i in 1 2 3 4 5 6; do srun --overlap -N2 -n2 " + step + " & done; wait", "-N2", "-n2")
        self.assertEqual(code, 0, text)
        workers = self.workers_in(text)
        self.assertEqual(len(workers), 12, text)
        self.assertEqual(len({w.torchelastic_run_id for w in workers}), 6)
        self.assertEqual(collections.Counter((w.rank, w.world_size) for w in workers), {(0, 2): 6, (1, 2): 6})

    @long
    def test_parts_of_a_heterogeneous_job_are_one_world(self):
        job = ["-N1", "-w", "node3", "--ntasks-per-node=2", ":", "-N2", "-w", "node1,node4", "--ntasks-per-node=3"]
        code, text = self.batch(f"srun --het-group=0,1 {MUSTER} {self.shell_words(WORLD)}", *job)
        self.assertEqual(code, 0, text)
        self.check_world(self.workers_in(text), [("node3", 2), ("node1", 3), ("node4", 3)], named=True)

    def test_a_requeued_job_has_another_run_id(self):
        script = (f"srun -N2 {MUSTER} {self.shell_words(WORLD)}\n"
                  "test -n \"$SLURM_RESTART_COUNT\" || { scontrol requeue $SLURM_JOB_ID; sleep 60; }")
        self.slurm.write("requeue.sh", f"#!/bin/sh\n{script}\n".encode(), 0o755)
        out = f"{self.folder}/requeue.out"
        code, _, err = self.run_slurm("sbatch", "-N2", "--requeue", "--open-mode=append", "--wait", "-o", out,
                                      f"{self.folder}/requeue.sh")
        with open(out, encoding="utf-8") as f:
            text = f.read()
        self.assertEqual(code, 0, err + text)
        self.assertEqual(len({w.torchelastic_run_id for w in self.workers_in(text)}), 2, text)
        self.assertRegex(text, r"slurm-(\d+)\.0\.0 ")
        self.assertRegex(text, r"slurm-(\d+)\.0\.1 ")

    def test_the_exit_code_is_the_workers(self):
        code, _, err = self.run_slurm("srun", "-N2", MUSTER, "--no-python", "sh", "-c", "test $RANK = 0 || exit 42; sleep 60")
        self.assertEqual(code, 42, err)

    # ---- batch scripts and shells

    def shell_words(self, words):
        return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)

    def test_a_batch_script_runs_on_all_nodes(self):
        code, text = self.batch(f"{MUSTER} {self.shell_words(WORLD)}", "-N4")
        self.assertEqual(code, 0, text)
        self.check_world(self.workers_in(text), [(f"node{i}", 1) for i in (1, 2, 3, 4)])
        self.assertRegex(text, r"muster: Slurm \d+: 4 nodes \(SLURM_JOB_NUM_NODES\); muster starts itself there by: srun "
                               r"--job-name=muster-[0-9a-f]{8} --export=ALL --nodes=4 --ntasks=4 "
                               r"--ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 /\S+/muster --no-python sh ")
        self.assertNotIn("token", text.lower(), "it has a token, which is not shown")

    def test_a_batch_script_has_all_gpus_of_the_job_however_it_asked_for_them(self):
        for flags in (["--gpus-per-node=4"], ["--ntasks-per-node=4", "--gpus-per-task=1"], ["--gres=gpu:4", "-n", "8"],
                      ["--gpus=8", "--ntasks-per-gpu=1"], ["--gpus-per-node=4", "--ntasks-per-node=4", "--gpu-bind=single:1"]):
            with self.subTest(flags=flags):
                code, text = self.batch(f"{MUSTER} {self.shell_words(WORLD)}", "-N2", *flags)
                self.assertEqual(code, 0, text)
                self.check_world(self.workers_in(text), [("node1", 4), ("node2", 4)])

    def test_a_heterogeneous_batch_script_runs_on_all_nodes(self):
        code, text = self.batch(f"{MUSTER} {self.shell_words(WORLD)}", "-N1", "-w", "node3", "-n2", ":", "-N2", "-w", "node1,node4")
        self.assertEqual(code, 0, text)
        self.check_world(self.workers_in(text), [("node3", 1), ("node1", 1), ("node4", 1)], named=True)

    def test_a_batch_script_on_one_node_needs_no_step(self):
        code, text = self.batch(f"{MUSTER} {self.shell_words(WORLD)}", "-N1", "--gpus-per-node=2")
        self.assertEqual(code, 0, text)
        self.check_world(self.workers_in(text), [("node1", 2)])
        self.assertNotIn("srun", text)

    def test_a_batch_scripts_exit_code_is_the_workers(self):
        script = f"{MUSTER} --no-python sh -c 'test $RANK = 0 || exit 42; sleep 60'; echo code $?"
        _, text = self.batch(script, "-N2")
        self.assertIn("code 42\n", text)

    @long
    def test_salloc_runs_a_command_on_all_nodes(self):
        workers, _ = self.one_world("salloc", "-N2", by_node=[("node1", 1), ("node2", 1)])
        self.assertEqual(len(workers), 2)

    @long
    def test_salloc_of_one_node_runs_on_that_node(self):
        workers, _ = self.one_world("salloc", "-N1", "-w", "node4", by_node=[("node4", 1)])
        self.assertEqual(workers[0].slurmd_nodename, "node4")

    def test_the_shell_of_salloc_runs_on_all_nodes(self):
        command = f"{self.slurm.programs['salloc']} -N2"
        process = self.slurm.nodes.run(
            1, ["script", "-qec", command, "/dev/null"],
            env={**self.slurm.env, "SHELL": "/bin/sh", "PATH": self.path},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.slurm.write("nested.sh", f"#!/bin/sh\n{MUSTER} {self.shell_words(WORLD)}\n".encode(), 0o755)
        out, _ = process.communicate(f"{self.folder}/nested.sh; exit\n", timeout=60)
        self.check_world(self.workers_in(out.replace("\r", "")), [("node1", 1), ("node2", 1)])

    def test_a_signal_is_passed_on_to_the_step(self):
        mark = f"{self.folder}/started"
        worker = f"trap 'echo worker saved $RANK; exit 0' TERM; echo >{mark}.$RANK; while :; do sleep 0.1; done"
        process = self.slurm.command("salloc", "-N2", MUSTER, "--no-python", "sh", "-c", worker, env={"PATH": self.path})
        wait_for(lambda: os.path.exists(mark + ".0") and os.path.exists(mark + ".1"), "the workers run")
        musters = [pid for pid in os.listdir("/proc") if pid.isdigit() and self.is_starter(pid)]
        self.assertEqual(len(musters), 1)
        os.kill(int(musters[0]), 15)
        out, err = process.communicate(timeout=60)
        self.assertEqual(sorted(line for line in out.splitlines() if "saved" in line),
                         ["worker saved 0", "worker saved 1"], err)

    @long
    def test_a_signal_reaches_all_parts_of_a_heterogeneous_job(self):
        mark = f"{self.folder}/parts"
        # A shell cannot trap a signal that was ignored when it started.
        worker = ("import os, signal; rank = os.environ['RANK']; signal.signal(signal.SIGUSR1, lambda *_: None); "
                  f"open('{mark}.' + rank, 'w').close(); signal.pause(); print('told', rank)")
        words = self.shell_words(["--no-python", "python3", "-c", worker])
        script = (f"{MUSTER} {words} & starter=$!; while ! [ -e {mark}.0 -a -e {mark}.1 -a -e {mark}.2 ]; do sleep 0.1; done\n"
                  "kill -USR1 $starter; wait $starter; wait $starter; echo code $?")
        code, text = self.batch(script, "-N1", "-w", "node3", ":", "-N2", "-w", "node1,node4")
        self.assertEqual(code, 0, text)
        self.assertEqual(sorted(line for line in text.splitlines() if line.startswith("told")), ["told 0", "told 1", "told 2"], text)
        self.assertIn("code 0\n", text)

    def test_ignored_children_do_not_change_the_exit_code(self):
        code, text = self.batch(f"trap '' CHLD; {MUSTER} --no-python true; echo code $?", "-N2")
        self.assertEqual(code, 0, text)
        self.assertIn("code 0\n", text)

    def test_a_shell_of_one_task_among_several_is_refused(self):
        code, out, err = self.run_slurm("srun", "-N1", "-n2", "env", "SLURM_PTY_PORT=1", MUSTER, *ALONE)
        self.assertEqual((code, out), (2, ""), err)
        self.assertIn("this shell of srun --pty is one of its 2 tasks", err)

    def test_two_jobs_of_one_name_do_not_meet(self):
        step = f"{MUSTER} --rdzv-id train {self.shell_words(WORLD)}"
        code, text = self.batch(f"for i in 1 2 3; do srun --overlap -N2 -n2 {step} & done; wait", "-N2", "-n2")
        self.assertEqual(code, 0, text)
        workers = self.workers_in(text)
        self.assertEqual({w.torchelastic_run_id for w in workers}, {"train"}, text)
        self.assertEqual(collections.Counter((w.rank, w.world_size) for w in workers), {(0, 2): 3, (1, 2): 3}, text)

    def is_starter(self, pid):
        """Returns True if it is the muster of this test that started srun. The witness beside it has another name."""
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
                if f.read() != "muster\n":
                    return False
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
                words = f.read().split("\0")
            with open(f"/proc/{pid}/environ", encoding="utf-8") as f:
                variables = f.read()
        except OSError:
            return False
        return words[0] == MUSTER and self.folder in variables and "SLURM_STEP_ID" not in variables

    # ---- worlds of one, and errors

    def test_worlds_of_one_are_made_on_request(self):
        for meant in (["--nnodes", "1"], ["--standalone"], ["--engine", "none"]):
            self.assertEqual(self.run_slurm("srun", "-N2", MUSTER, *meant, *ALONE), (0, "0/1 0/1\n" * 2, ""), meant)
        self.assertEqual(self.run_slurm("srun", "-N2", MUSTER, *ALONE, env={"PET_NNODES": "1"}), (0, "0/1 0/1\n" * 2, ""))

    def test_a_muster_in_a_worker_is_a_job_of_its_own(self):
        nested = [MUSTER, "--nnodes", "1", "--no-python", MUSTER, *ALONE]
        self.assertEqual(self.run_slurm("srun", "-N2", *nested), (0, "0/1 0/1\n" * 2, ""))

    def test_torchruns_flags_work_as_ever(self):
        flags = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "node1:29400", "--rdzv-id", "7"]
        code, out, err = self.run_slurm("srun", "-N2", MUSTER, *flags, *ALONE)
        self.assertEqual((code, sorted(out.split("\n"))), (0, ["", "0/2 0/2", "1/2 1/2"]), err)

    def test_flags_that_cannot_be_one_job_are_refused_in_one_line(self):
        for args, line in (
                (["-N1", "-n4", MUSTER, "--nproc-per-node", "8"], "started 4 tasks on this node, each of which has one worker"),
                (["-N1", "-n4", MUSTER, "--nnodes", "2:4"], "with several tasks on a node the ranks are the engine's"),
                (["-N2", MUSTER, "--nnodes", "3"], "started 2 processes of muster"),
                (["-N2", "env", "SLURM_NODEID=x", MUSTER], "SLURM_NODEID=x is not a number from 0 to")):
            with self.subTest(args=args):
                code, out, err = self.run_slurm("srun", *args, *ALONE)
                self.assertEqual((code, out), (2, ""), err)
                lines = {re.sub(r"Slurm \d+\.\d+", "Slurm", said) for said in self.lines_of(err)}
                self.assertEqual(len(lines), 1, err)
                self.assertIn(line, lines.pop())


if __name__ == "__main__":
    netns.require_netns()
    slurm.require_slurm()
    main()

"""Joining a job: by every launcher's variables, by address, by file and by spawn(), on one machine and on two.

The program worker_init_program ($MUSTER_WORKER_INIT) prints one line for each of its ranks about how it joined, after an
all_reduce over the world.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import netns
from harness import LIMIT_S, SHARED_TMP, LiveTest, children_of, is_gone, long, main, require_programs, run, wait_for, within
from ports import free_port, listening

PROGRAM = os.environ.get("MUSTER_WORKER_INIT", "")
TORCH = os.environ.get("MUSTER_TORCH_VENV", "")
RANKS_OF_USER = f"{SHARED_TMP}/muster-ranks-{os.geteuid()}"  # The library lets ranks meet there.
# The environment without the variables of a launcher around this test.
CLEAN = {name: value for name, value in os.environ.items()
         if not re.match(r"(OMPI|PMIX|PMI|SLURM|TORCHELASTIC)_|(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_(ADDR|PORT))$", name)}


class Line:
    """One rank's line about how it joined."""

    def __init__(self, text):
        self.text = text
        words = dict(word.split("=", 1) for word in text.split())
        self.addresses = words.pop("addresses").split(",")
        self.__dict__.update({name: int(value) for name, value in words.items()})


def lines_of(out):
    return sorted((Line(text) for text in out.splitlines() if text.startswith("cycle=")),
                  key=lambda line: (line.cycle, line.rank))


class Rank:
    """A process of the program, started by hand."""

    def __init__(self, *args, env=None, start=None):
        argv = [PROGRAM, *map(str, args)]
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        if start:
            self.process = start(argv, env=env, **options)
        else:
            self.process = subprocess.Popen(argv, env=dict(CLEAN, **(env or {})), **options)

    def end(self, limit_s=LIMIT_S):
        """Returns (exit code, stdout)."""
        try:
            out, err = self.process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"a rank is still there after {limit_s} s: {out!r} {err!r}") from None
        return self.process.returncode, out


class JoiningTest(LiveTest):
    def by_hand(self, method, n, *args, **options):
        """Starts n ranks with explicit options, in reverse order."""
        return [Rank("--init-method", method, "--rank", rank, "--world-size", n, *args, **options)
                for rank in reversed(range(n))]

    def all_lines(self, ranks):
        ends = [rank.end() for rank in ranks]
        self.assertEqual([code for code, _ in ends], [0] * len(ranks), ends)
        return lines_of("".join(out for _, out in ends))

    def assert_world(self, lines, n, cycles=1, **expected):
        """Checks that all n ranks have met in every cycle, and computed one sum."""
        self.assertEqual([(line.cycle, line.rank) for line in lines], [(c, r) for c in range(cycles) for r in range(n)])
        for line in lines:
            self.assertEqual((line.world_size, line.sum), (n, n * (n - 1) // 2), line.text)
            self.assertEqual(line.addresses, lines[0].addresses)
            # Joining again leaves no further keys in the store than who has each rank and how often it came.
            if line.rank == 0:
                self.assertEqual(line.keys, lines[0].keys, line.text)
            for name, value in expected.items():
                self.assertEqual(getattr(line, name), value(line) if callable(value) else value, line.text)

    def error_of(self, rank, limit_s=LIMIT_S):
        code, out = rank.end(limit_s)
        self.assertEqual(code, 3, out)
        return out.strip()


class LauncherTest(JoiningTest):
    def muster(self, *args, **options):
        code, out, err = run(*args, **options)
        self.assertEqual(code, 0, err)
        return lines_of(out)

    def test_ranks_of_muster_join(self):
        lines = self.muster("--nproc-per-node", 4, "--no-python", PROGRAM)
        self.assert_world(lines, 4, local_rank=lambda line: line.rank, local_world_size=4, nodes=1, restart_count=0)

    def test_ranks_of_muster_join_ten_times(self):
        self.assert_world(self.muster("--nproc-per-node", 3, "--no-python", PROGRAM, "--cycles", 10), 3, cycles=10)

    def test_a_single_rank_of_muster_joins(self):
        self.assert_world(self.muster("--nproc-per-node", 1, "--no-python", PROGRAM), 1)

    def test_rank_0_serves_the_store_if_the_agent_may_not(self):
        lines = self.muster("--nproc-per-node", 3, "--no-python", PROGRAM, "--cycles", 3,
                            env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
        self.assert_world(lines, 3, cycles=3)

    def test_a_restarted_round_is_a_new_meeting(self):
        script = self.write("w.sh", f"""#!/bin/sh
            if [ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 1 ]; then exit 1; fi
            exec {PROGRAM}
        """)
        code, out, err = run("--nproc-per-node", 3, "--max-restarts", 1, "--no-python", script)
        self.assertEqual(code, 0, err)
        self.assert_world([line for line in lines_of(out) if line.restart_count == 1], 3)

    def test_ranks_of_torchrun_join(self):
        if not TORCH:
            self.skipTest("no PyTorch: set MUSTER_TORCH_VENV to a virtual environment that has it")
        done = subprocess.run([f"{TORCH}/bin/python", "-m", "torch.distributed.run", "--nproc-per-node", "3",
                               "--master-port", str(free_port()), "--no-python", PROGRAM, "--cycles", "2"], env=CLEAN,
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_world(lines_of(done.stdout), 3, cycles=2, local_rank=lambda line: line.rank, local_world_size=3)

    def test_ranks_of_mpirun_join(self):
        if not shutil.which("mpirun"):
            self.skipTest("there is no mpirun (Debian: openmpi-bin)")
        done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", PROGRAM, "--cycles", "3"],
                              env=CLEAN, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_world(lines_of(done.stdout), 3, cycles=3, local_rank=lambda line: line.rank, local_world_size=3)

    @long
    def test_ranks_of_mpirun_join_by_an_address(self):
        if not shutil.which("mpirun"):
            self.skipTest("there is no mpirun (Debian: openmpi-bin)")
        done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "-x",
                               "MASTER_ADDR=localhost", "-x", f"MASTER_PORT={free_port()}", PROGRAM],
                              env=CLEAN, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_world(lines_of(done.stdout), 2)

    def test_ranks_with_the_variables_of_srun_join(self):
        ranks = [Rank("--cycles", 2, env={
            "SLURM_JOB_ID": self.marker, "SLURM_STEP_ID": "0", "SLURM_PROCID": str(r), "SLURM_NTASKS": "3",
            "SLURM_LOCALID": str(r), "SLURM_NODEID": "0", "SLURM_NNODES": "1", "SLURM_TASKS_PER_NODE": "3"})
            for r in range(3)]
        self.assert_world(self.all_lines(ranks), 3, cycles=2, local_rank=lambda line: line.rank, local_world_size=3)
        self.assertEqual([name for name in os.listdir(RANKS_OF_USER) if self.marker in name], [])

    def test_a_rank_without_a_launcher_is_a_world_of_one(self):
        self.assert_world(self.all_lines([Rank("--cycles", 3)]), 1, cycles=3, local_world_size=1)

    def test_a_world_of_one_needs_no_network_at_all(self):
        if netns.missing():
            self.skipTest(netns.missing())
        # Not even loopback is up in a new network namespace.
        done = subprocess.run(["unshare", "--net", PROGRAM], env=CLEAN, capture_output=True, text=True, check=True)
        self.assert_world(lines_of(done.stdout), 1)


class ExplicitTest(JoiningTest):
    @long
    def test_ranks_join_by_address(self):
        ranks = self.by_hand(f"tcp://127.0.0.1:{free_port()}", 4)
        # The ranks were not given their places on the node.
        self.assert_world(self.all_lines(ranks), 4, nodes=1, local_rank=lambda line: line.rank, local_world_size=4,
                          node_rank=0)

    def test_ranks_join_by_address_again_and_again(self):
        ranks = self.by_hand(f"tcp://localhost:{free_port()}", 3, "--cycles", 20)
        self.assert_world(self.all_lines(ranks), 3, cycles=20)

    def test_ranks_join_by_file_again_and_again(self):
        ranks = self.by_hand(f"file://{self.path('meeting')}", 3, "--cycles", 20)
        self.assert_world(self.all_lines(ranks), 3, cycles=20)
        self.assertFalse(self.exists("meeting"))

    def test_a_file_of_a_job_that_was_killed_is_stale(self):
        method = f"file://{self.path('meeting')}"
        dead = Rank("--init-method", method, "--rank", 0, "--world-size", 2)
        wait_for(lambda: self.exists("meeting") and self.read("meeting").endswith("end\n"), "rank 0 has written the file")
        dead.process.kill()
        dead.end()
        self.assertTrue(self.exists("meeting"))
        one = Rank("--init-method", method, "--rank", 1, "--world-size", 2)
        zero = Rank("--init-method", method, "--rank", 0, "--world-size", 2)
        self.assert_world(self.all_lines([one, zero]), 2)

    def test_two_jobs_do_not_mix_at_one_file(self):
        method = f"file://{self.path('meeting')}"
        first = Rank("--init-method", method, "--rank", 0, "--world-size", 2)
        wait_for(lambda: self.exists("meeting") and self.read("meeting").endswith("end\n"), "rank 0 has written the file")
        second = self.error_of(Rank("--init-method", method, "--rank", 0, "--world-size", 2))
        self.assertIn(f"is in use by pid {first.process.pid} on {socket.gethostname()}", second)
        one = Rank("--init-method", method, "--rank", 1, "--world-size", 2)
        self.assert_world(self.all_lines([first, one]), 2)

    def test_a_store_open_to_other_machines_is_reported_once(self):
        for method, said in (f"file://{self.path('meeting')}", 1), (f"tcp://127.0.0.1:{free_port()}", 0):
            ranks = self.by_hand(method, 2, "--cycles", 2)
            errors = "".join(rank.process.communicate(timeout=LIMIT_S)[1] for rank in ranks)
            self.assertEqual(errors.count("muster: rank 0 serves the job's store to everybody who can reach port "), said, errors)

    def test_a_foreign_meeting_file_is_an_error_on_all_ranks_at_once(self):
        path = self.write("meeting", "somebody's notes\n")
        # The ranks' time-out is half an hour.
        for rank in self.by_hand(f"file://{path}", 3):
            self.assertEqual(self.error_of(rank), f"error environment []: init_process_group: {path} is not a meeting file: "
                             "remove it, or choose another path")
        self.assertEqual(self.read("meeting"), "somebody's notes\n")

    def test_a_timeout_names_the_missing_ranks(self):
        method = f"tcp://127.0.0.1:{free_port()}"
        ranks = [Rank("--init-method", method, "--rank", r, "--world-size", 4, "--timeout-ms", 1500) for r in (0, 2)]
        for rank in ranks:
            self.assertRegex(self.error_of(rank),
                             r"^error timeout \[1,3\]: init_process_group: ranks 1 and 3 of 4 did not join within 1\.5 s: ")

    def test_waiting_ranks_name_the_missing_after_10_s(self):
        method, nobody = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        file = f"file://{self.path('meeting')}"
        options = ["--world-size", 3, "--timeout-ms", 12_000]
        waiting = [Rank("--init-method", method, "--rank", r, *options) for r in (0, 2)]
        lonely = Rank("--init-method", nobody, "--rank", 1, *options)
        seeking = Rank("--init-method", file, "--rank", 1, *options)
        said = [rank.process.communicate(timeout=LIMIT_S)[1] for rank in (*waiting, lonely, seeking)]
        # One of the two ranks that have met prints it.
        self.assertRegex(said[0] + said[1], r"^muster: rank [02] has waited 10 s for rank 1 of 3: check that it is running, "
                                            r"with the same meeting point and WORLD_SIZE\n$")
        self.assertRegex(said[2], rf"^muster: rank 1 has waited 10 s for rank 0 at {nobody[6:]}, which it cannot reach "
                                  r"\(.*refused.*\): check that it is running, .*\n$")
        self.assertRegex(said[3], r"^muster: rank 1 has waited 10 s for rank 0 to join at the meeting file .*/meeting; "
                                  r"check that it is running, .*\n$")

    def test_two_processes_with_one_rank_are_named(self):
        method = f"tcp://127.0.0.1:{free_port()}"
        options = ["--init-method", method, "--world-size", 3]
        zero = Rank("--rank", 0, *options)
        twins = [Rank("--rank", 1, *options) for _ in range(2)]
        wait_for(lambda: any(twin.process.poll() is not None for twin in twins), "one of the twins has been refused")
        refused = [twin for twin in twins if twin.process.poll() is not None]
        pids = [str(twin.process.pid) for twin in twins]
        error = self.error_of(refused[0])
        self.assertRegex(error, rf"rank 1 \(.*, pid ({'|'.join(pids)})\) has joined this job already and is still there")
        two = Rank("--rank", 2, *options)
        kept = [twin for twin in twins if twin is not refused[0]]
        self.assert_world(self.all_lines([zero, kept[0], two]), 3)

    def test_different_world_sizes_are_an_error_on_all_ranks(self):
        method = f"tcp://127.0.0.1:{free_port()}"
        ranks = [Rank("--init-method", method, "--rank", r, "--world-size", n) for r, n in ((0, 3), (1, 4))]
        for rank in ranks:
            self.assertIn("WORLD_SIZE must be the same for all", self.error_of(rank))

    def test_errors_name_the_variable(self):
        contract = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        cases = [
            ({"WORLD_SIZE": None}, "WORLD_SIZE is not set"),
            ({"RANK": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
            ({"MASTER_PORT": "x"}, "MASTER_PORT=x is not a number from 1 to 65535"),
            ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK=3 is not below LOCAL_WORLD_SIZE=2"),
            ({"GLOO_SOCKET_IFNAME": "nosuch0"}, "GLOO_SOCKET_IFNAME=nosuch0: "),
        ]
        for change, expected in cases:
            env = {name: value for name, value in {**contract, **change}.items() if value is not None}
            self.assertIn(f"error environment []: init_process_group: {expected}", self.error_of(Rank(env=env)))

    def test_a_taken_port_is_named_by_rank_0(self):
        server, port = listening()
        with server:
            rank = Rank("--init-method", f"tcp://127.0.0.1:{port}", "--rank", 0, "--world-size", 2)
            self.assertRegex(self.error_of(rank), rf"^error environment \[\]: .*127\.0\.0\.1:{port}")

    def test_a_rank_that_runs_out_of_descriptors_says_so(self):
        """Descriptors run out in the store, the meeting, the watch or the group."""
        def limited(count):
            return lambda argv, env, **options: subprocess.Popen(
                ["sh", "-c", f'ulimit -n {count}; exec "$@"', "sh", *argv], env=dict(CLEAN, **(env or {})), **options)
        said = {}
        for count in range(5, 40):
            options = ["--init-method", f"tcp://127.0.0.1:{free_port()}", "--world-size", 2, "--timeout-ms", 1500]
            zero = Rank("--rank", 0, *options, start=limited(count))
            one = Rank("--rank", 1, *options)
            code, said[count] = zero.end()
            one.end()
            self.assertIn(code, (0, 3), said)
            if code == 3:
                self.assertRegex(said[count], r"^error (system|environment|timeout) .*init_process_group: ")
            # The store accepts no more connections: a group's members do not know why one is missing.
            if code == 3 and "set-up of group world: rank 1" not in said[count]:
                self.assertRegex(said[count], r"Too many open files|no descriptor left")
        print(f"{sum('error' in text for text in said.values())} of {len(said)} limits were too low")
        self.assertTrue(said[39].startswith("cycle="), said)

    def test_the_port_is_free_when_the_job_is_over(self):
        port = free_port()
        for _ in range(3):
            self.assert_world(self.all_lines(self.by_hand(f"tcp://127.0.0.1:{port}", 2)), 2)


class ForkTest(JoiningTest):
    def test_a_forked_child_is_refused_with_the_reason(self):
        code, out = Rank("--fork", "--cycles", 2).end()
        self.assertEqual(code, 0, out)
        said = [line for line in out.splitlines() if not line.startswith("cycle=")]
        self.assertEqual(len(said), 12, out)
        for line in said:
            self.assertRegex(line, r"^(inside|afterwards) (not initialized$|(rank\(\)|init): forked: .*child of fork\(\))")


class SpawnTest(JoiningTest):
    def test_spawned_ranks_join_without_options(self):
        code, out = Rank("--spawn", 4, "--cycles", 3).end()
        self.assertEqual(code, 0, out)
        self.assert_world(lines_of(out), 4, cycles=3, local_rank=lambda line: line.rank, local_world_size=4)
        self.assertIn("spawned: 4 ranks ended well", out)

    def test_a_rank_that_dies_is_named_by_all(self):
        code, out = Rank("--spawn", 3, "--crash", 1).end()
        self.assertEqual(code, 137, out)
        self.assertRegex(out, r"spawned: rank 1 \(pid \d+\) was killed by signal 9 \(Killed\)")
        errors = [line for line in out.splitlines() if line.startswith("error ")]
        self.assertEqual(len(errors), 2, out)
        for line in errors:
            self.assertRegex(line, r"^error peer_failed \[1\]: barrier( \d+)? of group world: rank 1 ")

    def test_ranks_do_not_outlive_their_parent(self):
        parent = Rank("--spawn", 3, "--init-method", f"file://{self.path('meeting')}", "--rank", 0, "--world-size", 2)
        ranks = wait_for(lambda: len(children_of(parent.process.pid)) == 3 and children_of(parent.process.pid),
                         "the ranks were started")
        parent.process.send_signal(signal.SIGKILL)
        parent.end()
        wait_for(lambda: all(is_gone(pid) for pid in ranks), "the ranks are gone")

    def test_a_rank_of_a_launcher_may_spawn_ranks_of_its_own(self):
        code, out, err = run("--nproc-per-node", 2, "--no-python", PROGRAM, "--spawn", 2)
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(line.rank for line in lines_of(out)), [0, 0, 1, 1])


class TwoMachinesTest(JoiningTest):
    def setUp(self):
        super().setUp()
        if netns.missing():
            self.skipTest(netns.missing())

    def cluster(self, n, **options):
        cluster = netns.Cluster(n, **options)
        cluster.__enter__()
        self.addCleanup(cluster.down)
        return cluster

    def ranks_on(self, cluster, method, nodes, *args, env=None):
        """Starts one rank on each of `nodes`, in their order."""
        def starter(node):
            return lambda argv, env, **options: cluster.run(node, argv, env=env, **options)
        return [Rank("--init-method", method, "--rank", rank, "--world-size", len(nodes), *args, env=env,
                     start=starter(node)) for rank, node in enumerate(nodes)]

    @long
    def test_two_namespaces_are_two_nodes(self):
        cluster = self.cluster(2)
        lines = self.all_lines(self.ranks_on(cluster, f"tcp://{cluster.address(1)}:29500", [1, 1, 2, 2]))
        self.assert_world(lines, 4, nodes=2, local_rank=lambda line: line.rank % 2, local_world_size=2,
                          node_rank=lambda line: line.rank // 2)
        self.assertEqual(lines[0].addresses, [cluster.address(n) for n in (1, 1, 2, 2)])

    def test_ranks_join_over_ipv6(self):
        cluster = self.cluster(2, ipv6=True)
        lines = self.all_lines(self.ranks_on(cluster, f"tcp://[{cluster.address(1)}]:29500", [1, 2]))
        self.assert_world(lines, 2, nodes=2)
        self.assertEqual(lines[0].addresses, [cluster.address(1), cluster.address(2)])

    def test_a_host_whose_own_name_is_loopback_gives_its_real_address(self):
        cluster = self.cluster(2)
        cluster.own_name_is_loopback(1)
        lines = self.all_lines(self.ranks_on(cluster, f"tcp://{cluster.name(1)}:29500", [1, 2]))
        self.assert_world(lines, 2, nodes=2)
        self.assertEqual(lines[0].addresses, [cluster.address(1), cluster.address(2)])

    @long
    def test_ranks_join_by_a_file_that_both_machines_see(self):
        cluster = self.cluster(2)
        lines = self.all_lines(self.ranks_on(cluster, f"file://{self.path('meeting')}", [1, 2, 2], "--cycles", 3))
        self.assert_world(lines, 3, cycles=3, nodes=2)
        self.assertEqual(lines[0].addresses, [cluster.address(n) for n in (1, 2, 2)])

    def test_the_named_interface_is_given_to_the_others(self):
        cluster = self.cluster(2, two_nics=True)
        ranks = self.ranks_on(cluster, f"file://{self.path('meeting')}", [1, 2], env={"GLOO_SOCKET_IFNAME": "eth1"})
        lines = self.all_lines(ranks)
        self.assert_world(lines, 2, nodes=2)
        self.assertEqual(lines[0].addresses, [cluster.address(1), cluster.address(2)])

    def test_a_host_that_is_cut_off_is_named(self):
        cluster = self.cluster(2)
        cluster.cut(1)
        began = time.monotonic()
        _, two = self.ranks_on(cluster, f"tcp://{cluster.address(1)}:29500", [1, 2], "--timeout-ms", 2000)
        self.assertRegex(self.error_of(two), r"^error timeout \[0\]: init_process_group: rank 0 did not join: ")
        self.assertLess(time.monotonic() - began, within(2))

    def test_ranks_of_muster_on_two_machines_join(self):
        cluster = self.cluster(2)
        launchers = [cluster.run(n, [os.environ["MUSTER"], "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend",
                                     "c10d", "--rdzv-endpoint", f"{cluster.address(1)}:29400", "--no-python", PROGRAM,
                                     "--cycles", "2"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for n in (1, 2)]
        outs = [launcher.communicate(timeout=60) for launcher in launchers]
        self.assertEqual([launcher.returncode for launcher in launchers], [0, 0], outs)
        lines = lines_of("".join(out for out, _ in outs))
        self.assert_world(lines, 4, cycles=2, nodes=2, local_world_size=2, node_rank=lambda line: line.rank // 2)

    @long
    def test_two_musters_form_one_world_by_address(self):
        """Each muster knows only its own host; the ranks form one world of both."""
        cluster = self.cluster(2)
        method = f"tcp://{cluster.address(1)}:29600"
        script = 'exec "$0" --init-method "$1" --rank $(($2 + LOCAL_RANK)) --world-size 4'
        launchers = [cluster.run(n, [os.environ["MUSTER"], "--nproc-per-node", "2", "--no-python", "sh", "-c", script,
                                     PROGRAM, method, str(2 * n - 2)],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for n in (1, 2)]
        outs = [launcher.communicate(timeout=60) for launcher in launchers]
        self.assertEqual([launcher.returncode for launcher in launchers], [0, 0], outs)
        lines = lines_of("".join(out for out, _ in outs))
        self.assert_world(lines, 4, nodes=2, local_rank=lambda line: line.rank % 2, local_world_size=2,
                          node_rank=lambda line: line.rank // 2)


if __name__ == "__main__":
    require_programs(MUSTER_WORKER_INIT=PROGRAM)
    main()

"""The examples of the worker library do what their first lines promise, and the training helpers agree on every rank.

Each example runs under the real launcher; its output is compared with values computed here. A second program,
worker_training, uses the helpers in ways that no example shows.
"""
import itertools
import os
import re
import shutil
import signal
import subprocess
import unittest

from harness import LIMIT_S, Job, LiveTest, long, main, run, wait_for
from ports import free_port

EXAMPLES = os.environ["MUSTER_EXAMPLES"]
TRAINING = os.environ["MUSTER_WORKER_TRAINING"]


def example(name):
    return os.path.join(EXAMPLES, name)


def job(ranks, *command, options=(), limit_s=LIMIT_S):
    return run("--nproc-per-node", ranks, *options, *command, limit_s=limit_s)


class ExampleTest(LiveTest):
    def well(self, ranks, *command, options=(), limit_s=LIMIT_S):
        """Returns the lines of a job that must succeed."""
        code, out, err = job(ranks, *command, options=options, limit_s=limit_s)
        self.assertEqual(code, 0, out + err)
        return out.splitlines()

    def by_hand(self, commands, env=None):
        """Starts processes without a launcher. Returns their outputs, sorted by line."""
        full = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")} | (env or {})
        started = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=full)
                   for c in commands]
        done = [process.communicate(timeout=LIMIT_S)[0] for process in started]
        self.assertEqual([process.returncode for process in started], [0] * len(started), done)
        return sorted("".join(done).splitlines())


class Joining(ExampleTest):
    def test_ranks_of_a_launcher_join(self):
        lines = self.well(3, example("ranks"))
        self.assertEqual(sorted(lines), ["rank 0 of 3: local rank 0 of 3 on node 0, attempt 0",
                                         "rank 1 of 3: local rank 1 of 3 on node 0, attempt 0",
                                         "rank 2 of 3: local rank 2 of 3 on node 0, attempt 0",
                                         "the ranks add up to 3"])

    def test_a_program_by_itself_is_a_world_of_one(self):
        self.assertEqual(self.by_hand([[example("ranks")]]),
                         ["rank 0 of 1: local rank 0 of 1 on node 0, attempt 0", "the ranks add up to 0"])

    @long
    def test_ranks_of_mpirun_join(self):
        if not shutil.which("mpirun"):
            self.skipTest("there is no mpirun (Debian: openmpi-bin)")
        lines = self.by_hand([["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", example("ranks")]])
        self.assertIn("the ranks add up to 3", lines)
        self.assertEqual(len([line for line in lines if re.match(r"rank \d of 3: local rank \d of 3 ", line)]), 3, lines)

    def join(self, url, ranks):
        lines = self.by_hand([[example("join"), url, str(rank), str(ranks)] for rank in range(ranks)])
        if url.startswith("file:"):
            self.assertRegex(lines.pop(0), "^muster: rank 0 serves the job's store to everybody who can reach port [0-9]+ ")
        self.assertEqual(lines, [f"rank {r} of {ranks}: rank 0 waited for us at {url}" for r in range(ranks)])

    def test_ranks_join_by_an_address(self):
        port = free_port()
        for ranks in (3, 2):  # One after the other at the same address.
            self.join(f"tcp://127.0.0.1:{port}", ranks)

    def test_ranks_join_by_a_file_that_an_earlier_job_has_used(self):
        for ranks in (3, 2, 1):
            self.join("file://" + self.path("meeting"), ranks)

    def test_wrong_arguments_are_named(self):
        code, _, err = job(1, example("join"), "carrier-pigeon://roof", "0", "1")
        self.assertEqual(code, 1)
        self.assertIn("carrier-pigeon", err)

    def test_spawn_joins_ranks_of_one_program(self):
        self.assertEqual(self.by_hand([[example("spawn")]]), [f"rank {r}: the ranks add up to 6" for r in range(4)])


class Operations(ExampleTest):
    def test_barriers_hold_all_ranks(self):
        lines = self.well(4, example("barrier"))
        self.assertEqual([lines[0], lines[9]], ["without a barrier:", "with a barrier:"])
        for first in (1, 10):
            events = [re.fullmatch(r" +(\d+) ms  rank (\d) (arrives|leaves)", line) for line in lines[first:first + 8]]
            times = {(event[3], int(event[2])): int(event[1]) for event in events}
            self.assertEqual(len(times), 8, lines)
            for rank in range(4):
                self.assertGreaterEqual(times["arrives", rank], 100 * rank, lines)
            if first == 1:
                self.assertEqual((events[0][3], events[1][3]), ("arrives", "leaves"))  # Rank 0 does both before others arrive.
                self.assertLess(times["leaves", 0], times["arrives", 3])
            else:
                # Each clock starts when its rank leaves a first barrier, so they may differ by the time of a wake-up.
                self.assertGreater(min(times["leaves", rank] for rank in range(4)), 300 - 50, lines)
        lines = lines[18 - 4:]
        self.assertEqual(lines[4], "two barriers in the code, one in the job")
        rank_3 = r"rank 3 \(\S+, pid \d+\)"
        self.assertRegex(lines[5], f"^monitored_barrier 1 of group careless: {rank_3} did not arrive")
        first = r"(rank [12] \(\S+, pid \d+\) gave up on the group: )?"  # Present if that rank was a little earlier.
        # The wording depends on whether it is known in time that rank 3 waits for the others there.
        self.assertRegex(lines[6], f"^barrier 1 of group careless: {first}{rank_3} (has not called it within 500 ms, but is in "
                                   r"barrier \d+ of group world;|is in barrier \d+ of group world; the ranks 0, 1, 2, 3 wait for "
                                   "each other in a circle:) all must make their calls in the same order, whatever the group$")
        self.assertEqual(len(lines), 7)

    def test_groups_compute_and_refuse_outsiders(self):
        lines = self.well(4, example("groups"))
        self.assertEqual(lines[:13], [
            "rank 0 is rank 0 of even; its sum of ranks is 2",
            "rank 1 is rank 0 of odd; its sum of ranks is 4",
            "rank 2 is rank 1 of even; its sum of ranks is 2",
            "rank 3 is rank 1 of odd; its sum of ranks is 4",
            "rank 0: row sum 1, place in its column, from below, 1",
            "rank 1: row sum 1, place in its column, from below, 1",
            "rank 2: row sum 5, place in its column, from below, 0",
            "rank 3: row sum 5, place in its column, from below, 0",
            "rank 0 heard 2",
            "rank 1 heard 3",
            "rank 2 heard 2",
            "rank 3 heard 3",
            "rank 0 is alone in its group",
        ])
        for rank, line in enumerate(lines[13:], start=1):
            self.assertRegex(line, rf"^barrier of group of rank 0: rank {rank} \(.*\) is not a member")
        self.assertEqual(len(lines), 16)

    @long
    def test_groups_work_in_worlds_of_1_to_5(self):
        for ranks in (1, 2, 3, 5):
            self.well(ranks, example("groups"))

    def test_collectives_match_their_definitions_on_1_to_5_ranks(self):
        for n in range(1, 6):
            self.assertEqual(tour(self.well(n, example("collectives"))), expected_tour(n), f"{n} ranks")


def tour(lines):
    """Returns {operation: what each rank holds} from the printed lines."""
    table = {}
    for line in lines:
        name, *ranks = line.split("|")
        table[name.strip()] = [[] if r.strip() == "-" else [int(x) for x in r.split()] for r in ranks]
    return table


def expected_tour(n):
    """Returns the same, computed from the definitions of the operations."""
    def mine(rank, count):
        return [10 * rank + i for i in range(count)]

    def at_root(values):
        return [values] + [[] for _ in range(n - 1)]

    def summed(count):
        return [sum(column) for column in zip(*(mine(r, count) for r in range(n)))]

    counts = list(range(1, n + 1))
    total = sum(counts)
    starts = list(itertools.accumulate(counts, initial=0))
    parts = [(starts[r], starts[r + 1]) for r in range(n)]
    ragged = [x for r in range(n) for x in mine(r, counts[r])]
    return {
        "broadcast": [mine(n - 1, 2)] * n,
        "reduce": at_root(summed(2)),
        "gather": at_root([10 * r for r in range(n)]),
        "scatter": [[r] for r in range(n)],
        "all_reduce": [mine(n - 1, 2)] * n,
        "all_gather": [[10 * r for r in range(n)]] * n,
        "reduce_scatter": [[x] for x in summed(n)],
        "all_to_all": [[10 * s + r for s in range(n)] for r in range(n)],
        "gather_v": at_root(ragged),
        "all_gather_v": [ragged] * n,
        "scatter_v": [mine(0, total)[a:b] for a, b in parts],
        "reduce_scatter_v": [summed(total)[a:b] for a, b in parts],
        "all_to_all_v": [[x for s in range(n) for x in mine(s, total)[a:b]] for a, b in parts],
        "send, recv": [[n - 1]] + [[r] for r in range(1, n)],
        "isend, irecv": [[10 * ((r - 1) % n)] for r in range(n)],
        "async": [[sum(10 * r for r in range(n))]] * n,
    }


class ZeroFirst(ExampleTest):
    def test_one_rank_makes_the_file_and_all_read_it(self):
        path = self.path("words.txt")
        lines = self.well(4, example("zero_first"), path)
        read = [f"rank {r} read: attention is all you need" for r in range(4)]
        self.assertEqual(sorted(lines), [f"rank 0 makes {path}", *read])
        self.assertNotIn(f"rank 0 makes {path}", self.well(2, example("zero_first"), path))

    def test_all_ranks_learn_that_the_first_failed(self):
        path = self.path("no/folder/words.txt")
        code, out, err = job(3, example("zero_first"), path)
        self.assertEqual(code, 1)
        self.assertEqual(out, f"rank 0 makes {path}\n")
        told = f"local_zero_first: the block failed on rank 0, so it was not run here: cannot write {path}"
        lines = err.splitlines()
        self.assertEqual([lines.count(told), lines.count(f"cannot write {path}")], [2, 1], err)

    def said(self, ranks, *arguments):
        """Returns what each rank printed, in its order."""
        said = {rank: [] for rank in range(ranks)}
        for line in self.well(ranks, TRAINING, *arguments):
            rank, words = line.split(": ", 1)
            said[int(rank)].append(words)
        return said

    def test_the_others_do_not_run_if_the_first_rank_failed(self):
        told = "peer_failed zero_first: the block failed on rank 0, so it was not run here: no network"
        self.assertEqual(self.said(3, "zero_first", "0"),
                         {0: ["ran", "own no network", "after"], 1: [told, "after"], 2: [told, "after"]})

    def test_a_later_ranks_failure_stays_its_own(self):
        well = ["ran", "well", "after"]
        self.assertEqual(self.said(3, "zero_first", "1"), {0: well, 1: ["ran", "own no network", "after"], 2: well})
        self.assertEqual(self.said(2, "local_zero_first", "-"), {0: well, 1: well})


class Sampler(ExampleTest):
    def test_ten_samples_are_split_among_the_ranks(self):
        self.assertEqual(self.well(4, example("sampler")), [
            "epoch 0 rank 0: padded 5 1 8; dropped 5 1", "epoch 0 rank 1: padded 0 7 2; dropped 0 7",
            "epoch 0 rank 2: padded 3 9 5; dropped 3 9", "epoch 0 rank 3: padded 4 6 0; dropped 4 6",
            "epoch 1 rank 0: padded 3 2 8; dropped 3 2", "epoch 1 rank 1: padded 5 6 9; dropped 5 6",
            "epoch 1 rank 2: padded 0 4 3; dropped 0 4", "epoch 1 rank 3: padded 1 7 5; dropped 1 7",
        ])


class Checkpoint(ExampleTest):
    def walk(self, path, *arguments, ranks=4):
        return self.well(ranks, example("checkpoint"), path, *arguments, options=("--max-restarts", 3))

    def test_a_crash_changes_nothing_in_the_end(self):
        undisturbed = self.walk(self.path("a.ckpt"))
        self.assertEqual(undisturbed[0], "starting at step 0")
        crashed = self.walk(self.path("b.ckpt"), "--crash-at", 70)
        self.assertEqual(crashed, ["starting at step 0", "rank 1 kills itself in step 70", "starting at step 60",
                                   undisturbed[-1]])
        with open(self.path("a.ckpt"), "rb") as a, open(self.path("b.ckpt"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["a.ckpt", "b.ckpt"])

    def test_a_job_stops_at_a_common_step_on_sigterm_and_goes_on_later(self):
        undisturbed = self.walk(self.path("a.ckpt"))
        path = self.path("b.ckpt")
        with Job("--nproc-per-node", 4, example("checkpoint"), path) as told:
            wait_for(lambda: os.path.exists(path), "a first checkpoint")
            told.signal(signal.SIGTERM)
            told.wait()
            stopped = re.fullmatch(r"starting at step 0\nstopped at step (\d+)\n", told.stdout())
            self.assertTrue(stopped, told.stdout() + told.stderr())
        self.assertEqual(self.walk(path), [f"starting at step {stopped[1]}", undisturbed[-1]])

    def test_a_missing_folder_is_every_ranks_error(self):
        path = self.path("none/a.ckpt")
        code, _, err = job(3, example("checkpoint"), path)
        self.assertEqual(code, 1)
        line = rf"save_checkpoint of group world on rank 0: cannot create {path}\.tmp-[0-9a-f]+: No such file or directory"
        self.assertEqual(len(re.findall("^" + line, err, re.MULTILINE)), 3, err)


class Stopping(ExampleTest):
    def test_all_ranks_stop_after_the_same_step(self):
        for way, who in (("stop", 0), ("stop", 2), ("request", 1)):
            lines = self.well(3, TRAINING, way, who)
            steps = {int(re.fullmatch(r"\d: stopped after (\d+)", line)[1]) for line in lines}
            self.assertEqual((len(lines), len(steps)), (3, 1), lines)
            self.assertGreaterEqual(min(steps), 5)


class Buckets(ExampleTest):
    def test_buckets_average_everything_on_every_rank(self):
        for ranks in (1, 2, 3, 4):
            lines = self.well(ranks, TRAINING, "buckets", limit_s=120)
            self.assertEqual(sorted(lines), [f"{r}: 18 steps, 0 wrong elements" for r in range(ranks)])


ROW = re.compile(r" *(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([0-9a-f]{16})")


class Digits(ExampleTest):
    def train(self, ranks, *arguments, options=()):
        lines = self.well(ranks, example("digits"), *arguments, options=options, limit_s=120)
        rows = [match for match in map(ROW.fullmatch, lines) if match]
        self.assertEqual([int(row[1]) for row in rows], list(range(ranks)), lines)
        final = re.fullmatch(r"final loss (\S+) accuracy (\S+)", lines[-1])
        return {"lines": lines, "loss": float(final[1]), "accuracy": float(final[2]), "final": lines[-1],
                "compute": [float(row[2]) for row in rows], "aggregation": [float(row[3]) for row in rows],
                "total": [float(row[4]) for row in rows], "parameters": [row[5] for row in rows]}

    def test_reaches_the_accuracy_of_a_single_process(self):
        alone = self.train(1)
        self.assertGreater(alone["accuracy"], 0.93)
        for ranks in (2, 4):
            together = self.train(ranks)
            # The same images make up each step, so only the order of the additions differs.
            self.assertAlmostEqual(together["accuracy"], alone["accuracy"], delta=0.01)
            self.assertAlmostEqual(together["loss"], alone["loss"], delta=0.01)
            print(f"{ranks} ranks: {together['final']}; alone: {alone['final']}")

    def test_gives_every_rank_the_same_bits(self):
        for ranks in (2, 3, 4):
            self.assertEqual(len(set(self.train(ranks, "--epochs", 2)["parameters"])), 1)

    @long
    def test_reduce_and_broadcast_give_the_same_as_all_reduce(self):
        one = self.train(4, "--epochs", 3)
        other = self.train(4, "--epochs", 3, "--strategy", "reduce_broadcast")
        self.assertIn("reduce_broadcast, 4 ranks, 66 steps", other["lines"])
        self.assertEqual(len(set(other["parameters"])), 1)
        self.assertAlmostEqual(other["loss"], one["loss"], delta=0.01)

    def test_shows_a_straggler_in_the_others_waiting(self):
        for strategy in ("all_reduce", "reduce_broadcast"):
            times = self.train(4, "--straggler", "2:100", "--epochs", 1, "--strategy", strategy)
            others = [times["aggregation"][rank] for rank in (0, 1, 3)]
            self.assertGreater(min(others), 50, times["lines"])  # Less than 100 if they are late themselves.
            self.assertGreater(times["compute"][2], 100, times["lines"])
            self.assertLess(times["aggregation"][2], min(others), times["lines"])

    def test_a_straggler_delays_the_others_until_its_gradients_are_ready(self):
        """Before its gradients are ready the others wait for it in every step; after that they have one step in hand."""
        for phase, computes in (("start", True), ("backward", True), ("aggregate", False)):
            times = self.train(4, "--straggler", "2:50", "--straggler-at", phase, "--epochs", 1)
            self.assertGreater(times["compute" if computes else "aggregation"][2], 50, times["lines"])
            self.assertEqual(times["compute"][2] > times["aggregation"][2], computes, times["lines"])
            for rank in range(4):
                # Half of it, for ranks that do not begin at the same moment.
                self.assertGreater(times["total"][rank], 22 * 50 / 2, times["lines"])

    def test_shows_the_times_of_one_rank_alone(self):
        alone, = [line.split() for line in self.train(2, "--epochs", 1)["lines"] if line.startswith("alone")]
        self.assertGreater(float(alone[1]), 0)
        self.assertEqual(alone[2], "0.000")

    def test_a_crash_changes_nothing_in_the_end(self):
        undisturbed = self.train(4, "--checkpoint", self.path("a.ckpt"))
        crashed = self.train(4, "--checkpoint", self.path("b.ckpt"), "--crash-at", "1:5", options=("--max-restarts", 1))
        starts = [line for line in crashed["lines"] if line.startswith("starting")]
        self.assertEqual(starts, ["starting at epoch 0 of 10", "starting at epoch 5 of 10"])
        self.assertEqual((crashed["final"], crashed["parameters"]), (undisturbed["final"], undisturbed["parameters"]))

    def test_wrong_options_are_named(self):
        for arguments in (["--colour", "red"], ["--epochs"], ["--straggler", "2"], ["--strategy", "gossip"],
                          ["--straggler-at", "lunch"]):
            code, _, err = job(1, example("digits"), *arguments)
            self.assertEqual(code, 1)
            self.assertIn(arguments[0] if arguments[0] != "--straggler" else "2 is not RANK:NUMBER", err)


class Cuda(ExampleTest):
    def test_averages_on_gpus_or_says_what_is_missing(self):
        lines = self.well(1, example("cuda"), limit_s=120)
        self.assertEqual(len(lines), 1, lines)
        if lines[0].startswith("nothing to do on a GPU here: "):
            self.skipTest(lines[0])
        self.assertEqual(lines, ["rank 0: GPU 0 holds the average 0"])


class EveryExample(unittest.TestCase):
    def test_every_example_is_in_the_table_and_was_built(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
        names = sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".cc"))
        with open(os.path.join(folder, "README.md"), encoding="utf-8") as f:
            table = f.read()
        for name in names:
            self.assertTrue(os.access(example(name), os.X_OK), f"{name} was not built")
            self.assertIn(f"[{name}.cc]({name}.cc)", table)
        print(f"{len(names)} examples: {' '.join(names)}")


if __name__ == "__main__":
    main()

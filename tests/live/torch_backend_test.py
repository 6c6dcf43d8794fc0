"""The backend `muster` of torch.distributed, as a program gets it by installing the wheel: nothing else is imported.

PyTorch comes from $MUSTER_TORCH_VENV; the package from the wheel in $MUSTER_DIST, or from the folder $MUSTER_PACKAGE.
Ranks are started without a launcher, unless it is to explain something.
"""
import ast
import contextlib
import functools
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from harness import LIMIT_S, LONG, Job, LiveTest, install_wheel, long, require_muster, run_tests, within
from ports import free_port
import torch_nursery

SKIPPED = 77
TOLD_MS = 1000  # The promised bound.
HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "programs")
FEATURES = os.path.join(PROGRAMS, "torch_features.py")
DIGITS = os.path.join(HERE, "..", "..", "examples", "digits_ddp.py")
PYTHON = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "python")
FOUND = glob.glob(f"{os.path.dirname(os.path.dirname(PYTHON))}/lib/python3*/site-packages/torch-2.*.dist-info")
MINOR = int(re.search(r"torch-2\.(\d+)", FOUND[0])[1]) if FOUND else 0
IS_BACKEND = MINOR >= 14  # Earlier PyTorch refuses monitored_barrier() to all backends but gloo.
COUNTS = (2, 3) if LONG else (2,)
HAS_FSDP = MINOR >= 6  # FSDP2 needs CUDA in earlier PyTorch.
# One of each kind of PyTorch's own tests. programs/torch_distributed_tests.py without names runs all of them.
SAMPLE = ("test_accumulate_gradients_no_sync_allreduce_with_then_hook", "test_all_gather_coalesced_full_group",
          "test_all_gather_object_subgroup", "test_all_reduce_coalesced_full_group_max", "test_all_to_all_complex",
          "test_all_to_all_single_unequal_split_full_group", "test_barrier_timeout_full_group", "test_barrier_timeout_global",
          "test_batch_isend_irecv_gloo_tags", "test_broadcast_full_group", "test_ddp_create_graph", "test_destroy_group",
          "test_gather_object", "test_get_future", "test_isend", "test_monitored_barrier_gloo_subgroup", "test_reduce_product",
          "test_scatter_object_list", "test_send_recv_any_source", "test_sparse_all_reduce_sum")
# docs/torch-backend.md explains them.
EXCEPTIONS = {"test_ddp_logging_data_cpu", "test_monitored_barrier_gloo", "test_monitored_barrier_gloo_rank_0_timeout"}


ENTRY_POINTS = """import importlib.metadata, json, sys
import torch
loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "muster")
with open("/proc/self/maps") as maps:
    mapped = "libmuster" in maps.read()
found = [entry for group in ("torch.backends", "torch.distributed.backends")
         for entry in importlib.metadata.entry_points(group=group, name="muster")]
for entry in found:
    entry.load()()
print(json.dumps({"groups": [entry.group for entry in found], "loaded": loaded, "mapped": mapped,
                  "registered": "MUSTER" in torch.distributed.Backend._plugins}))
"""
HEAD = """import os, sys, threading, signal, time, torch, torch.distributed as dist
{before}
dist.init_process_group("muster")
rank, tensor = dist.get_rank(), torch.ones(4)
dist.all_reduce(tensor)
"""
TRY = """try: dist.all_reduce(tensor)
except Exception as error: print(type(error).__name__, error)
"""
# Rank 1 is a child, and does not destroy its group.
CHILD = """import os, torch, torch.distributed as dist, torch.multiprocessing
def work(_):
    dist.init_process_group("muster")
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    if dist.get_rank() == 0:
        try: dist.all_reduce(tensor)
        except Exception as error: print(type(error).__name__, error)
    elif os.environ["WHAT"] == "raise":
        raise ValueError("mine")
if __name__ == "__main__":
    if os.environ["RANK"] == "0":
        work(0)
    else:
        torch.multiprocessing.start_processes(work, nprocs=1, start_method=os.environ["HOW"])
"""
# Forms a world at each of the ports.
AGAIN = """import datetime, os, torch, torch.distributed as dist
for port in os.environ["PORTS"].split():
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("muster", timeout=datetime.timedelta(seconds=60))
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    print(tensor.item(), flush=True)
    dist.destroy_process_group()
"""


class Rank:
    """A process with its output in files, so that it never blocks on us. The end of the block ends it."""

    def __init__(self, command, env, folder):
        self.files = [tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")]
        self.code, self.out, self.err = None, "", ""
        self.process = subprocess.Popen([PYTHON, *command], env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.files[0],
                                        stderr=self.files[1], start_new_session=True)

    def wait(self, deadline):
        """`code` stays None if the process has not ended by then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.code = self.process.wait(max(0, deadline - time.monotonic()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # Kills its children too.
            self.process.wait()
        self.out, self.err = (os.pread(file.fileno(), 1 << 26, 0).decode(errors="replace") for file in self.files)
        for file in self.files:
            file.close()

    def __str__(self):
        return f"---- {self.process.args} ended with {self.code}\n{self.out}{self.err[-5000:]}"


def setUpModule():
    package = os.environ.get("MUSTER_PACKAGE") or install_wheel(unittest.addModuleCleanup, sys.executable)
    Backend.env = {**{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PET_"))},
                   "PYTHONPATH": package, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


@functools.cache
def nursery():
    return unittest.enterModuleContext(torch_nursery.running(PYTHON, Backend.env))


class Backend(LiveTest):
    def forked(self, program, *arguments):
        """Returns the command of a rank that has PyTorch at once, for programs that do not end as an interpreter does."""
        return nursery()("script", program, *arguments)[2:]

    def ranks(self, count, *command, fine=True, limit_s=LIMIT_S, **more):
        """Runs the program on `count` ranks. All must succeed if `fine`."""
        port = str(free_port())
        return self.together([{"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_PORT": port, **more} for rank in range(count)],
                             *command, fine=fine, limit_s=limit_s)

    def together(self, differences, *command, fine=True, limit_s=LIMIT_S):
        """Runs the program once for each environment, all at the same time, to their ends."""
        deadline = time.monotonic() + limit_s
        with contextlib.ExitStack() as running:
            ranks = []
            for env in differences:
                env = {**self.env, "MASTER_ADDR": "127.0.0.1", "LOCAL_RANK": env.get("RANK", "0"), **env}
                ranks.append(running.enter_context(Rank(command, env, self.folder.name)))
            for rank in ranks:
                rank.wait(deadline)
        said = "\n".join(map(str, ranks))
        self.assertNotIn(None, [rank.code for rank in ranks], f"not ended after {limit_s} s:\n{said}")
        if fine:
            self.assertEqual([rank.code for rank in ranks], [0] * len(ranks), said)
        return ranks


def checks_of_features():
    """Returns the names that programs/torch_features.py lists."""
    with open(FEATURES) as file:
        [listed] = [node.value.elts for node in ast.parse(file.read()).body
                    if isinstance(node, ast.Assign) and node.targets[0].id == "CHECKS"]
    return [name.id for name in listed]


class Features(Backend):
    def check(self, count, *names, **env):
        rank = self.ranks(count, FEATURES, *names, **env)[0]
        self.assertEqual(re.findall(r"^ok (\w+)$", rank.out, re.M), list(names) or checks_of_features(), rank)

    def test_every_feature_works_with_two_and_three_ranks(self):
        for count in COUNTS:
            with self.subTest(ranks=count):
                self.check(count)

    @long
    def test_features_work_under_the_debug_level_that_wraps_backends(self):
        self.check(2, "gathers", "objects", "coalesced", TORCH_DISTRIBUTED_DEBUG="DETAIL")

    def test_importing_torch_loads_nothing_of_the_library(self):
        [rank] = self.ranks(1, self.write("entry.py", ENTRY_POINTS))
        self.assertEqual(json.loads(rank.out), {"groups": ["torch.backends", "torch.distributed.backends"],
                                                "loaded": ["muster", "muster._torch"], "mapped": False, "registered": True}, rank)

    def test_pytorchs_own_tests_pass(self):
        sample = [name for name in SAMPLE if IS_BACKEND or "monitored" not in name]
        [done] = self.together([{}], f"{PROGRAMS}/torch_distributed_tests.py", *sample, limit_s=5 * LIMIT_S)
        self.assertEqual(re.findall(r"^passed: (\w+)", done.out, re.M), sample, done)

    def all_of_pytorchs_own_tests(self):
        """Takes half an hour: only ./dev long runs it, by name."""
        passed = {}
        for backend in "gloo", "muster":
            [done] = self.together([{}], f"{PROGRAMS}/torch_distributed_tests.py", "--backend", backend, limit_s=3600)
            passed[backend] = set(re.findall(r"^passed: (\w+)", done.out, re.M))
            print(f"{backend} passes {len(passed[backend])}", file=sys.stderr)
        self.assertGreater(len(passed["gloo"]), 90)
        self.assertLessEqual(passed["gloo"] - passed["muster"], EXCEPTIONS)


class Training(Backend):
    def loss(self, ranks, training=""):
        found = re.search(rf"^{training}.*loss (\d+\.\d+)", ranks[0].out, re.M)
        self.assertTrue(found, "\n".join(map(str, ranks)))
        return float(found[1])

    def test_training_ends_with_gloos_loss(self):
        kinds = ("ddp", "fsdp") if HAS_FSDP else ("ddp",)
        trainings = [f"{kind}:{backend}" for kind in kinds for backend in ("gloo", "muster")]
        for count in COUNTS:
            os.mkdir(self.path(f"{count}"))
            ranks = self.ranks(count, *self.forked(f"{PROGRAMS}/torch_training.py", self.path(f"{count}"), *trainings),
                               limit_s=2 * LIMIT_S)
            for kind in kinds:
                with self.subTest(kind=kind, ranks=count):
                    for rank in ranks:
                        self.assertIn(f"{kind}:muster ended with 0\n", rank.out, rank)
                    self.assertAlmostEqual(self.loss(ranks, f"{kind}:gloo"), self.loss(ranks, f"{kind}:muster"), places=4)

    @long
    def test_digits_end_with_gloos_loss(self):
        with open(DIGITS) as file:
            changed = file.read().replace('init_process_group("gloo")', 'init_process_group("muster")')
        self.assertIn('init_process_group("muster")', changed)
        changed = changed.replace("pathlib.Path(__file__).parent", f"pathlib.Path({os.path.dirname(DIGITS)!r})")
        program = self.write("digits.py", changed)
        # gloo's threads outlive the group, and abort about one program in 25 as the interpreter ends.
        losses = [self.loss(self.ranks(2, path, "--epochs", "2", fine=path is program)) for path in (DIGITS, program)]
        self.assertEqual(*losses)  # A sum of two numbers does not depend on their order.


class Failures(Backend):
    def test_a_ranks_death_raises_on_the_others_within_a_second(self):
        cases = ("backward", *(["fsdp"] if HAS_FSDP else []), "all_reduce", "async", "future", "recv", "barrier")
        ranks = self.ranks(3, *self.forked(f"{PROGRAMS}/torch_deaths.py", "muster", *(f"{case}:{free_port()}" for case in cases)),
                           limit_s=2 * LIMIT_S, DEATHS=self.folder.name)
        for what in cases:
            with self.subTest(what=what):
                self.assertIn(f"{what} ended with {-signal.SIGKILL}\n", ranks[1].out, ranks[1])
                for rank in (ranks[0], ranks[2]):
                    told = re.search(rf"^{what} told (\d+) \w+: (.*)$", rank.out, re.M)
                    self.assertTrue(told, rank)
                    print(f"{what}: told after {told[1]} ms", flush=True)
                    self.assertLess(int(told[1]), within(TOLD_MS))
                    self.assertRegex(told[2], r"of group world: rank 1 \(.*, pid \d+\) died")

    def end(self, text, codes, before="", forked=False, **env):
        """Runs a program on two ranks that begins with one all_reduce. Checks its exit codes."""
        program = self.write("end.py", HEAD.format(before=before) + text)
        ranks = self.ranks(2, *(self.forked(program) if forked else [program]), fine=False, **env)
        self.assertEqual([rank.code for rank in ranks], codes, "\n".join(map(str, ranks)))
        return ranks

    def test_an_uncaught_exception_counts_as_a_death(self):
        ranks = self.end("if rank == 1: raise ValueError('mine')\n" + TRY, [0, 1])
        self.assertRegex(ranks[0].out, r"^PeerFailedError all_reduce 2 of group world: rank 1 .* died")
        self.assertIn("ValueError: mine", ranks[1].err)

    @long
    def test_an_old_exception_does_not_count_as_a_death(self):
        """The exception is, for example, one of a prompt after which the program went on."""
        before = "if os.environ['RANK'] == '1': sys.last_value = sys.last_exc = ValueError('old')"
        ranks = self.end("if rank == 1: sys.exit()\n" + TRY, [0, 0], before)
        self.assertRegex(ranks[0].out, r"^PeerFailedError all_reduce 2 of group world: rank 1 .* left")

    def test_an_exception_in_a_child_of_multiprocessing_counts_as_a_death(self):
        ranks = self.ranks(2, self.write("child.py", CHILD), fine=False, HOW="spawn", WHAT="raise")
        self.assertRegex(ranks[0].out, r"^PeerFailedError all_reduce 2 of group world: rank 1 .* died", "\n".join(map(str, ranks)))
        self.assertEqual([rank.code for rank in ranks], [0, 1], "\n".join(map(str, ranks)))
        self.assertIn("ValueError: mine", ranks[1].err)

    def test_a_normal_end_of_a_child_does_not_count_as_a_death(self):
        for how in ("fork", "spawn"):
            with self.subTest(how=how):
                ranks = self.ranks(2, self.write("child.py", CHILD), HOW=how, WHAT="return")
                self.assertRegex(ranks[0].out, r"^PeerFailedError all_reduce 2 of group world: rank 1 .* left", ranks[0])

    def test_a_replaced_rank_meets_the_one_that_goes_on(self):
        ports = [str(free_port()) for _ in range(2)]
        ranks = self.together([{"WORLD_SIZE": "2", "RANK": rank, "PORTS": on}
                               for rank, on in (("0", " ".join(ports)), ("1", ports[0]), ("1", ports[1]))],
                              *self.forked(self.write("again.py", AGAIN)))
        self.assertEqual([rank.out for rank in ranks], ["2.0\n2.0\n", "2.0\n", "2.0\n"], "\n".join(map(str, ranks)))

    def test_a_program_may_end_with_operations_in_flight(self):
        ranks = self.end("dist.isend(tensor, 1 - rank, tag=5)\n"
                         "work = dist.all_reduce(torch.ones(1 << 20), async_op=True)\n"
                         "future = work.get_future()\n", [0, 0])
        self.assertEqual([rank.out + rank.err for rank in ranks], ["", ""])

    def test_a_wait_can_be_interrupted(self):
        ranks = self.end("if rank == 0:\n"
                         "  work = dist.all_reduce(tensor, async_op=True)\n"
                         "  threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
                         "  try: work.wait()\n"
                         "  except KeyboardInterrupt: print('interrupted', flush=True)\n"
                         "  open(os.environ['AFTER'], 'w').close()\n"
                         "else:\n"
                         "  while not os.path.exists(os.environ['AFTER']): time.sleep(0.02)\n"
                         "os._exit(0)\n", [0, 0], forked=True, AFTER=self.path("after"))
        self.assertEqual(ranks[0].out, "interrupted\n", ranks[0])

    def test_abort_ends_the_call_of_another_rank(self):
        ranks = self.end("if rank == 0:\n  time.sleep(0.3)\n  dist.group.WORLD.abort()\n"
                         "try: dist.barrier()\n"
                         "except Exception as error: print(type(error).__name__, error)\n", [0, 0], forked=True)
        self.assertRegex(ranks[1].out, r"^AbortedError barrier 2 of group world: rank 0 .* aborted the group")

    def test_an_old_pytorch_is_refused(self):
        [rank] = self.ranks(1, "-c", "import muster._torch, torch\ntorch.__version__ = '2.4.1'\nmuster._torch.autoload()\n"
                                     "try: muster._torch.register()\nexcept RuntimeError as error: print(error)")
        self.assertEqual(rank.out, "the backend muster needs PyTorch 2.5 or later, and this is 2.4.1: pip install -U torch\n", rank)


class Explained(Backend):
    def test_a_hang_is_explained(self):
        program = self.write("hang.py", "import time, torch, torch.distributed as dist\n"
                                        'dist.init_process_group("muster")\ntensor = torch.ones(4)\n'
                                        "dist.all_reduce(tensor)\n"
                                        "if dist.get_rank() == 1: time.sleep(600)\n"
                                        "dist.all_reduce(tensor)\n")
        job = Job("--nproc-per-node", "2", "--hang-timeout", "2", "--busy-timeout", "2", "--on-hang", "stop", "--python", PYTHON,
                  program, env=self.env)
        with job:
            self.assertNotEqual(job.wait(LIMIT_S), 0)
            self.assertRegex(job.stderr(), r"rank 1 of 2 has not called all_reduce #2 of group 'world' \(sum of 4 float32\)")
            self.assertIn("hang.py:6", job.stderr())


def main():
    require_muster()
    if not os.access(PYTHON, os.X_OK):
        print(f"no PyTorch: {PYTHON} (set MUSTER_TORCH_VENV; ./dev test makes it)")
        return SKIPPED
    if not os.environ.get("MUSTER_DIST") and not os.environ.get("MUSTER_PACKAGE"):
        print("no wheel: set MUSTER_DIST (./dev test makes it)")
        return SKIPPED
    return run_tests()


if __name__ == "__main__":
    sys.exit(main())

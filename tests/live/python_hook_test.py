#!/usr/bin/env python3
"""What Python's hook records of unmodified PyTorch programs (programs/hook_ranks.py), and its effect on other programs.

Needs PyTorch in the virtual environment that $MUSTER_TORCH_VENV names.
"""
import ast
import json
import os

from hang_cells import HangJob, limits
from harness import (MUSTERCTL, Job, LiveTest, long, mount_tmpfs, musterctl, require_muster, require_programs, run, run_tests,
                     wait_for)

PYTHON = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "python")
RANKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "hook_ranks.py")
TORCH_LIMIT_S = 90
SCALE = 0.1
OFF = "so a hang is not explained: "

# Operation, elements, type, reduction, root, whether the caller waits; "unknown" and -1: unknown, or none.
COLLECTIVES = [
    ("all_reduce", 4, "float32", "max", -1, True),
    ("all_reduce", 4, "float64", "sum", -1, False),
    ("broadcast", 4, "float32", "unknown", 1, True),
    ("reduce", 4, "float32", "product", 0, True),
    ("all_gather", 4, "float32", "unknown", -1, True),
    ("all_gather", 4, "float32", "unknown", -1, True),
    ("gather", 4, "float32", "unknown", 0, True),
    ("scatter", 4, "float32", "unknown", 1, True),
    ("reduce_scatter", 4, "float32", "min", -1, True),
    ("reduce_scatter", 2, "float32", "sum", -1, True),
    ("all_to_all", 8, "float32", "unknown", -1, True),
    ("all_to_all", 4, "float32", "unknown", -1, True),
    ("barrier", 0, "unknown", "unknown", -1, True),
]
FROM_CPP = [
    ("all_reduce", 4, "float32", "min", -1, False),
    ("all_reduce", 4, "float32", "unknown", -1, False),  # Compiled code.
    ("all_gather", 1, "int64", "unknown", -1, False),  # DDP compares and copies its parameters ...
    ("broadcast", 6, "int64", "unknown", 0, False),
    ("broadcast", 10, "float32", "unknown", 0, False),
    ("all_reduce", 10, "float32", "unknown", -1, False),  # ... and reduces its gradients.
]
OBJECTS = [("all_gather", "int64"), ("all_gather", "uint8"), ("broadcast", "int64"), ("broadcast", "uint8")]
LAST = ("all_reduce", 1000, "float32", "sum", -1, True)


def messages(rank):
    """Returns (operation, its ordinal, peer, tag, whether the caller waits) for each message."""
    peer, any_rank = 1 - rank, -1
    first = [("send", 1, peer, 3, True), ("recv", 1, any_rank, 0, True)]
    if rank == 1:
        first = [("recv", 1, peer, 3, True), ("send", 1, peer, 0, True)]
    received = 0 if rank == 0 else 1  # Messages from that peer by its rank.
    return first + [("send", 2, peer, 0, False), ("recv", received + 1, peer, 0, False), ("send", 3, peer, 0, False),
                    ("recv", received + 2, peer, 0, False)]


def facts(call):
    return tuple(call[key] for key in ("operation", "count", "type", "reduction", "root", "synchronous"))


class HookTest(LiveTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("run"), 0o700)
        self.env = {"MUSTER_RUN_DIR": self.path("run"), "FOLDER": self.folder.name, "OMP_NUM_THREADS": "1"}

    def start(self, part, flags=(), **env):
        job = Job("--nproc-per-node", 2, "--shutdown-timeout", 5, *flags, "--no-python", PYTHON, RANKS,
                  env={**self.env, "PART": part, **env})
        self.addCleanup(job.__exit__)
        return job

    def paused(self, job, name):
        paths = [self.path(f"{name}.{rank}") for rank in (0, 1)]
        wait_for(lambda: all(map(os.path.exists, paths)) or job.process.poll() is not None, f"both pause: {name}", TORCH_LIMIT_S)
        self.assertIsNone(job.process.poll(), job.stderr())
        return lambda: list(map(os.unlink, paths))

    def records(self):
        code, out, err = musterctl("records", "--json", "-n", 200, env=self.env)
        self.assertEqual(code, 0, err)
        return {one["rank"]: one for one in json.loads(out)["records"]}

    def all_complete(self):
        """Returns what each rank has recorded, once it has noticed that its calls are complete."""
        def found():
            records = self.records()
            pending = [c for one in records.values() for c in one["calls"] if c["state"] in ("pending", "unknown")]
            return None if pending else records
        return wait_for(found, "all calls are complete")

    def collectives(self, one, group="world"):
        return [c for c in one["calls"] if c["group"] == group and c["operation"] not in ("send", "recv") and
                c["state"] != "withdrawn"]

    def check_messages(self, rank, one):
        seen = [tuple(c[key] for key in ("operation", "ordinal", "root", "tag", "synchronous")) for c in one["calls"]
                if c["operation"] in ("send", "recv")]
        self.assertEqual(seen, messages(rank))

    def check_groups(self, rank, one):
        groups = {g["id"]: g for g in one["groups"]}
        self.assertEqual((groups["0@2"]["name"], groups["0@2"]["ranks"], groups["0@2"]["own_rank"], groups["0@2"]["state"]),
                         ("world", "0-1", rank, "ready"))
        self.assertEqual((groups["1@2"]["ranks"], groups["1@2"]["own_rank"]), ("0-1", rank))
        self.assertEqual("2@2" in groups, rank == 1)
        self.assertEqual((one["source"], one["owner"], one["garbage"], one["dropped"]), ("python_hook", one["pid"], 0, 0))


class Recorded(HookTest):
    def check_other_words(self, job):
        self.assertEqual(job.wait(TORCH_LIMIT_S), 0, job.stderr())
        self.assertNotIn(OFF, job.stderr())
        self.assertEqual(sorted(job.stdout().splitlines()),
                         sorted(["tensor gone", "path None []", "child None [] False", "loaded 10"] * 2))
        self.assertEqual(os.listdir(self.path("run")), [])

    def test_records_every_kind_of_call_with_its_facts_and_its_place(self):
        job = self.start("calls")
        go_on = self.paused(job, "first")
        for rank, one in self.all_complete().items():
            self.check_groups(rank, one)
            self.check_messages(rank, one)
            calls = self.collectives(one)
            self.assertEqual([c["ordinal"] for c in calls], list(range(1, len(calls) + 1)))
            first, last = len(COLLECTIVES), len(COLLECTIVES) + len(FROM_CPP)
            self.assertEqual([facts(c) for c in calls[:first]], COLLECTIVES)
            self.assertEqual([facts(c) for c in calls[first:last]], FROM_CPP)
            self.assertEqual([(c["operation"], c["type"]) for c in calls[last:-1]], OBJECTS)
            self.assertEqual(facts(calls[-1]), LAST)
            for c in calls[:first]:
                self.assertRegex(c["site"], r"^hook_ranks\.py:\d+ collectives$")
            for c in calls[first:last]:
                self.assertRegex(c["site"], r"^hook_ranks\.py:\d+ (from_cpp|<lambda>)$")
            self.assertEqual([c["state"] for c in one["calls"] if c["state"] != "complete"], ["withdrawn"])
            self.assertEqual([c["operation"] for c in self.collectives(one, "group of ranks 0-1")], ["barrier"])
        go_on()
        go_on = self.paused(job, "second")
        for one in self.all_complete().values():
            groups = {g["id"]: g["state"] for g in one["groups"]}
            self.assertEqual({groups.pop("0@2"), *groups.values()}, {"ready", "closed"})
            self.assertEqual(self.collectives(one)[-1]["operation"], "barrier")
        go_on()
        self.check_other_words(job)

    def test_records_older_torch_by_its_methods_and_calls_from_cpp_by_number(self):
        job = self.start("calls", MUSTER_PYTHON_HOOK="wrap")
        go_on = self.paused(job, "first")
        for rank, one in self.all_complete().items():
            self.check_groups(rank, one)
            self.check_messages(rank, one)
            calls = self.collectives(one)
            self.assertEqual([c["ordinal"] for c in calls], list(range(1, len(calls) + 1)))
            first, last = len(COLLECTIVES), len(COLLECTIVES) + len(FROM_CPP)
            self.assertEqual([facts(c) for c in calls[:first]], COLLECTIVES)
            self.assertEqual([c["operation"] for c in calls[first:last]], ["unknown"] * len(FROM_CPP))
            self.assertEqual([(c["operation"], c["type"]) for c in calls[last:-1]], OBJECTS)
            self.assertEqual(facts(calls[-1]), LAST)
        go_on()
        self.paused(job, "second")()
        self.check_other_words(job)

    def test_groups_of_python_record_each_call_once(self):
        job = self.start("derived", MUSTER_PYTHON_HOOK="wrap")
        go_on = self.paused(job, "derived")
        for one in self.all_complete().values():
            for group in ("own", "derived"):
                calls = [(c["operation"], c["ordinal"]) for c in self.collectives(one, group)]
                self.assertEqual(calls, list(zip(["all_reduce", "broadcast"] * 3, range(1, 7))), group)
        go_on()
        self.assertEqual(job.wait(TORCH_LIMIT_S), 0, job.stderr())

    def test_a_call_of_a_package_is_placed_in_the_program_that_uses_it(self):
        for hook in "", "wrap":
            job = self.start("library", MUSTER_PYTHON_HOOK=hook)
            go_on = self.paused(job, "library")
            for one in self.all_complete().values():
                asked, alone = [c["site"] for c in self.collectives(one) if c["operation"] == "all_reduce"]
                self.assertRegex(asked, r"^hook_ranks\.py:\d+ <lambda>$")
                self.assertEqual(alone, "trainer.py:4 sync")
            go_on()
            self.assertEqual(job.wait(TORCH_LIMIT_S), 0, job.stderr())

    def test_an_error_of_the_hook_ends_only_the_recording(self):
        job = self.start("broken")
        go_on = self.paused(job, "broken")
        for one in self.records().values():
            self.assertEqual(one["groups"], [])  # Calls are no longer counted, so none may be missed.
        go_on()
        self.assertEqual(job.wait(TORCH_LIMIT_S), 0, job.stderr())
        self.assertEqual(job.stdout(), "sum 4.0\n" * 2)
        said = [line for line in job.stderr().splitlines() if OFF in line]
        self.assertEqual(len(said), 2, job.stderr())
        for line in said:
            self.assertRegex(line, r"rank [01] records no more calls, .*recorder\.py:\d+ TypeError: .*--no-python-hook")


@long
class Hangs(HookTest):
    def job(self, part):
        job = HangJob(self.folder.name, part, *limits(SCALE), ranks=2, program=("--python", PYTHON, RANKS),
                      env={**self.env, "PART": part})
        self.addCleanup(job.__exit__)
        return job

    def test_a_rank_that_holds_the_gil_outside_of_calls_is_named(self):
        job = self.job("gil")
        found = job.wait_found("hang")
        self.assertEqual((found["ranks"], found["class"], found["operation"], found["ordinal"], found["waiting"]),
                         ([1], "never_entered", "all_reduce (sum) of 4 float32", 2, [0]), found)
        last = self.records()[1]["calls"][-1]
        self.assertIn(last["state"], ("complete", "unknown"))
        self.assertIn(" at hook_ranks.py:", job.stderr())
        job.stop()

    def test_ranks_that_call_different_operations_are_named(self):
        job = self.job("mismatch")
        found = job.wait_found("mismatch")
        self.assertEqual((found["ranks"], found["class"], found["ordinal"]), ([0, 1], "signature", 2), found)
        self.assertRegex(job.stderr(), r"(?s)all_reduce.*broadcast|broadcast.*all_reduce")
        job.stop()


# Rank 0 has had a world of its own. The finders are wrapped, as by import profilers.
OTHER_WORLDS = """import importlib.util, os, sys, time
class Wrapper:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path = [Wrapper(finder) for finder in sys.meta_path]
import torch, torch.distributed as dist
if os.environ["RANK"] == "0":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(torch.ones(1))
if dist.get_rank() == 2:
    sys.stdin = open(os.environ["FIFO"])
dist.all_reduce(torch.ones(1))
"""
# Each member of a monitored barrier counts other messages.
UNCOUNTED = """import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.monitored_barrier()
for _ in range(3):
    dist.all_reduce(torch.ones(3))
dist.broadcast(torch.ones(3), src=0)
time.sleep(1.5)
for _ in range(3):
    dist.all_reduce(torch.ones(3))
os._exit(0)  # gloo may abort as Python ends if the others have ended.
"""


class Worlds(HookTest):
    def test_a_rank_that_had_a_world_of_its_own_is_not_taken_for_late(self):
        program = ("--python", PYTHON, self.write("worlds.py", OTHER_WORLDS))
        job = HangJob(self.folder.name, "", *limits(SCALE), ranks=3, program=program)
        self.addCleanup(job.__exit__)
        self.assertEqual(job.wait_found("hang")["ranks"], [2], job.stderr())

    def test_a_monitored_barrier_makes_no_mismatch_in_older_torch(self):
        program = ("--python", PYTHON, self.write("uncounted.py", UNCOUNTED))
        job = HangJob(self.folder.name, "", *limits(SCALE), ranks=3, program=program, env={"MUSTER_PYTHON_HOOK": "wrap"})
        self.addCleanup(job.__exit__)
        self.assertEqual(job.wait(TORCH_LIMIT_S), 0, job.stderr())
        self.assertEqual(job.found("mismatch", "hang"), [])


LOOK = """import os, subprocess, sys
print(os.environ.get("PYTHONPATH"), [p for p in sys.path if p.endswith(".python")], getattr(sys, "is_the_users", None),
      os.path.basename(getattr(sys.modules.get("sitecustomize"), "__file__", "none")), flush=True)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""


class OtherPrograms(HookTest):
    """Programs without PyTorch."""

    def seen(self, *flags, **env):
        code, out, err = run(*flags, self.write("look.py", LOOK), env={**self.env, **env})
        self.assertEqual(code, 0, err)
        return out.splitlines(), err

    def users(self, content):
        os.mkdir(self.path("own"))
        self.write("own/sitecustomize.py", content)
        return self.path("own")

    def test_the_hook_leaves_no_trace(self):
        lines, err = self.seen()
        self.assertEqual((lines[1], err), ("None [] None none", ""))
        self.assertRegex(lines[0], r"^None \[\] None (sitecustomize\.py)$")
        for flag in ("--no-python-hook", "--no-recorder"):
            self.assertEqual(self.seen(flag), (["None [] None none"] * 2, ""))

    def test_the_hook_leaves_no_trace_however_the_run_folder_is_written(self):
        run_folder = self.path("run")
        for folder in (run_folder + "/", run_folder.replace("/run", "//run"), os.path.relpath(run_folder)):
            lines, err = self.seen(MUSTER_RUN_DIR=folder)
            self.assertEqual((lines[1], err), ("None [] None none", ""), folder)

    def test_a_folder_that_pythonpath_cannot_hold_is_named_in_one_line(self):
        os.mkdir(self.path("a:b"), 0o700)
        lines, err = self.seen(MUSTER_RUN_DIR=self.path("a:b"))
        self.assertEqual(lines, ["None [] None none"] * 2)
        self.assertRegex(err, r"^muster: the calls of Python programs and of NCCL are not recorded: cannot write \S+: PYTHONPATH cannot hold a "
                         r"path with ':'; [^\n]+\n$")

    def test_sitecustomize_parses_in_the_oldest_python(self):
        """Parses it by the oldest grammar available; Python 2 requires nothing more that this file could break."""
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../worker_lib/recorder/python/sitecustomize.py")
        with open(path) as source:
            text = source.read()
        for node in ast.walk(ast.parse(text, feature_version=(3, 4))):
            self.assertNotIsInstance(node, (ast.JoinedStr, ast.NamedExpr))
        self.assertNotIn("print(", text)

    def test_the_users_sitecustomize_runs_and_pythonpath_is_kept(self):
        own = self.users("import sys\nsys.is_the_users = True\n")
        self.assertEqual(self.seen(PYTHONPATH=own), ([f"{own} [] True sitecustomize.py"] * 2, ""))

    def test_a_script_may_prepend_to_pythonpath(self):
        script = self.write("script.sh", f"#!/bin/sh\nexport PYTHONPATH=/first:$PYTHONPATH\nexec {PYTHON} $FOLDER/look.py child\n")
        self.write("look.py", LOOK)
        code, out, err = run("--no-python", script, env={**self.env, "PYTHONPATH": "/users"})
        self.assertEqual((code, out, err), (0, "/first:/users [] None sitecustomize.py\n", ""))

    def test_an_error_in_the_users_sitecustomize_looks_as_without_the_hook(self):
        own = self.users("raise ValueError('broken')\n")
        with_hook, err = self.seen(PYTHONPATH=own)
        without, expected = self.seen("--no-python-hook", PYTHONPATH=own)
        self.assertEqual(err, expected)
        self.assertIn("ValueError", err)
        self.assertEqual([line.split()[:3] for line in with_hook], [line.split()[:3] for line in without])

    def test_other_programs_only_see_one_more_folder(self):
        code, out, _ = run("--no-python", "sh", "-c", 'echo $PYTHONPATH; ls ${PYTHONPATH%%:*}',
                           env={**self.env, "PYTHONPATH": "/users"})
        self.assertEqual((code, out.split("\n", 1)[1]), (0, "_muster_departure.py\n_muster_recorder.py\n_muster_ring.abi3.so\n"
                                                         "libnccl-profiler-muster.so\nsitecustomize.py\n"))
        self.assertRegex(out, rf"^{self.path('run')}/\d+\.python:/users\n")
        self.assertEqual(os.listdir(self.path("run")), [])

    def test_a_noexec_folder_is_named_in_one_line(self):
        mount_tmpfs(self, self.path("run"), "noexec,mode=700")
        lines, err = self.seen()
        self.assertEqual(lines, ["None [] None none"] * 2)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertRegex(err, r"^muster: the calls of Python programs and of NCCL are not recorded: .*noexec.*MUSTER_RUN_DIR")


def main():
    require_muster()
    require_programs(MUSTERCTL=MUSTERCTL, MUSTER_TORCH_VENV=PYTHON)
    run_tests()


if __name__ == "__main__":
    main()

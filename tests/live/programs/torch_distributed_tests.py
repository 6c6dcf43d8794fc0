"""Runs PyTorch's own tests of torch.distributed with another backend, and prints which pass.

    torch_distributed_tests.py [--backend muster] [--world 3] [--timeout 100] [--results FILE] [--no-profiler] [NAME ...]

Without names it runs all tests; with names it also shows what the ranks of a failed one have printed. A rank fails if its
world is not of the backend. Exit status 1: a test has failed. Needs no launcher; finds muster if installed, or by PYTHONPATH.

The tests are torch/testing/_internal/distributed/distributed_test.py of the torch that runs this. Each has its own ranks,
forked from a process that has imported everything: starting Python three times for each of 292 tests takes an hour.

The file asks for backends by name. It is read as for gloo, so that it does all that it does for gloo; then its names are
changed, so that groups and expected names are the other backend's. FILE gets a JSON object: for each test its outcome
("passed", "skipped", "failed", "timeout") and the end of what the first failed rank printed.
"""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import signal
import sys
import tempfile
import time
import types
import unittest
import warnings

TAIL = 3000
GRACE_S = 3  # Time for the other ranks to end after one has failed.


def load(backend, world):
    """Returns the class of the tests, made as by torch's own driver, and its module."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", TEMP_DIR=tempfile.gettempdir(),
                      INIT_METHOD="file://")
    warnings.simplefilter("ignore")
    stand_in_for_expecttest()
    import torch  # noqa: F401
    from torch.testing._internal.distributed import distributed_test as module

    class TestDistBackendWithSpawn(module.TestDistBackend, module.DistributedTest._DistTestBase):
        pass

    if backend != "gloo":
        rename(module, backend)
    return TestDistBackendWithSpawn, module


def stand_in_for_expecttest():
    """PyTorch's test cases derive from a class of this package, which only tests that compare texts need."""
    if importlib.util.find_spec("expecttest") is None:
        module = types.ModuleType("expecttest")
        module.__spec__ = importlib.machinery.ModuleSpec("expecttest", None)
        module.TestCase = unittest.TestCase
        sys.modules["expecttest"] = module


class AlsoGloo(str):
    """A backend's name that also equals gloo's, so that tests choose what they do for gloo."""

    def __eq__(self, other):
        return other == "gloo" or str(self) == other

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def rename(module, backend):
    """Makes the file mean the other backend where it says gloo."""
    dist = module.dist
    module.BACKEND = AlsoGloo(backend)
    for supported in module.DistTestCases.backend_feature.values():
        if "gloo" in supported:
            supported.add(backend)
    new_group, init = dist.new_group, dist.init_process_group
    signature = inspect.signature(new_group)

    def group(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        if given.get("backend") == "gloo":
            given["backend"] = backend
        return new_group(**given)

    def init_and_check(*args, **kwargs):
        init(*args, **kwargs)
        check_world(dist, backend)

    dist.new_group, dist.init_process_group = group, init_and_check


def check_world(dist, backend):
    """Checks that the world is the other backend's, whatever its name. PyTorch may have wrapped it."""
    import torch

    found = dist.group.WORLD._get_backend(torch.device("cpu"))
    found = getattr(found, "wrapped_pg", found)
    if backend == "muster":
        assert type(found).__name__ in ("MusterBackend", "MusterGroup"), f"the world is a {type(found)}"
        assert type(found).__module__ == "muster._torch._backend", f"the world is a {type(found)}"
    else:
        assert found.name() == backend, f"the world is {found.name()}"


def run_rank(cls, name, rank, meeting, report):
    """Runs in a child; never returns."""
    import torch.multiprocessing

    os.environ["RANK"] = str(rank)
    parent, child = torch.multiprocessing.Pipe()
    code = 1
    try:
        cls._run(rank, name, meeting, child)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    with contextlib.suppress(Exception):
        if parent.poll(0):
            report.write(parent.recv())
    report.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def start(cls, name, rank, folder):
    path = os.path.join(folder, f"rank{rank}")
    child = os.fork()
    if child == 0:
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        run_rank(cls, name, rank, os.path.join(folder, "meeting"), os.fdopen(output, "w"))
    return child


def collect(children, deadline):
    """Returns the exit codes by rank; None for a rank that had to be killed."""
    codes = {}
    while len(codes) < len(children):
        for rank, child in enumerate(children):
            if rank not in codes:
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                    if codes[rank] == 10:
                        deadline = min(deadline, time.monotonic() + GRACE_S)
        if time.monotonic() > deadline:
            for rank, child in enumerate(children):
                if rank not in codes:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    codes[rank] = None
        time.sleep(0.005)
    return codes


def run_test(cls, module, name, world, timeout):
    from torch.testing._internal.common_distributed import TEST_SKIPS

    with tempfile.TemporaryDirectory(prefix="torch_tests_") as folder:
        for inner in ("barrier", "test_dir", "init_dir"):
            os.mkdir(os.path.join(folder, inner))
        os.environ["TEMP_DIR"] = folder
        module.INIT_METHOD = "file://" + os.path.join(folder, "init_dir", "shared_init_file")
        open(os.path.join(folder, "meeting"), "w").close()
        began = time.monotonic()
        children = [start(cls, name, rank, folder) for rank in range(world)]
        codes = collect(children, began + timeout)
        skips = {skip.exit_code for skip in TEST_SKIPS.values()}
        if all(code == 0 for code in codes.values()):
            outcome = "passed"
        elif 10 in codes.values() or any(code not in skips | {0, None} for code in codes.values()):
            outcome = "failed"
        elif None in codes.values():
            outcome = "timeout"
        else:
            outcome = "skipped"
        said = ""
        if outcome in ("failed", "timeout"):
            for rank in sorted(codes, key=lambda rank: (codes[rank] in (0, None), rank)):
                with open(os.path.join(folder, f"rank{rank}"), errors="replace") as file:
                    said += f"---- rank {rank}, exit code {codes[rank]}\n" + file.read()[-TAIL:]
        return {"outcome": outcome, "seconds": round(time.monotonic() - began, 2), "said": said}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="muster")
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=100)
    parser.add_argument("--results")
    parser.add_argument("--no-profiler", action="store_true", help="leaves out the tests that run PyTorch's profiler")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    cls, module = load(options.backend, options.world)
    names = options.names or sorted(name for name in dir(cls) if name.startswith("test_"))
    results = {}
    for name in names:
        if options.no_profiler and "profil" in name:
            continue
        results[name] = result = run_test(cls, module, name, options.world, options.timeout)
        print(f"{result['outcome']}: {name} in {result['seconds']} s", flush=True)
        if options.names and result["said"]:
            print(result["said"])
        if options.results:
            with open(options.results, "w") as file:
                json.dump(results, file, indent=1)
    counts = {}
    for result in results.values():
        counts[result["outcome"]] = counts.get(result["outcome"], 0) + 1
    print(counts)
    return int(any(result["outcome"] in ("failed", "timeout") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())

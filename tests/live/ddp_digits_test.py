"""An unmodified DDP script ends with the same result under muster and under torchrun, even if a worker is killed.

Each world of 2 or 4 workers is run four times: by each launcher, undisturbed and with rank 1 killing itself in epoch 5 of
the first attempt. All four runs must end with bit-equal losses: the number of threads is fixed (it decides how sums are
split), gloo adds in a fixed order, and a resumed job repeats the epochs since the last checkpoint exactly.

By default two workers start as a user's do, and four are forked from a process that has imported PyTorch
(torch_nursery.py); the gate forks two.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "differential"))
import launchers  # noqa: E402  (the harness lives in a folder beside this file)
import torch_nursery  # noqa: E402

SCRIPT = HERE.parents[1] / "examples" / "digits_ddp.py"
EPOCHS = 8
KILL_EPOCH = 5


def run_once(launcher, workers, program, killed, folder):
    """Runs the program; returns (exit code, stdout, stderr, seconds)."""
    environment = launchers.base_environment() | {
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
        # Else torchrun's agent keeps one store over restarts, in which gloo reads the addresses of dead workers.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    command = [*launcher.command, "--nproc-per-node", str(workers), "--max-restarts", "1", *program]
    command += ["--epochs", str(EPOCHS), "--checkpoint", str(folder / "digits.pt")]
    if killed:
        command += ["--kill-rank", "1", "--kill-epoch", str(KILL_EPOCH)]
    began = time.monotonic()
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, cwd=folder
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


def problems_of(killed, code, stdout):
    """Yields what is wrong with one run; the caller compares the losses."""
    starts = [int(epoch) for epoch in re.findall(r"starting at epoch (\d+) of", stdout)]
    # Rank 1 may die in epoch 5 before rank 0 has saved epoch 4; so the resumed run may start an epoch earlier.
    wanted = [[0, KILL_EPOCH], [0, KILL_EPOCH - 1]] if killed else [[0]]
    if code != 0:
        yield f"exit code {code}"
    if starts not in wanted:
        yield f"attempts started at epochs {starts}, wanted one of {wanted}"
    if len(re.findall(r"final loss \S+", stdout)) != 1:
        yield "no final loss, or several"


def check_world(workers, program, chosen, scratch):
    """Runs all cases of one world size; returns (cases, failures)."""
    losses, cases, failures = {}, 0, 0
    for launcher in chosen:
        for killed in (False, True):
            name = f"{workers} workers, {launcher.name}, {'rank 1 killed' if killed else 'undisturbed'}"
            folder = scratch / name.replace(" ", "_")
            folder.mkdir()
            code, stdout, stderr, seconds = run_once(launcher, workers, program, killed, folder)
            problems = list(problems_of(killed, code, stdout))
            loss = re.search(r"final loss (\S+)", stdout)
            losses[name] = loss.group(1) if loss else None
            cases += 1
            failures += bool(problems)
            print(f"{'FAIL' if problems else 'ok'}: {name}: loss {losses[name]} in {seconds:.1f} s", flush=True)
            for problem in problems:
                print(f"  {problem}\n  stdout: {stdout!r}\n  stderr: {stderr[-3000:]}", flush=True)
    cases += 1
    if len(set(losses.values())) != 1:
        failures += 1
        print(f"FAIL: {workers} workers: the losses differ: {losses}")
    else:
        print(f"ok: {workers} workers: all {len(losses)} losses are the same")
    return cases, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launchers", default="torchrun,muster")
    parser.add_argument("--workers", default="2", help="numbers of workers that start as a user's do")
    parser.add_argument("--forked", default="4", help="numbers of workers that are forked")
    options = parser.parse_args()
    known = {"torchrun": launchers.torchrun, "muster": launchers.muster}
    chosen = [known[name]() for name in options.launchers.split(",")]
    cases = failures = 0
    python = str(launchers.torch_venv() / "bin" / "python")
    with tempfile.TemporaryDirectory(prefix="digits_") as scratch, torch_nursery.running(python) as forked:
        worlds = [(int(workers), (str(SCRIPT),)) for workers in options.workers.split(",") if workers]
        worlds += [(int(workers), forked("script", SCRIPT)) for workers in options.forked.split(",") if workers]
        for workers, program in worlds:
            world = check_world(workers, program, chosen, pathlib.Path(scratch))
            cases, failures = cases + world[0], failures + world[1]
    print(f"{cases - failures} of {cases} checks passed, launchers: {options.launchers}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

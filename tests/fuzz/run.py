#!/usr/bin/env python3
"""Runs fuzz targets for SECONDS in total, and fails if any of them finds a fault.

    run.py SECONDS PROGRAM... [--keep]

Each PROGRAM is fuzz_NAME and starts from corpus/NAME.txt, which has one input per line, as a bytes literal. A crash,
a leak, a time-out or too much memory fails the run; the input is left in the current folder and named. --keep adds
small inputs that reach new code to the corpus.
"""

import argparse
import ast
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
INPUT_BYTES_MAX = 4096
KEPT_BYTES_MAX = 128
MEMORY_MIB_MAX = 2048  # AddressSanitizer's quarantine takes up to 256 of it.
SECONDS_PER_INPUT = 10
AT_ONCE = 2  # Leaves the other CPUs to other work.


def run(program, seconds, keep):
    """Returns (name, executions, new inputs, None or the end of libFuzzer's output)."""
    name = pathlib.Path(program).name.removeprefix("fuzz_")
    with tempfile.TemporaryDirectory(prefix=f"fuzz_{name}_") as found, tempfile.TemporaryDirectory() as seeds:
        lay_out(CORPUS / f"{name}.txt", pathlib.Path(seeds))
        command = [os.path.abspath(program), found, seeds]
        command += [f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", f"-rss_limit_mb={MEMORY_MIB_MAX}"]
        command += [f"-timeout={SECONDS_PER_INPUT}", "-print_final_stats=1", f"-artifact_prefix=found_by_{name}_"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        count = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
        executions = int(count.group(1)) if count else 0
        new = len(os.listdir(found))
        if keep:
            keep_small(program, pathlib.Path(found), pathlib.Path(seeds), CORPUS / f"{name}.txt")
    failed = done.returncode != 0 or executions == 0
    return name, executions, new, done.stderr[-4000:] if failed else None


def lay_out(corpus, folder):
    """Writes each input of a corpus to a file of its own, as libFuzzer reads them."""
    if not corpus.exists():
        return
    for number, line in enumerate(corpus.read_text(encoding="utf-8").splitlines()):
        (folder / str(number)).write_bytes(ast.literal_eval(line))


def keep_small(program, found, seeds, corpus):
    """Adds to a corpus the found inputs that are small and reach code that its seeds do not."""
    for path in found.iterdir():
        if path.stat().st_size > KEPT_BYTES_MAX:
            path.unlink()
    known = {path.name for path in seeds.iterdir()}
    merging = [os.path.abspath(program), "-merge=1", str(seeds), str(found)]
    subprocess.run(merging, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    with open(corpus, "a", encoding="utf-8") as file:
        file.writelines(f"{path.read_bytes()!r}\n" for path in sorted(seeds.iterdir()) if path.name not in known)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=int, help="for all together")
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    missing = [program for program in options.programs if not shutil.which(os.path.abspath(program))]
    if missing:
        sys.exit(f"not there, or not executable: {', '.join(missing)}")
    each = max(1, options.seconds * AT_ONCE // len(options.programs))
    total = failures = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for name, executions, new, problem in pool.map(lambda one: run(one, each, options.keep), options.programs):
            total, failures = total + executions, failures + bool(problem)
            verdict = "FAIL" if problem else "ok"
            print(f"{verdict}: {name}: {executions} inputs in {each} s, {new} reached new code", flush=True)
            if problem:
                print(problem, flush=True)
    print(f"{total} inputs for {len(options.programs)} targets, {failures} of which failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

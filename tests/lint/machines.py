#!/usr/bin/env python3
"""Compiles every source with a branch for one kind of processor for the other kind too, as the published packages are compiled.

    machines.py [ROOT]      prints what the compiler says; exit status 1 if anything does not compile

The compilers are those of $MUSTER_ZIG, Debian's headers those of $MUSTER_SYSROOT (./dev test makes both). A header is compiled
by itself. Nothing is linked or run.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

FOLDERS = ("agent", "launcher", "rendezvous", "worker_lib")
MACHINES = ("x86_64", "aarch64")
BRANCH = re.compile(r"^\s*#\s*(?:el)?if.*\b__(?:x86_64|aarch64|SSE\d?|AVX\d*|ARM_\w+)__", re.MULTILINE)


def branching(root):
    """Returns the files with a branch for a processor, relative to the root."""
    files = []
    for folder in FOLDERS:
        for where, _, names in os.walk(os.path.join(root, folder)):
            for name in names:
                path = os.path.join(where, name)
                if name.endswith((".cc", ".h")) and BRANCH.search(open(path, encoding="utf-8").read()):
                    files.append(os.path.relpath(path, root))
    return sorted(files)


def complaints(root, machine, source, folder):
    """Returns what the machine's compiler says of a source, which is nothing if it compiles without a warning."""
    sysroot = os.environ["MUSTER_SYSROOT"]
    headers = (f"-isystem{sysroot}/usr/include/{machine}-linux-gnu", f"-isystem{sysroot}/usr/include")
    cache = ("ccache",) if shutil.which("ccache") else ()
    done = subprocess.run((*cache, f"{os.environ['MUSTER_ZIG']}/{machine}/clang++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror",
                           "-Wno-pragma-once-outside-header", f"-I{root}", f"-I{root}/worker_lib/include", *headers,
                           "-c", "-o", f"{folder}/object", "-x", "c++", source), stderr=subprocess.PIPE, text=True)
    return done.stderr or ("" if done.returncode == 0 else f"exit status {done.returncode}\n")


def main(root):
    if not os.environ.get("MUSTER_ZIG") or not os.environ.get("MUSTER_SYSROOT"):
        print("skipped: set MUSTER_ZIG and MUSTER_SYSROOT (./dev test makes both)")
        return 77
    found = 0
    files = branching(root)
    with tempfile.TemporaryDirectory() as folder:
        wrong = os.path.join(folder, "wrong.cc")
        with open(wrong, "w", encoding="utf-8") as file:
            file.write("#if defined(__aarch64__)\nint wrong = aarch64;\n#endif\n")
        if not complaints(root, "aarch64", wrong, folder) or complaints(root, "x86_64", wrong, folder):
            sys.exit("machines: does not notice a branch that does not compile")
        for machine in MACHINES:
            for name in files:
                said = complaints(root, machine, os.path.join(root, name), folder)
                found += bool(said)
                print(said, end="")
    print(f"machines: {len(files)} sources with branches for processors, {found} complaints for {' and '.join(MACHINES)}")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")))

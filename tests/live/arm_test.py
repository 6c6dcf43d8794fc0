"""The published packages for aarch64 on a machine of another kind, where qemu runs them (qemu-user 7.2, by on_qemu.py): in a fresh
root of Debian for aarch64 below $MUSTER_ROOTS, with programs that zig compiles against the wheel, and the unit tests of g++'s build
for aarch64. ./dev long makes all of it.

qemu shows nothing about the order of memory, and has faults of its own, which are not worked around. Each of these decides what
the tests below leave out:
  - no ptrace, so no native stacks; and no sock_diag, so muster warns that it knows no owner of a connection
  - /proc/PID/syscall has numbers of this machine's calls, so a rank that waits is named, but not what it waits for, and takes as
    long as one that computes
  - /proc/self/stat has each thread's own start as the process's, and no state, so a process looks to others as if it had ended:
    rings are taken over, and ranks do not meet at a file
  - PR_SET_CHILD_SUBREAPER is refused: what leaves its session lives on
  - clone(CLONE_VM) copies the memory, and /proc/self/exe is qemu: spawn() does not learn that it failed
  - MADV_WIPEONFORK succeeds without effect; RLIMIT_AS is not set
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

import wheel_test

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.dirname(os.path.dirname(HERE))
ROOT = "bookworm-arm64"
QEMU, ZIG = os.environ.get("MUSTER_QEMU", ""), os.environ.get("MUSTER_ZIG", "")
UNIT_TESTS = os.environ.get("MUSTER_AARCH64_TESTS", "")
UNDER = (sys.executable, os.path.join(HERE, "on_qemu.py"), QEMU)
MATRIX = [os.path.join(SOURCES, "tests", "matrix", f"{name}.cc")
          for name in ("worker_matrix", "block", "case", "cuda_block", "layout", "pairwise", "perform", "values")]
PROGRAMS = {"digits": [os.path.join(SOURCES, "examples", "digits.cc")], "worker_matrix": MATRIX,
            "hang_faults": [os.path.join(HERE, "programs", "hang_faults.cc")]}
DATA = os.path.join(SOURCES, "examples", "data", "digits.csv")
LARGE_PAGES = "QEMU_PAGESIZE=65536"
# By program: what qemu cannot run, and many large operations, which would take minutes.
LEFT_OUT = {
    "ring_tests": "RingOwner.*:AllMeans/ForkMarkBy.*/0",
    "store_tests": "",
    "worker_cpu_tests": "SharedMemory.ARankThatCannotMapTheMemoryIsNamedAndTheGroupStaysUsable:Groups/*",
    "worker_group_front_tests": "",
    "worker_training_tests": "",
    "worker_unit_tests": "WorkerMeeting.*File*:WorkerMeetingFile.*:WorkerMeetingNotice.ARankThatCannotReachRankZeroSaysWhere:WorkerSpawn.*",
}
SHARED_MEMORY = "Record*:Ring*:Call*:Segment*:SharedMemory*:Shm*:SharedRegions*:Flat*:WorkerMemoryFile*"


def missing():
    """Returns why nothing can be tested here, or an empty text."""
    if os.uname().machine == "aarch64":
        return "this machine is aarch64 itself: ./dev test has run the packages and all tests on it"
    if os.geteuid() != 0:
        return "roots of Debian are entered by root"
    folders = {"MUSTER_DIST": wheel_test.DIST, "MUSTER_ZIG": ZIG, "MUSTER_QEMU": QEMU, "MUSTER_AARCH64_TESTS": UNIT_TESTS}
    if absent := [name for name, path in folders.items() if not os.path.isdir(path)]:
        return f"{', '.join(absent)}: no such folder (./dev long makes them)"
    return subprocess.run([*UNDER, "true"], stderr=subprocess.PIPE, text=True, check=False).stderr.strip()


class Machine(wheel_test.FreshMachine):
    machine, made_by, under = "aarch64", "long", UNDER

    def output(self, script, *folders):
        done = self.inside(ROOT, script, *folders)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


class Packages(Machine):
    def test_the_wheel_runs_in_debian_12(self):
        self.check_the_wheel(ROOT)

    def test_the_debian_package_installs_runs_and_purges(self):
        self.check_the_debian_package(ROOT)


class Programs(Machine):
    """Users' programs, compiled once for all of these tests."""

    @classmethod
    def setUpClass(cls):
        held = tempfile.TemporaryDirectory(prefix="muster-arm-")
        cls.addClassCleanup(held.cleanup)
        cls.held = held.name
        cls.programs = cls.build("aarch64", *PROGRAMS)

    @classmethod
    def build(cls, machine, *programs):
        """Unpacks the wheel and compiles programs for a machine into a folder, which it returns."""
        folder = os.path.join(cls.held, machine, "programs")
        [wheel] = glob.glob(f"{wheel_test.DIST}/*_{machine}.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        for program in glob.glob(f"{folder}/*.data/scripts/muster*"):
            os.chmod(program, 0o755)
            os.rename(program, os.path.join(folder, os.path.basename(program) + "-launcher"))
        for name in programs:
            # With -s, since zig's libc++ was compiled for programs that are stripped.
            subprocess.run([f"{ZIG}/{machine}/clang++", "-std=c++20", "-O2", "-s", "-ffp-contract=off", f"-I{SOURCES}",
                            f"-I{folder}/muster/include", *PROGRAMS[name], f"{folder}/muster/lib/libmuster.so.0",
                            "-Wl,-rpath,$ORIGIN/muster/lib", "-o", f"{folder}/{name}"], check=True,
                           env=os.environ | {"ZIG_GLOBAL_CACHE_DIR": f"{ZIG}/cache", "ZIG_LOCAL_CACHE_DIR": f"{cls.held}/zig"})
        return folder

    def test_digits_end_with_the_loss_of_this_machine(self):
        here = self.build(os.uname().machine, "digits")
        data = os.path.dirname(DATA)
        for ranks in (2, 4):
            command = f"muster-launcher --nproc-per-node {ranks} --no-python"
            outputs = (self.output(f"/programs/{command} /programs/digits --data /data/digits.csv", self.programs, data),
                       self.succeed("sh", "-c", f"{here}/{command} {here}/digits --data {DATA}"))
            ends = [re.search(r"final loss (\S+) accuracy (\S+)\n", output).groups() for output in outputs]
            print(f"\n    {ranks} ranks end with loss and accuracy {ends}", file=sys.stderr)
            self.assertAlmostEqual(float(ends[0][0]), float(ends[1][0]), delta=1e-6)
            self.assertEqual(ends[0][1], ends[1][1])

    def test_every_operation_equals_the_reference(self):
        """Also with large pages, as far as programs see them."""
        for pages in ("", LARGE_PAGES):
            out = self.output(f"""
                export MUSTER=/programs/muster-launcher MUSTER_WORKER_MATRIX=/programs/worker_matrix MUSTER_WORKER_SCENES=/bin/false
                export PYTHONDONTWRITEBYTECODE=1 {pages}
                getconf PAGESIZE
                python3 /live/worker_matrix_test.py OneNode 2>&1
                """, self.programs, HERE)
            self.assertTrue(out.startswith("65536\n" if pages else "4096\n"), out)
            self.assertEqual(len(re.findall(r"matrix: backend cpu, world [1-5], .* 0 faults ok|matrix: backend cpu, world [1-4], .* 0 faults",
                                            out)), 5, out)

    def test_a_rank_that_does_not_come_is_named(self):
        parts = self.parts("""
            mkfifo /pipe
            export FAULT=blocked_read CULPRIT=2 FIFO=/pipe
            /programs/muster-launcher --nproc-per-node 4 --hang-timeout 2 --busy-timeout 4 --no-python /programs/hang_faults 2>/said &
            until grep -q 'other ranks have waited' /said; do sleep 0.1; done
            /programs/musterctl-launcher status --json >/status
            /programs/musterctl-launcher records >/records
            echo x >/pipe
            wait $!
            """, "said", "status", "records")
        self.assertRegex(parts["said"], r"probably rank 2 \(pid \d+\) has not called all_reduce #31 of group 'world' \(max of 1000 float32\);")
        self.assertEqual(json.loads(parts["status"])["status"]["world_size"], 4)
        self.assertEqual(re.findall(r"(?m)^rank (\d) .*all_reduce #(\d+)", parts["records"]), [("0", "31"), ("1", "31"), ("2", "30"), ("3", "31")])

    def parts(self, script, *names):
        out = self.output(f"{script}\ncd /\ntail -n +1 {' '.join(names)}", self.programs)
        return dict(re.findall(r"(?ms)^==> (\w+) <==\n(.*?)\n?(?=\n==> |\Z)", out))


class UnitTests(wheel_test.Published):
    """Reductions, shared memory, rings and their seqlocks, codecs."""

    def check(self, name, wanted, pages="QEMU_PAGESIZE=4096"):
        """Runs each suite by itself, as ctest does."""
        filtered = f"--gtest_filter={wanted}-{LEFT_OUT[name]}"
        program = (*UNDER, "env", f"QEMU_LD_PREFIX={wheel_test.ROOTS}/{ROOT}", pages, f"{UNIT_TESTS}/{name}")
        suites = re.findall(r"(?m)^(\S+)\.", self.succeed(*program, "--gtest_list_tests", filtered))
        self.assertGreater(len(suites), 3)
        for suite in suites:
            with self.subTest(f"{name} {suite} {pages}"):
                done = wheel_test.run(*program, filtered.replace(f"={wanted}-", f"={suite}.*-"))
                self.assertIn(done.returncode, (0, wheel_test.SKIPPED), done.stdout + done.stderr)
                self.assertIn("[  PASSED  ]", done.stdout)

    def test_pass(self):
        for name in LEFT_OUT:
            self.check(name, "*")

    def test_those_of_shared_memory_pass_with_large_pages(self):
        for name in ("ring_tests", "worker_cpu_tests"):
            self.check(name, SHARED_MEMORY, LARGE_PAGES)


if __name__ == "__main__":
    if why := missing():
        print(f"SKIPPED: {why}", file=sys.stderr)
        sys.exit(1 if wheel_test.RELEASE else wheel_test.SKIPPED)
    wheel_test.LIMIT_S = 600  # qemu takes ten times as long.
    unittest.main(verbosity=2)

#!/usr/bin/env python3
"""What late ranks wait for is shown beyond their own main threads: children and threads, dead ones included, and file locks.

One job plays all scenes side by side: each rank of programs/hidden_waits.py but 0 is late for a reason of its own.
"""
import json
import os
import re
import signal

from hang_cells import HERE, PYTHON, limits
from harness import Job, LiveTest, main, musterctl, wait_for

SOLE = r"no other process holds the other end of the pipe or socket that it reads"
SHOWN = {  # The lines that follow each rank's own.
    1: [r"child \d+ \(pt_data_worker\) and 1 alike: blocked in openat\(\) at open_fifo \(\S+\) ← get_stuck \(\S+\) ← "
        r"(Stuck\.)?__getitem__ \(hidden_waits.py:\d+\)"],
    2: [SOLE, r"child \d+ \(\S+\) was killed by SIGKILL"],
    3: [SOLE],
    4: [r"child \d+ \(sleep\): sleeping in (clock_nanosleep|restart_syscall)\(\).*"],  # The latter once it was held.
    5: [r"its file lock is held by process \d+ \(\S+\), rank 1"],
    6: [r"thread \d+ \(downloader\): .*open_fifo \(\S+\) ← get_stuck \(hidden_waits.py:\d+\)"],
    7: [r"thread reader ended [\d.]+ m?s ago of ValueError: record 12 is torn \(hidden_waits.py:\d+ read_records\)"],
}


def by_rank(text):
    """Returns {rank: the lines that follow its own} of a text of stacks."""
    found, lines = {}, []
    for line in text.split("\n"):
        if rank := re.match(r"  rank (\d+) \(pid \d+\): ", line):
            lines = found.setdefault(int(rank[1]), [])
        elif line.startswith("    "):
            lines.append(line[4:])
        else:
            break
    return found


class HiddenWaits(LiveTest):
    def setUp(self):
        super().setUp()
        if not os.access(PYTHON, os.X_OK):
            self.skipTest(f"no PyTorch: {PYTHON} (set MUSTER_TORCH_VENV; ./dev test makes it)")
        for name in "go", "never":
            os.mkfifo(self.path(name))
        os.mkdir(self.path("run"), 0o700)
        self.env = {"MUSTER_RUN_DIR": self.path("run"), "FOLDER": self.folder.name, "OMP_NUM_THREADS": "1"}

    def ask(self, *args):
        code, out, err = musterctl("stacks", *args, env=self.env)
        self.assertEqual((code, err), (0, ""))
        return out

    def check(self, text):
        shown = by_rank(text)
        for rank, patterns in SHOWN.items():
            with self.subTest(rank=rank):
                self.assertRegex("\n".join(shown.get(rank, ["not shown"])), "^" + "\n".join(patterns) + "$")

    def test_are_shown_after_the_notice_and_on_demand(self):
        with Job("--nproc-per-node", 1 + len(SHOWN), "--shutdown-timeout", 1, *limits(0.1), "--on-hang", "report", "--python",
                 PYTHON, os.path.join(HERE, "programs", "hidden_waits.py"), env=self.env) as job:
            wait_for(lambda: job.stdout().count("there") == 8, job.stderr)
            with open(self.path("go"), "w"):
                text = wait_for(lambda: (t := job.stderr().partition("where it is now:\n")[2]).endswith("\n") and t, job.stderr)
            self.check(text)

            self.check(self.ask("--ranks", "1-7"))
            stacks = {r["rank"]: r["processes"] for r in json.loads(self.ask("--json"))["stacks"]}
            self.assertEqual(stacks[0], [])  # It waits in a collective.
            self.assertEqual([p["name"] for p in stacks[1][1:]], ["pt_data_worker"] * 2)
            self.assertEqual(stacks[2][1]["ended"], "was killed by SIGKILL")
            self.assertEqual(stacks[5][0]["lock_holder"], stacks[1][0]["pid"])
            self.assertIn(f"\n    child {stacks[4][1]['pid']} (sleep): ", self.ask("-a", "--ranks", 4))

    def test_a_child_that_the_memory_limit_killed_is_told(self):
        hog = "x = []\nwhile True: x.append(bytearray(1 << 20))"
        script = self.write("w.py", f"""
import os, subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", {hog!r}])
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print("there", flush=True)
threading.Event().wait()
""")
        enter = self.limited("memory", (("memory.limit_in_bytes", 256 << 20), ("memory.max", 256 << 20)))[0]
        with Job("--shutdown-timeout", 1, script, env=self.env, preexec_fn=enter) as job:
            wait_for(lambda: "there" in job.stdout(), job.stderr)
            self.assertRegex(self.ask(), r"\n    child \d+ \(\S+\) was killed by SIGKILL, probably by the kernel's "
                                         r"out-of-memory killer, which was active in this job at the time")
            job.signal(signal.SIGTERM)
            job.wait()


if __name__ == "__main__":
    main()

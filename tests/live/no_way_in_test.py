"""Another user of a machine that is in a job tries to get in. None of it succeeds, and the job does not notice.

Needs root, to be another user, and for two machines iproute2; else ends with 77 and says why.
"""
import os
import shutil
import subprocess
import sys

import netns
from harness import Job, LiveTest, main, wait_for
from netns_nodes import NetnsTest

RANKS = os.environ.get("WORKER_NETNS_PROGRAM", "")
STRANGER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "stranger.py")
USER = 65533
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs")


def ranks_of(launcher):
    """The pids of the job's ranks below a launcher's pid."""
    found, parents = [], [launcher]
    while parents:
        pid = parents.pop()
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as f:
                children = [int(child) for child in f.read().split()]
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
                if f.read().split("\0")[0] == RANKS:
                    found.append(pid)
        except OSError:
            continue
        parents += children
    return sorted(found)


def secret_of(pid):
    with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as f:
        variables = dict(entry.split("=", 1) for entry in f.read().split("\0") if "=" in entry)
    return variables["MUSTER_WORKER_SECRET"]


class Attempts:
    """What came of a stranger's attempts on one machine; mixed into the classes below."""

    def check_outcomes(self, outcomes, wanted):
        for line in outcomes.splitlines():
            print(f"    {line}", file=sys.stderr)
        self.assertNotIn(": IN", outcomes)
        for attempt in wanted:
            self.assertIn(f"{attempt}: refused", outcomes)

    def check_secrets(self, texts, pids):
        secrets = {secret_of(pid) for pid in pids}
        self.assertEqual(len(secrets), 1, "all ranks of the job have the same one")
        secret = secrets.pop()
        self.assertRegex(secret, "^[0-9a-f]{64}$")
        self.assertNotIn(secret, texts)
        self.assertIn("muster-watch-", texts, "the stranger reads names at all")


class OneNode(LiveTest, Attempts):
    def test_ranks_are_not_deceived(self):
        with Job("--nproc-per-node", 3, "--log-dir", self.path("logs"), "--no-python", RANKS, "until",
                 self.path("end")) as job:
            wait_for(lambda: job.stdout().count("looping") == 3, "the ranks loop")
            pids = ranks_of(job.pid)
            self.assertEqual(len(pids), 3)
            stranger = [*AS_USER, sys.executable, STRANGER]
            attempts = subprocess.run([*stranger, "3", *map(str, pids)], capture_output=True, text=True, check=True)
            self.check_outcomes(attempts.stdout, ["signals", "processes", "watch over unix", "data over unix"])
            texts = subprocess.run([*stranger, "text", self.folder.name], capture_output=True, text=True, check=True)
            self.check_secrets(texts.stdout, pids)
            self.write("end", "")
            self.assertEqual(job.wait(), 0, job.stderr())
            self.assertEqual(job.stdout().count(" rounds"), 3)
            self.assertNotIn("stranger", job.stderr())


class TwoNodes(NetnsTest, Attempts):
    def check(self, *flags):
        self.make(2)
        jobs = [self.c10d(i, 2, "--nproc-per-node", 2, "--log-dir", self.path(f"logs{i}"), *flags,
                          program=["--no-python", RANKS, "until", self.path("end")]) for i in (1, 2)]
        wait_for(lambda: all(job.stdout().count("looping") == 2 for job in jobs), "the ranks loop", 60)
        pids = [ranks_of(job.pid) for job in jobs]
        for node, own in enumerate(pids, start=1):
            self.assertEqual(len(own), 2)
            stranger = [*AS_USER, sys.executable, STRANGER]
            outcomes = self.cluster.output(node, [*stranger, 4, *own], limit_s=200)
            self.check_outcomes(outcomes, ["signals", "processes", "watch over unix", "data over unix",
                                           "watch over tcp", "data over tcp"])
            self.assertIn("watch over tcp: refused after a challenge", outcomes, "it does reach the watch")
            self.assertIn("data over tcp: refused after a challenge", outcomes, "it does reach the data's port")
            self.check_secrets(self.cluster.output(node, [*stranger, "text", self.folder.name]), sum(pids, []))
        self.write("end", "")
        for job in jobs:
            self.assert_exit(job, 0)
            self.assertEqual(job.stdout().count(" rounds"), 2)
            self.assertNotIn("a stranger's words", job.stderr())

    def test_without_a_token(self):
        self.check()

    def test_with_a_token(self):
        self.write("token", "only the job's nodes know it")
        os.chmod(self.path("token"), 0o600)
        self.check("--rdzv-token-file", self.path("token"))


if __name__ == "__main__":
    if not os.access(RANKS, os.X_OK):
        sys.exit(f"WORKER_NETNS_PROGRAM={RANKS!r}: set it to the ranks' program")
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("SKIPPED: needs root and setpriv (Debian: util-linux)", file=sys.stderr)
        sys.exit(netns.SKIPPED)
    netns.require_netns()
    main()

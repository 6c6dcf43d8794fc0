"""Several machines on one: each node a network namespace with its own host name, hosts file and addresses.

    with netns.Cluster(4) as cluster:
        job = cluster.run(1, [muster, ...])     # a Popen; its pid is the program's own
        cluster.cut(2)                          # no FIN, no RST: silence

Processes started inside die with the cluster. The next cluster clears away those of killed tests.
Needs root and iproute2; without them, require_netns() ends the test run with 77 and says why.
"""
import atexit
import itertools
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "netns.sh")
SKIPPED = 77


def missing():
    """Returns what keeps this machine from having clusters, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "unshare"):
        if not shutil.which(tool):
            return f"there is no `{tool}` command (Debian: iproute2, util-linux)"
    if subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        return "this machine refuses new network namespaces"
    return None


def require_netns():
    why = missing()
    if why:
        print(f"SKIPPED: {why}", file=sys.stderr)
        sys.exit(SKIPPED)


def sweep():
    """Clears away the clusters of tests that have ended; the prefix carries the test's pid."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    prefixes = {m.group(1): int(m.group(2)) for m in re.finditer(r"^(mu(\d+)c\d+)-", listed, re.MULTILINE)}
    for prefix, pid in prefixes.items():
        if not os.path.exists(f"/proc/{pid}"):
            subprocess.run([SCRIPT, "down"], env=dict(os.environ, PFX=prefix), check=True)


class Middlebox:
    """A forgetful middlebox between one node and the switch; see netns_middlebox.py."""

    def __init__(self, cluster, i, idle_s):
        self.process = cluster.run("hub", [sys.executable, os.path.join(HERE, "netns_middlebox.py"), f"v{i}", f"n{i}",
                                           str(idle_s)], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if line != "forwarding\n":
            raise RuntimeError(f"the middlebox of node {i} did not start: {line!r}")

    def wait_for_drop(self):
        """Blocks until the box drops a segment of a flow that it has forgotten (once per flow). Returns the two ports."""
        line = self.process.stdout.readline()
        return sorted(int(port) for port in line.split()[1:])


class Cluster:
    numbers = itertools.count(1)

    def __init__(self, n, ipv6=False, two_nics=False):
        """ipv6: False for IPv4 alone, True for IPv6 alone, "both". two_nics: eth1 reaches the peers, eth0 no node."""
        self.n = n
        self.families = {False: "4", True: "6", "both": "46"}[ipv6]
        self.two_nics = two_nics
        self.prefix = f"mu{os.getpid()}c{next(Cluster.numbers)}"
        self.started = []

    def __enter__(self):
        sweep()
        atexit.register(self.down)
        try:
            self.call("up", self.n, self.families, *(["two-nics"] if self.two_nics else []))
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def down(self):
        """Kills and deletes everything; harmless if there is nothing."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
        self.call("down")
        for process in self.started:
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        self.started = []
        atexit.unregister(self.down)

    def call(self, *args):
        subprocess.run([SCRIPT, *map(str, args)], env=dict(os.environ, PFX=self.prefix), check=True)

    # ---- the nodes, from 1 to n

    @staticmethod
    def name(i):
        return f"node{i}"

    def address(self, i):
        """The address that the peers reach: IPv4 if there is one."""
        return f"10.99.0.{i}" if "4" in self.families else f"fd99::{i:x}"

    def nic(self):
        """The interface that reaches the peers."""
        return "eth1" if self.two_nics else "eth0"

    def namespace(self, i):
        return f"{self.prefix}-{i}"

    def run(self, i, argv, env=None, **popen):
        """Starts argv on node i (or "hub"). env is added to this process's environment."""
        full = dict(os.environ, **(env or {}), PFX=self.prefix)
        process = subprocess.Popen([SCRIPT, "exec", str(i), *map(str, argv)], env=full, **popen)
        self.started.append(process)
        return process

    def output(self, i, argv, limit_s=30):
        """Returns the standard output of a program on node i, which must succeed."""
        process = self.run(i, argv, stdout=subprocess.PIPE, text=True)
        out, _ = process.communicate(timeout=limit_s)
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, argv, out)
        return out

    # ---- faults

    def cut(self, i):
        """Unplugs node i: all frames are lost, and no FIN or RST is sent."""
        self.call("cut", i)

    def heal(self, i):
        self.call("heal", i)

    def drop(self, i, j):
        """Loses what node i sends to node j; the other way works."""
        self.call("drop", i, j)

    def undrop(self, i, j):
        self.call("undrop", i, j)

    def rate(self, i, limit):
        """Limits what node i sends: "10mbit"."""
        self.call("rate", i, limit)

    def unrate(self, i):
        self.call("unrate", i)

    def forward_idle_drop(self, i, idle_s):
        """Routes all traffic of node i through a middlebox that forgets TCP flows after idle_s of silence.
        It does not know earlier flows."""
        self.call("middle", i)
        return Middlebox(self, i, idle_s)

    # ---- names

    def names(self, i):
        """Returns node i's hosts file: [(address, name)]."""
        with open(self._hosts(i)) as f:
            return [tuple(line.split()[:2]) for line in f if line.strip()]

    def set_names(self, i, pairs):
        """Replaces node i's hosts file, in place, so that running programs see it too."""
        with open(self._hosts(i), "r+") as f:
            f.write("".join(f"{address} {name}\n" for address, name in pairs))
            f.truncate()

    def add_name(self, i, name, address):
        self.set_names(i, self.names(i) + [(address, name)])

    def forget_names(self, i):
        """Leaves node i with localhost alone: not even its own host name resolves."""
        self.set_names(i, [("127.0.0.1", "localhost"), ("::1", "localhost")])

    def own_name_is_loopback(self, i):
        """Maps the node's own name to 127.0.1.1 on the node itself, as Debian's installer does."""
        others = [(a, n) for a, n in self.names(i) if n != self.name(i)]
        self.set_names(i, others + [("127.0.1.1", self.name(i))])

    def _hosts(self, i):
        return f"/etc/netns/{self.namespace(i)}/hosts"

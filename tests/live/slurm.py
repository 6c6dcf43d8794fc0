"""A real Slurm for tests: munge, one controller and a slurmd on each node of a cluster of namespaces.

    with netns.Cluster(2) as nodes, slurm.Slurm(nodes, folder) as cluster:
        code, out, err = cluster.run("srun", "-N2", muster, "train.py")

The machine's own Slurm stays untouched: keys, sockets, state and logs lie in `folder`, and the daemons are children of the
test, ended by their pids. The programs are the machine's own, or those in $MUSTER_SLURM, a folder into which Debian's
packages were unpacked (./dev test makes it; installing the packages would start services).
"""
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

import netns
from harness import MUSTER, wait_for

SKIPPED = 77
PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmstepd", "srun", "sbatch", "salloc", "sinfo", "scancel", "squeue", "scontrol")
PORT = 17000

CONFIGURATION = """
ClusterName=test
SlurmctldHost=node1(10.99.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=10
{plugins}
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
TmpFS={folder}/tmp/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
LaunchParameters={launch}
MpiDefault=none
ReturnToService=2
KillWait={kill_wait}
{gpus}NodeName=node[1-{count}] NodeAddr=10.99.0.[1-{count}] Port={node_port} CPUs=8 RealMemory=1000{gres}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime={grace}
{preemption}"""

# Jobs of "urgent" take the nodes of those in "main", which get a signal, have GraceTime to end and are requeued.
PREEMPTION = """PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""


def find_programs():
    """Returns {name: path}; the path of a missing program is None."""
    unpacked = os.environ.get("MUSTER_SLURM")
    folders = [f"{unpacked}/usr/{sub}" for sub in ("bin", "sbin")] if unpacked else ["/usr/bin", "/usr/sbin"]
    found = {}
    for program in PROGRAMS:
        for name in (program, f"{program}-wlm"):  # Debian's alternatives link one to the other on installation.
            found.setdefault(program, shutil.which(name, path=":".join(folders)))
            found[program] = found[program] or shutil.which(name, path=":".join(folders))
    return found


def require_slurm():
    missing = [program for program, path in find_programs().items() if not path]
    if missing:
        print(f"SKIPPED: no Slurm: {', '.join(missing)} not found in MUSTER_SLURM={os.environ.get('MUSTER_SLURM', '')!r} "
              "nor on this machine (./dev test unpacks it)", file=sys.stderr)
        sys.exit(SKIPPED)


class Slurm:
    def __init__(self, nodes, folder, launch="enable_nss_slurm", gpus=0, kill_wait=3, grace=None):
        """`nodes`: a netns.Cluster. `launch`: LaunchParameters of slurm.conf. `gpus`: GPUs of each node (all /dev/null).
        `grace`: adds a partition "urgent" whose jobs pre-empt those of "main" after that many seconds."""
        self.nodes, self.folder, self.launch = nodes, folder, launch
        self.gpus, self.kill_wait, self.grace = gpus, kill_wait, grace
        self.programs = find_programs()
        self.daemons = []
        self.env = {"SLURM_CONF": f"{folder}/slurm.conf"}
        self.plugins = ""
        unpacked = os.environ.get("MUSTER_SLURM")
        if unpacked:
            libraries = f"{unpacked}/usr/lib/x86_64-linux-gnu"
            self.plugins = f"PluginDir={libraries}/slurm-wlm"
            self.env["LD_LIBRARY_PATH"] = f"{libraries}/slurm-wlm:{libraries}"

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def start(self):
        self.link_programs()
        for name in ("state", "spool", "tmp", *(f"{d}/node{i}" for d in ("spool", "tmp") for i in self.numbers())):
            os.mkdir(f"{self.folder}/{name}")
        self.write("munge.key", os.urandom(1024), 0o600)
        self.write("slurm.conf", CONFIGURATION.format(
            folder=self.folder, plugins=self.plugins, launch=self.launch, port=PORT, node_port=PORT + 1,
            count=self.nodes.n, kill_wait=self.kill_wait, gpus="GresTypes=gpu\n" if self.gpus else "",
            gres=f" Gres=gpu:{self.gpus}" if self.gpus else "",
            grace=self.grace or 0, preemption="" if self.grace is None else PREEMPTION).encode())
        if self.gpus:
            self.make_gpus()
        # No cgroup is used, but slurmd's own search for cgroups fails inside a namespace.
        self.write("cgroup.conf", b"CgroupPlugin=cgroup/v1\n")
        self.daemon(1, "munged", "--foreground", "--force", "--key-file", f"{self.folder}/munge.key", "--socket",
                    f"{self.folder}/munge.sock", "--pid-file", f"{self.folder}/munged.pid", "--log-file",
                    f"{self.folder}/munged.log", "--seed-file", f"{self.folder}/munge.seed")
        wait_for(lambda: os.path.exists(f"{self.folder}/munge.sock"), "munged listens")
        self.daemon(1, "slurmctld", "-D")
        for i in self.numbers():
            self.daemon(i, "slurmd", "-D", "-N", self.nodes.name(i), "-d", self.programs["slurmstepd"])
        wait_for(self.all_idle, "every node of the Slurm cluster is idle; see " + self.folder)

    def link_programs(self):
        """Links the programs under their plain names: a daemon derives its role from its name, and one that runs as
        slurmctld-wlm does not know GPUs."""
        os.mkdir(f"{self.folder}/bin")
        for program, path in self.programs.items():
            os.symlink(path, f"{self.folder}/bin/{program}")
            self.programs[program] = f"{self.folder}/bin/{program}"

    def make_gpus(self):
        for k in range(self.gpus):
            os.mknod(f"{self.folder}/gpu{k}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        # No node's name: the line holds for all nodes.
        self.write("gres.conf", f"Name=gpu File={self.folder}/gpu[0-{self.gpus - 1}]\n".encode())

    def numbers(self):
        return range(1, self.nodes.n + 1)

    def write(self, name, content, mode=0o644):
        with open(f"{self.folder}/{name}", "wb", opener=lambda path, flags: os.open(path, flags, mode)) as f:
            f.write(content)

    def daemon(self, i, program, *args):
        log = open(f"{self.folder}/{program}-{i}.out", "wb")
        self.daemons.append(self.nodes.run(i, [self.programs[program], *args], env=self.env, stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log))
        log.close()

    def all_idle(self):
        done = self.command("sinfo", "-h", "-N", "-p", "main", "-o", "%T")
        out, _ = done.communicate(timeout=30)
        return done.returncode == 0 and out.split() == ["idle"] * self.nodes.n

    def command(self, program, *args, env=None):
        """Starts a client on node 1, with its output in pipes."""
        return self.nodes.run(1, [self.programs[program], *args], env={**self.env, **(env or {})},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, program, *args, env=None, limit_s=60):
        """Runs a client to its end. Returns (exit code, stdout, stderr)."""
        process = self.command(program, *map(str, args), env=env)
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{program} {args} has not ended after {limit_s} s:\n{out}\n{err}") from None
        return process.returncode, out, err


class OnSlurm(unittest.TestCase):
    """Tests that share one Slurm of four nodes, made with OPTIONS."""

    OPTIONS = {}

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        nodes = cls.enterClassContext(netns.Cluster(4))
        cls.slurm = cls.enterClassContext(Slurm(nodes, cls.folder, **cls.OPTIONS))
        # Batch scripts find Slurm's programs, and muster, as on any cluster.
        cls.path = ":".join([os.path.dirname(cls.slurm.programs["srun"]), os.path.dirname(MUSTER), os.environ["PATH"]])

    def run_slurm(self, program, *args, env=None):
        return self.slurm.run(program, *args, env={"PATH": self.path, **(env or {})})

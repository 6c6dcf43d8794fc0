"""Several launchers that form one job, each a node of its own, on loopback."""
import os
import re
import signal

from harness import Job, LiveTest, children_of, nothing_happens_for, wait_for, within
from ports import free_port, listeners

# Every attempt of every worker leaves a line; then it does what the file `do.RANK`, or `do`, says.
WORKER = """#!/bin/bash
    echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR $MASTER_PORT $NODE" >>{log}
    while true; do
      for order in {folder}/do.$NODE.$LOCAL_RANK {folder}/do.$RANK {folder}/do; do
        if [ -e $order ]; then
          words=$(cat $order)
          case $words in
            done) exit 0 ;;
            fail*) rm -f $order; echo "last words of rank $RANK" >&2; exit ${{words#fail}} ;;
          esac
        fi
      done
      read -t 0.02 <>{fifo}
    done
    # {marker}
"""


class Start:
    """One line that a worker wrote when it started."""

    def __init__(self, line):
        words = line.split(" ")
        (self.rank, self.local_rank, self.world, self.local_world, self.group_rank, self.nodes, self.restart) = map(
            int, words[:7])
        self.master_addr, self.master_port, self.node = words[7], int(words[8]), words[9]


class NodesTest(LiveTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        os.mkfifo(self.path("fifo"))
        self.write("log", "")
        self.worker = self.write(f"w-{self.marker}.sh", WORKER.format(
            log=self.path("log"), folder=self.folder.name, fifo=self.path("fifo"), marker=self.marker))
        self.jobs = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for job in self.jobs:
            job.__exit__()
        self.assert_nothing_left()

    def node(self, name, *flags, env=None, **popen):
        """Starts one node of the job; `flags` come before the program."""
        job = Job(*flags, "--no-python", self.worker, env={"NODE": name, **(env or {})}, **popen)
        job.name = name
        self.jobs.append(job)
        return job

    def static(self, rank, nodes, *flags):
        return self.node(f"n{rank}", "--nnodes", nodes, "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port",
                         self.port, *flags)

    def elastic(self, name, nodes, *flags, env=None, **popen):
        return self.node(name, "--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}",
                         "--rdzv-id", "job", *flags, env=env, **popen)

    def ranked(self, rank, nodes, *flags):
        """An elastic node that asks for a rank; rank 0 is the host, so that tests know whom they hit."""
        return self.elastic(f"n{rank}", nodes, "--node-rank", rank, "--rdzv-conf", f"is_host={rank == 0}", *flags)

    def listens(self, job):
        """Whether this node's agent holds the endpoint's port."""
        sockets = {f"socket:[{inode}]" for inode in listeners(self.port)}
        for agent in children_of(job.pid):
            for name in os.listdir(f"/proc/{agent}/fd"):
                try:
                    if os.readlink(f"/proc/{agent}/fd/{name}") in sockets:
                        return True
                except OSError:
                    pass
        return False

    def starts(self):
        return [Start(line) for line in self.read("log").splitlines()]

    def wait_starts(self, count, limit_s=None):
        """The lines of the workers, once there are so many."""
        try:
            wait_for(lambda: len(self.starts()) >= count, f"{count} worker starts", limit_s or within(3))
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.read('log')}\n" + self.all_errors()) from None
        return self.starts()

    def no_new_round(self, seconds):
        """For that long no worker starts."""
        before = len(self.starts())
        nothing_happens_for(seconds, lambda: self.assertEqual(len(self.starts()), before, self.all_errors()))

    def order(self, what, who=None):
        name = "do" if who is None else f"do.{who}"
        with open(self.path(name + ".new"), "w") as f:
            f.write(what)
        os.rename(self.path(name + ".new"), self.path(name))

    def end_well(self, *jobs):
        """Ends all workers with 0, and checks that these nodes exit with 0."""
        self.order("done")
        for job in jobs:
            self.assert_exit(job, 0)

    def all_errors(self):
        return "\n".join(f"--- {job.name}:\n{job.stderr()}" for job in self.jobs)

    def assert_exit(self, job, code, limit_s=None):
        try:
            self.assertEqual(job.wait(limit_s or within(3)), code, self.all_errors())
        except Exception as e:
            raise AssertionError(f"{job.name}: {e}\n{self.all_errors()}") from None

    def assert_world(self, starts, nodes, world, restart=None):
        """These starts are one whole world: dense ranks, one master, everything consistent."""
        self.assertEqual(sorted(s.rank for s in starts), list(range(world)), self.all_errors())
        self.assertEqual({s.world for s in starts}, {world})
        self.assertEqual({s.nodes for s in starts}, {nodes})
        self.assertEqual({s.group_rank for s in starts}, set(range(nodes)))
        self.assertEqual(len({(s.master_addr, s.master_port) for s in starts}), 1)
        if restart is not None:
            self.assertEqual({s.restart for s in starts}, {restart})
        for node in {s.node for s in starts}:
            own = sorted(s.rank for s in starts if s.node == node)
            self.assertEqual(own, list(range(own[0], own[0] + len(own))))

    def kill_node(self, job):
        """As if the machine lost its power: front and agent at once, its workers with them."""
        agents = children_of(job.pid)
        os.kill(job.pid, signal.SIGKILL)
        for agent in agents:
            try:
                os.kill(agent, signal.SIGKILL)
            except ProcessLookupError:
                pass
        job.process.wait()

    def verdict(self, job):
        """The block between the two rules."""
        found = re.search(r"^=+\n(.*?)^=+\n", job.stderr(), re.S | re.M)
        self.assertTrue(found, self.all_errors())
        return found.group(1)

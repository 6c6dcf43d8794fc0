"""Whatever is killed, nothing of the job is left: front, agent, the front's process group, clean and failed ends."""
import os
import signal
import subprocess
import sys
import time

from harness import Job, LiveTest, alive_with, children_of, is_gone, main, name_of, run, wait_for, within

# A worker with a child in its own group and a grandchild that does all it can to get away: new session, double
# fork, cleared environment. All carry the marker as an argument.
ESCAPING = r"""#!/bin/bash
sleep 1000 {marker} 2>/dev/null &
env -i setsid /usr/bin/env bash -c 'bash -c "exec -a escaped-{marker} sleep 1000" & disown; exit 0' >/dev/null 2>&1
touch {folder}/up.$RANK
exec -a worker-{marker} sleep 1000
"""


class NothingLeft(LiveTest):
    def start(self, workers=2):
        script = self.write("worker.sh", ESCAPING.format(
            marker=self.marker, folder=self.folder.name))
        job = Job("--nproc-per-node", workers, "--no-python", script, start_new_session=True)
        self.addCleanup(job.__exit__)
        self.wait_for_files(*[f"up.{rank}" for rank in range(workers)])
        wait_for(lambda: len(alive_with(f"escaped-{self.marker}")) == workers, "escaped grandchildren")
        wait_for(lambda: len(alive_with(f"worker-{self.marker}")) == workers, "workers")
        return job

    def test_kill_of_the_front(self):
        job = self.start()
        agent = job.agent()
        os.kill(job.pid, signal.SIGKILL)
        self.assert_nothing_left()
        wait_for(lambda: is_gone(agent), "the agent ends too")

    def test_kill_of_the_agent(self):
        job = self.start()
        os.kill(job.agent(), signal.SIGKILL)
        self.assertEqual(job.wait(), 120)
        self.assert_nothing_left()
        self.assertIn("was killed by SIGKILL", job.stderr())

    def test_kill_of_the_fronts_process_group(self):
        job = self.start()
        agent = job.agent()
        self.assertEqual(os.getpgid(agent), agent)
        os.killpg(job.pid, signal.SIGKILL)
        self.assert_nothing_left()
        wait_for(lambda: is_gone(agent), "the agent ends too")

    def test_a_stopped_agent_that_is_killed(self):
        job = self.start()
        agent = job.agent()
        os.kill(agent, signal.SIGSTOP)
        os.kill(agent, signal.SIGKILL)
        job.wait()
        self.assert_nothing_left()

    def test_stopped_workers_are_killed_too(self):
        job = self.start()
        for pid in alive_with(self.marker):
            os.kill(pid, signal.SIGSTOP)
        os.kill(job.pid, signal.SIGKILL)
        self.assert_nothing_left()

    def test_failure_of_one_rank(self):
        script = self.write("worker.sh", ESCAPING.format(
            marker=self.marker, folder=self.folder.name) .replace(
                "exec -a worker", '[ "$RANK" = 1 ] && exit 7\nexec -a worker'))
        code, _, err = run("--nproc-per-node", 2, "--no-python", script)
        self.assertEqual(code, 7, err)
        self.assert_nothing_left()

    def test_two_kills_between_kills(self):
        """Workers that fork while they are being killed: again and again until the tree is empty."""
        script = self.write("forker.sh", f"""#!/bin/bash
            trap '' TERM
            touch {self.folder.name}/up.$RANK
            while :; do bash -c 'exec -a forked-{self.marker} sleep 1000' & sleep 0.002; done
            """)
        job = Job("--nproc-per-node", 2, "--no-python", script)
        self.addCleanup(job.__exit__)
        self.wait_for_files("up.0", "up.1")
        wait_for(lambda: len(alive_with(f"forked-{self.marker}")) > 20, "some forked processes")
        os.kill(job.agent(), signal.SIGKILL)
        job.wait()
        self.assert_nothing_left()

    def test_children_from_before_exec_are_not_ours(self):
        """A pid that becomes muster by exec keeps its old children, and they live on when the job is killed."""
        flag = self.path("go")
        shell = subprocess.Popen(
            ["bash", "-c", f"bash -c 'exec -a older-{self.marker} sleep 1000' & "
             f"exec {os.environ['MUSTER']} --no-python bash -c 'touch {flag}; exec -a worker-{self.marker} sleep 1000'"],
            stderr=subprocess.DEVNULL)
        wait_for(lambda: os.path.exists(flag), "the worker is up")
        older = wait_for(lambda: alive_with(f"older-{self.marker}"), "the older child")
        agent, = [p for p in children_of(shell.pid) if name_of(p) == "muster-agent"]
        os.kill(agent, signal.SIGKILL)
        shell.wait(30)
        self.assertEqual(alive_with(f"older-{self.marker}"), older)
        self.assertEqual(alive_with(f"worker-{self.marker}"), [])
        os.kill(older[0], signal.SIGKILL)


class Leftovers(LiveTest):
    LEAVES_SLEEP = "#!/bin/bash\nbash -c 'exec -a left-{marker} sleep {seconds}' >/dev/null 2>&1 &\nexit 0\n"

    def test_what_successful_ranks_leave_is_named_then_stopped(self):
        script = self.write("w.sh", self.LEAVES_SLEEP.format(marker=self.marker, seconds=1000))
        code, _, err = run("--shutdown-timeout", "1", "--nproc-per-node", 2, "--no-python", script)
        self.assertEqual(code, 0, err)
        self.assert_nothing_left()
        lines = [line for line in err.splitlines() if "left processes running" in line]
        self.assertEqual(len(lines), 1, err)
        self.assertIn("(sleep)", lines[0])

    def test_what_ends_within_the_grace_is_left_alone(self):
        script = self.write("w.sh", f"#!/bin/bash\n(sleep 1; touch {self.path('finished')}) >/dev/null 2>&1 &\nexit 0\n")
        code, _, err = run("--shutdown-timeout", "20", "--no-python", script)
        self.assertEqual(code, 0, err)
        self.assertTrue(self.exists("finished"))

    def test_a_child_that_holds_the_pipe_delays_no_end(self):
        script = self.write("w.sh", f"#!/bin/bash\necho before\nbash -c 'exec -a left-{self.marker} sleep 1000' &\nexit 3\n")
        code, out, _ = run("--no-python", script)
        self.assertEqual((code, out), (3, "before\n"))
        self.assert_nothing_left()


# Stands for torch's: it removes what its client has left once its end of a socket is closed, and TERM ends it.
MANAGER = f"#!{sys.executable}" + """
import os, sys
open(sys.argv[1], "w").close()
sys.stdin.read()
os.unlink(sys.argv[1])
"""
SHARES = """
import os, signal, subprocess, sys, time
from multiprocessing import shared_memory
signal.signal(signal.SIGINT, signal.SIG_IGN)
shared = shared_memory.SharedMemory(create=True, size=1 << 20)
folder, manager = sys.argv[1:]
subprocess.Popen([manager, f"{folder}/managed." + os.environ["RANK"]], stdin=subprocess.PIPE, start_new_session=True)
while not os.path.exists(f"{folder}/managed." + os.environ["RANK"]):
    time.sleep(0.01)
open(f"{folder}/up." + os.environ["RANK"], "w").write(shared.name)
while not os.path.exists(f"{folder}/end"):
    time.sleep(0.1)
"""


class SharedMemory(LiveTest):
    """Python's resource tracker and torch's manager remove what the dead have left in shared memory, if they live to see it."""

    def start(self, manager):
        manager = self.write("torch_shm_manager", manager)
        job = Job("--nproc-per-node", 2, self.write("w.py", SHARES), self.folder.name, manager)
        self.addCleanup(job.__exit__)
        def names():
            return [self.read(f"up.{rank}") for rank in (0, 1) if self.exists(f"up.{rank}")]
        wait_for(lambda: len([name for name in names() if name]) == 2, "both ranks share memory")
        return job, [f"/dev/shm/{name}" for name in names()] + [self.path(f"managed.{rank}") for rank in (0, 1)]

    def assert_removed(self, files):
        wait_for(lambda: not [f for f in files if os.path.exists(f)], lambda: f"none of {files} is left")
        for rank in (0, 1):
            os.unlink(self.path(f"up.{rank}"))

    def test_its_helpers_clean_up_however_the_job_ends(self):
        for how in (lambda job: job.signal(signal.SIGTERM), lambda job: [job.signal(signal.SIGINT), wait_for(
                lambda: "SIGINT: stopping" in job.stderr(), "the stop"), job.signal(signal.SIGQUIT)],
                lambda job: job.signal(signal.SIGKILL), lambda job: os.kill(job.agent(), signal.SIGKILL)):
            job, files = self.start(MANAGER)
            how(job)
            job.wait()
            self.assert_removed(files)

    def test_a_helper_that_does_not_end_gets_a_second(self):
        job, _ = self.start("#!/bin/sh\ntouch $1\nkill -STOP $$\n")
        began = time.monotonic()
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertLess(time.monotonic() - began, within(1, below=30))

    def test_a_helper_that_does_not_end_gets_a_second_after_ctrl_c_as_the_ranks_have_ended(self):
        job, _ = self.start("#!/bin/sh\ntouch $1\nkill -STOP $$\n")
        self.write("end", "")
        wait_for(lambda: "left processes running" in job.stderr(), "the ranks have ended")
        began = time.monotonic()
        job.signal(signal.SIGINT)
        job.wait()
        self.assertLess(time.monotonic() - began, within(1, below=30))


if __name__ == "__main__":
    main()

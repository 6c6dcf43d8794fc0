"""Signals to the launcher: orderly ends at every moment, forwarding, nohup, terminal job control, PID 1."""
import json
import os
import pty
import select
import signal
import subprocess

from harness import LIMIT_S, MUSTER, Job, LiveTest, alive_with, is_gone, main, pause, processes, run, wait_for

# Writes each signal it gets to got.RANK; ends on TERM, INT, QUIT or HUP only after $ENDING seconds.
COUNTING = """#!/usr/bin/env python3
import os, signal, sys, time
rank = os.environ["RANK"]
folder, marker = sys.argv[1:3]
def got(number, _):
    with open(f"{folder}/got.{rank}", "a") as f:
        f.write(signal.Signals(number).name + "\\n")
    if number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        time.sleep(float(os.environ.get("ENDING", "0")))
        sys.exit(int(os.environ.get("END_CODE", "0")))
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
               signal.SIGALRM, signal.SIGRTMIN):
    if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
        continue
    signal.signal(number, got)
open(f"{folder}/up.{rank}", "w").close()
while True:
    time.sleep(0.05)
"""


class Base(LiveTest):
    def start(self, *flags, workers=2, env=None, **popen):
        script = self.write("counting.py", COUNTING)
        job = Job("--nproc-per-node", workers, *flags, "--no-python", script, self.folder.name, self.marker,
                  env=env, **popen)
        self.addCleanup(job.__exit__)
        self.wait_for_files(*[f"up.{rank}" for rank in range(workers)])
        return job

    def got(self, rank):
        return self.read(f"got.{rank}").split() if self.exists(f"got.{rank}") else []


class Ending(Base):
    def check(self, number):
        job = self.start()
        job.signal(number)
        self.assertEqual(job.wait(), 128 + number)
        for rank in range(2):
            self.assertEqual(self.got(rank), [number.name])
        self.assertIn(f"{number.name}: stopping ranks 0-1", job.stderr())
        self.assert_nothing_left()

    def test_sigterm_stops_each_worker_once(self):
        self.check(signal.SIGTERM)

    def test_sigint_stops_each_worker_once(self):
        self.check(signal.SIGINT)

    def test_sigquit_stops_each_worker_once(self):
        self.check(signal.SIGQUIT)

    def test_sighup_stops_each_worker_once(self):
        self.check(signal.SIGHUP)

    def test_a_worker_that_dies_of_our_signal_is_no_culprit(self):
        job = Job("--nproc-per-node", 2, "--max-restarts", 3, "--no-python", "bash", "-c",
                  f"touch {self.folder.name}/up.$RANK; exec -a {self.marker} sleep 1000")
        self.addCleanup(job.__exit__)
        self.wait_for_files("up.0", "up.1")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertNotIn("FAILED", job.stderr())
        self.assertNotIn("Root Cause", job.stderr())

    def test_workers_that_outlast_the_grace_are_killed(self):
        job = self.start("--shutdown-timeout", "0.5", env={"ENDING": "1000"})
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertEqual(self.got(0), ["SIGTERM"])
        self.assert_nothing_left()

    def test_a_save_within_the_grace_is_finished(self):
        job = self.start("--shutdown-timeout", "20", env={"ENDING": "1.5"})
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertNotIn("SIGKILL;", job.stderr())

    def test_a_second_int_kills_at_once(self):
        job = self.start("--shutdown-timeout", "600", env={"ENDING": "1000"})
        job.signal(signal.SIGINT)
        wait_for(lambda: self.got(0) and self.got(1), "the first INT arrived")
        pause(0.15, "a repetition within 100 ms is taken for the same request: see the next test")
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 130)
        self.assert_nothing_left()

    def test_timeout_1_sends_its_signal_twice_and_the_grace_still_holds(self):
        """A signal to timeout(1) makes it do what it does when the time is up."""
        job = self.start(workers=1, env={"ENDING": "1"}, under=("timeout", "1000"))
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertEqual(self.got(0), ["SIGTERM"])
        self.assertNotIn("SIGKILL;", job.stderr())

    def test_a_signal_before_the_workers_run_ends_the_job(self):
        """A signal at any moment from the first millisecond on ends the job and leaves nothing."""
        for delay_ms in (0, 1, 2, 3, 4, 6, 10, 20):
            with Job("--nproc-per-node", 4, "--no-python", "bash", "-c", f"exec -a {self.marker} sleep 1000") as job:
                wait_for(lambda j=job: os.path.realpath(f"/proc/{j.pid}/exe") == os.path.realpath(MUSTER), "exec")
                pause(delay_ms / 1000, "any moment")
                job.signal(signal.SIGTERM)
                code = job.wait()
                # Until main blocks signals, the default action ends the process: a shell shows the same 143.
                self.assertIn(code, (143, -signal.SIGTERM))
            self.assert_nothing_left()

    def test_a_signal_to_front_and_agent_is_one_stop(self):
        """pkill hits both processes: it must still be one orderly stop, not a kill."""
        job = self.start(env={"ENDING": "0.5"})
        agent = job.agent()
        os.kill(agent, signal.SIGTERM)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertEqual(self.got(0), ["SIGTERM"])

    def test_a_signal_during_the_back_off_ends_the_job(self):
        job = Job("--max-restarts", 10, "--no-python", "false")
        self.addCleanup(job.__exit__)
        wait_for(lambda: job.stderr().count("restart") >= 4, "a few quick deaths")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)


class AfterTheEnd(LiveTest):
    """A signal after the workers' end: the files give the same outcome as the exit code."""

    def start_gated(self, home, *flags, env=None):
        """Starts a job whose only worker ends when the gate is opened. Returns (job, pidfd of the worker)."""
        os.mkfifo(f"{home}/gate")
        job = Job("--log-dir", f"{home}/logs", *flags, "--no-python", "bash", "-c",
                  f"cd {home}; echo $BASHPID >new; mv new pid; exec cat gate", env=env)
        self.addCleanup(job.__exit__)
        wait_for(lambda: os.path.exists(f"{home}/pid"), "the worker is up")
        with open(f"{home}/pid") as f:
            return job, self.pidfd(int(f.read()))

    def pidfd(self, pid):
        fd = os.pidfd_open(pid)
        self.addCleanup(os.close, fd)
        return fd

    def open_gate(self, home, worker):
        with open(f"{home}/gate", "wb"):
            pass
        self.assertTrue(select.select([worker], [], [], LIMIT_S)[0], "the worker ends")

    def check_files(self, home, code):
        run_folder, = [entry.path for entry in os.scandir(f"{home}/logs")]
        with open(f"{run_folder}/events.jsonl") as f:
            events = [json.loads(line) for line in f]
        with open(f"{run_folder}/result.json") as f:
            result = json.load(f)
        self.assertEqual((events[-1]["event"], events[-1]["exit_code"]), ("job_ended", code))
        self.assertEqual((result["exit_code"], result["outcome"]), (code, "stopped" if code == 143 else "success"))

    def rounds(self, to_agent, *flags):
        for moment in range(20):
            with self.subTest(moment=moment):
                home = self.path(str(moment))
                os.mkdir(home)
                job, worker = self.start_gated(home, *[flag.format(home) for flag in flags])
                agent = self.pidfd(job.agent())
                self.open_gate(home, worker)
                # A pause of a different length for each round, to meet another moment of the end.
                select.select([agent], [], [], moment / 4000)
                if not to_agent:
                    job.signal(signal.SIGTERM)
                elif not select.select([agent], [], [], 0)[0]:
                    signal.pidfd_send_signal(agent, signal.SIGTERM)
                code = job.wait()
                self.assertIn(code, (0, 143))  # Depends on the moment of the signal.
                self.check_files(home, code)

    def test_the_files_agree_with_the_exit_code_at_every_moment(self):
        self.rounds(False)

    def test_the_files_agree_if_the_agent_is_signalled(self):
        self.rounds(True)

    def test_the_files_agree_in_a_job_of_nodes(self):
        self.rounds(False, "--rdzv-backend", "file", "--rdzv-endpoint", "{}/meet")

    def test_a_first_signal_waits_for_the_files(self):
        """The files are written after the job's folder for musterctl is removed, here on a frozen disk."""
        disk, freeze, thaw = self.frozen_disk()
        job, worker = self.start_gated(self.folder.name, env={"MUSTER_RUN_DIR": disk})
        freeze()
        self.open_gate(self.folder.name, worker)
        wait_for(lambda: "the job has ended" in job.stderr(), "the end")
        job.signal(signal.SIGTERM)
        wait_for(lambda: "a second signal leaves without them" in job.stderr(), "the reason for staying")
        thaw()
        self.assertEqual(job.wait(), 0)
        self.check_files(self.folder.name, 0)


class Forwarding(Base):
    def test_user_signals_reach_every_worker_once_and_end_nothing(self):
        job = self.start()
        expected = []
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.Signals(signal.SIGRTMIN)):
            job.signal(number)
            expected.append(number.name)
            for rank in range(2):
                wait_for(lambda r=rank: self.got(r) == expected, f"rank {rank} got {expected}")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertEqual(self.got(0), expected + ["SIGTERM"])

    def test_signals_to_handle_makes_a_signal_end_the_job(self):
        job = self.start("--signals-to-handle", "SIGUSR1,SIGTERM")
        job.signal(signal.SIGUSR1)
        wait_for(lambda: self.got(0) == ["SIGUSR1"], "the signal itself is passed on")
        # The workers go on after USR1: TERM ends them.
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 128 + signal.SIGUSR1)


class Nohup(Base):
    def test_hup_stays_ignored_for_launcher_and_workers(self):
        job = self.start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        job.signal(signal.SIGHUP)
        for pid in alive_with(self.marker):
            os.kill(pid, signal.SIGHUP)
        job.signal(signal.SIGUSR1)
        wait_for(lambda: self.got(0) == ["SIGUSR1"] and self.got(1) == ["SIGUSR1"], "alive after HUP")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)

    def test_signals_that_the_user_ignores_stay_ignored_and_the_mask_is_empty(self):
        code, out, _ = run("--no-python", "bash", "-c", "grep -E 'Sig(Ign|Blk)' /proc/self/status",
                           preexec_fn=lambda: (signal.signal(signal.SIGUSR1, signal.SIG_IGN),
                                               signal.signal(signal.SIGINT, signal.SIG_IGN),
                                               signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])))
        self.assertEqual(code, 0)
        masks = {line.split(":")[0]: int(line.split()[1], 16) for line in out.splitlines()}
        self.assertEqual(masks, {"SigBlk": 0, "SigIgn": 1 << (signal.SIGUSR1 - 1)})


class JobControl(Base):
    def state(self, pid):
        return processes()[pid][1]

    def test_tstp_stops_and_cont_continues_all_workers(self):
        job = self.start()
        agent = job.agent()
        workers = [p for p in alive_with(self.marker) if p not in (job.pid, agent)]
        self.assertEqual(len(workers), 2)
        job.signal(signal.SIGTSTP)
        wait_for(lambda: self.state(job.pid) == "T", "the front is stopped")
        wait_for(lambda: all(self.state(worker) == "T" for worker in workers), "so are the workers")
        self.assertNotEqual(self.state(agent), "T")
        job.signal(signal.SIGCONT)
        wait_for(lambda: all(self.state(p) != "T" for p in [job.pid, *workers]), "all run again")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)

    def test_a_shell_with_job_control_stops_and_continues_the_job(self):
        """Presses Ctrl-Z, types fg and presses Ctrl-C at a real terminal, in an interactive shell."""
        script = self.write("counting.py", COUNTING)
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ["PS1"] = "$ "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.addCleanup(lambda: (os.kill(pid, signal.SIGKILL), os.waitpid(pid, 0)))
        screen = bytearray()
        os.set_blocking(terminal, False)

        def shows(text):
            try:
                screen.extend(os.read(terminal, 65536))
            except (BlockingIOError, OSError):
                pass
            return text in screen

        os.write(terminal, f"{MUSTER} --nproc-per-node 2 --no-python {script} {self.folder.name} {self.marker}\n"
                 .encode())
        self.wait_for_files("up.0", "up.1")
        os.write(terminal, b"\x1a")
        wait_for(lambda: shows(b"Stopped"), "the shell says Stopped")
        os.write(terminal, b"fg\n")
        wait_for(lambda: not [p for p in alive_with(self.marker) if self.state(p) == "T"], "all run again")
        os.write(terminal, b"\x03")
        wait_for(lambda: shows(b"SIGINT: stopping"), "the countdown line")
        os.write(terminal, b"echo code=$?\n")
        wait_for(lambda: shows(b"code=130"), "the exit code")
        self.assertEqual(self.got(0), ["SIGINT"])


class AsPid1(Base):
    def test_process_1_reaps_orphans_and_returns_the_exit_code(self):
        """Runs in a PID namespace of its own, as in a container without an init."""
        script = self.write("orphans.sh", "#!/bin/bash\n"
                            "for i in 1 2 3; do (setsid bash -c 'sleep 0.05' &) ; done\nsleep 0.5\n"
                            "ps -eo stat= | grep -c Z\nexit 5\n")
        done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", MUSTER, "--no-python", script],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertEqual(done.stdout, "0\n", done.stderr)

    def test_term_reaches_the_job(self):
        script = self.write("counting.py", COUNTING)
        unshare = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", MUSTER, "--no-python", script,
                                    self.folder.name, self.marker], stderr=subprocess.DEVNULL)
        self.wait_for_files("up.0")
        front = wait_for(lambda: [p for p, (parent, _, _) in processes().items() if parent == unshare.pid], "PID 1")[0]
        os.kill(front, signal.SIGTERM)
        self.assertEqual(unshare.wait(30), 143)
        self.assertEqual(self.got(0), ["SIGTERM"])
        wait_for(lambda: is_gone(front), "gone")


if __name__ == "__main__":
    main()

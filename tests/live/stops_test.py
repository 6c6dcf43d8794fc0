"""A stop loses nothing: which process gets the first signal, that each gets it once, and that a console may go with it."""
import os
import pty
import signal
import subprocess
import sys

from harness import (MUSTER, Job, LiveTest, children_of, is_gone, is_witness, main, name_of, pause, processes, signal_all, wait_for,
                     within)

# Saves as a trainer does: it notes the signal, ends its step and writes a file. Saving needs its loader.
SAVER = """#!/usr/bin/env python3
import multiprocessing, os, signal, sys, time
folder, rank = sys.argv[1], os.environ["RANK"]
got = []
def note(number, frame):
    got.append(number)
    with open(f"{folder}/got.{rank}", "a") as f:
        f.write(signal.Signals(number).name + "\\n")
    if os.environ.get("RAISES"):
        raise KeyboardInterrupt
def load(queue):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN if os.environ.get("UNTIL") else signal.SIG_DFL)
    if os.environ.get("LOADER_SESSION"):
        os.setsid()
    while True:
        queue.put(time.sleep(0.02))
def step():
    while loader.is_alive():
        try:
            return queue.get(timeout=0.1)
        except Exception:
            pass
    raise RuntimeError("the loader has ended")
def save():
    for part in range(int(os.environ.get("PARTS", "5"))):
        step()
        print("saving part", part, flush=True)
    while os.environ.get("UNTIL") and not os.path.exists(os.environ["UNTIL"]):
        step()
    open(f"{folder}/saved.{rank}", "w").close()
queue = multiprocessing.Queue(2)
loader = multiprocessing.Process(target=load, args=(queue,), daemon=True)
loader.start()
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, note)
step()
open(f"{folder}/up.{rank}", "w").close()
try:
    while not got:
        step()
except KeyboardInterrupt:
    pass
save()
sys.exit(int(os.environ.get("CODE", "0")))
"""
# Passes a signal on to the program that it runs, as profilers and `uv run` do, and then writes its report.
PROFILER = """#!/usr/bin/env python3
import os, signal, subprocess, sys, time
program = subprocess.Popen(sys.argv[1:])
def pass_on(number, frame):
    time.sleep(0.3)
    program.send_signal(number)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, pass_on)
code = program.wait()
open(f"{sys.argv[2]}/report.{os.environ['RANK']}", "w").close()
sys.exit(code)
"""
WAITER = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
POLLER = """
import subprocess, sys, time
child = subprocess.Popen(sys.argv[1:])
try:
    while child.poll() is None:
        time.sleep(0.05)
except KeyboardInterrupt:
    child.wait()
sys.exit(child.returncode)
"""


def is_pending(pid, number):
    """Returns True if the process has been sent the signal and has not handled it yet (proc(5))."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as f:
        pending = next(int(line.split()[1], 16) for line in f if line.startswith("ShdPnd:"))
    return bool(pending >> (number - 1) & 1)


class Base(LiveTest):
    def start(self, *program, flags=(), workers=2, **options):
        self.saver = self.write("saver.py", SAVER)
        program = [word.replace("SAVER", f"{self.saver} {self.folder.name} {self.marker}") for word in program]
        job = Job("--nproc-per-node", workers, *flags, "--no-python", *program, **options)
        self.addCleanup(job.__exit__)
        self.wait_for_files(*[f"up.{rank}" for rank in range(workers)])
        return job

    def saves(self, parts=None):
        return self.start("sh", "-c", "exec SAVER", env=parts and {"PARTS": str(parts)})

    def check_saved(self, *names, ranks=(0, 1)):
        for rank in ranks:
            self.assertTrue(self.exists(f"saved.{rank}"))
            self.assertEqual(self.read(f"got.{rank}").split(), list(names))

    def check(self, *program, number=signal.SIGTERM, env=None, flags=()):
        job = self.start(*program, env=env, flags=flags)
        job.signal(number)
        self.assertEqual(job.wait(), 128 + number, job.stderr())
        self.check_saved(number.name)
        self.assert_nothing_left()
        return job


class WhoGetsIt(Base):
    def direct(self, **options):
        return self.check("sh", "-c", "exec SAVER", **options)

    def test_a_ranks_loaders_serve_it_until_it_has_saved(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number.name):
                self.setUp()
                self.direct(number=number)

    def test_loaders_serve_a_rank_after_a_signal_of_the_users_choice(self):
        self.direct(number=signal.SIGUSR1, flags=("--signals-to-handle", "SIGUSR1"))

    def test_a_rank_whose_handler_raises_saves(self):
        self.direct(env={"RAISES": "1"})

    def test_a_loader_in_its_own_session_serves_its_rank(self):
        self.direct(env={"LOADER_SESSION": "1"})

    def test_the_first_process_with_a_handler_below_shells_gets_the_signal(self):
        for shell in ("bash", "dash"):
            for number in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(shell=shell, number=number.name):
                    self.setUp()
                    self.check(shell, "-c", "SAVER; true", number=number)

    def test_a_shell_does_not_restart_the_program(self):
        for shell in ("bash", "dash"):
            with self.subTest(shell):
                self.setUp()
                self.check(shell, "-c", "until SAVER; do sleep 0.1; done", env={"CODE": "143"}, flags=("--shutdown-timeout", 3))

    def test_a_shell_waits_for_all_its_children(self):
        """The first of the two programs ends long before the second."""
        job = self.check("bash", "-c", "sh -c 'trap \"exit 0\" TERM; while :; do sleep 0.01; done' & SAVER; wait", env={"PARTS": "20"})
        self.assertNotIn("SIGTERM;", job.stderr())

    def test_a_program_below_a_waiting_wrapper_gets_the_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name):
                self.setUp()
                waiter = self.write("waiter.py", WAITER)
                self.check("sh", "-c", f"exec {sys.executable} {waiter} SAVER", number=number)

    def test_a_program_below_a_polling_wrapper_gets_the_signal(self):
        poller = self.write("poller.py", POLLER)
        self.check("sh", "-c", f"exec {sys.executable} {poller} SAVER", number=signal.SIGINT)

    def test_a_program_below_timeout_gets_the_signal_once(self):
        self.check("sh", "-c", "exec timeout 60 nice stdbuf -oL SAVER")

    def test_a_shell_with_a_trap_gets_the_signal_with_its_command(self):
        self.check("bash", "-c", "trap 'touch $TRAPPED.$RANK' TERM; SAVER; exit 0", env={"TRAPPED": self.path("trapped")})
        self.assertTrue(self.exists("trapped.0") and self.exists("trapped.1"))

    def test_a_signal_that_a_trap_passes_on_comes_once(self):
        # `ignored`: as in a job that a script has started in the background. Without `waits` the shell ends before its child.
        for ignored, waits in (False, "; wait $child; exit 0"), (True, "; wait $child; exit 0"), (False, ""):
            with self.subTest(ignored=ignored, waits=waits):
                self.setUp()
                ignore = lambda: [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGQUIT)]
                job = self.start("bash", "-c", f"trap 'kill -TERM $child{waits}' TERM; SAVER & child=$!; wait $child",
                                 preexec_fn=ignore if ignored else None)
                job.signal(signal.SIGTERM)
                self.assertEqual(job.wait(), 143)
                self.check_saved("SIGTERM")

    def test_a_profiler_passes_the_signal_on_and_writes_its_report(self):
        profiler = self.write("profiler.py", PROFILER)
        self.check("sh", "-c", f"exec {sys.executable} {profiler} SAVER")
        self.assertTrue(self.exists("report.0") and self.exists("report.1"))

    def test_only_a_nested_muster_gets_the_signal(self):
        self.check("sh", "-c", f"export OUTER=$RANK; exec {MUSTER} --no-python sh -c 'RANK=$OUTER exec SAVER'")

    def test_a_group_without_handlers_ends_of_the_signal(self):
        job = Job("--no-python", "sh", "-c", f"sleep 1000 & sleep 1000 & touch {self.path('up')}; wait")
        self.addCleanup(job.__exit__)
        self.wait_for_files("up")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertNotIn("SIGKILL;", job.stderr())

    def test_remaining_processes_get_term_at_two_thirds_of_the_grace(self):
        """The worker ends once its helper has ended."""
        helper = self.write("helper.sh", "#!/bin/bash\ntrap 'touch $1/left; exit 0' TERM\ntouch $1/helps\n"
                            "while :; do sleep 0.05; done\n")
        worker = self.write("worker.py", f"""#!/usr/bin/env python3
import os, signal, subprocess
signal.signal(signal.SIGTERM, lambda *_: open("{self.path("got")}", "a").write("x"))
subprocess.Popen(["{helper}", "{self.folder.name}"], start_new_session=True)
open("{self.path("up")}", "w").close()
while not os.path.exists("{self.path("left")}"):
    signal.sigtimedwait([], 0.02)
""")
        job = Job("--shutdown-timeout", 3, "--no-python", worker)
        self.addCleanup(job.__exit__)
        self.wait_for_files("up", "helps")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertEqual(self.read("got"), "x")
        self.assertNotIn("got SIGKILL", job.stderr())


class ForAnother(Base):
    def test_the_others_save_when_a_rank_fails(self):
        job = self.start("bash", "-c", f"[ $RANK = 0 ] || exec SAVER; touch {self.path('up.0')}; "
                         f"until [ -e {self.path('fail')} ]; do sleep 0.05; done; exit 3", workers=3)
        self.write("fail", "")
        self.assertEqual(job.wait(), 3)
        self.check_saved("SIGTERM", ranks=(1, 2))

    def test_the_others_save_when_a_node_leaves(self):
        saver = [self.write("saver.py", SAVER), self.folder.name, self.marker]
        flags = ("--nnodes", 2, "--rdzv-backend", "file", "--rdzv-endpoint", self.path("meet"))
        first, second = [Job(*flags, "--no-python", *saver) for _ in range(2)]
        self.addCleanup(first.__exit__)
        self.addCleanup(second.__exit__)
        self.wait_for_files("up.0", "up.1")
        first.signal(signal.SIGTERM)
        self.assertEqual((first.wait(), second.wait()), (143, 143))
        self.check_saved("SIGTERM")


class Once(Base):
    def everything(self, job):
        """Returns the launcher's processes, the witness included, without helpers of the ranks, which end of a signal."""
        found = [job.pid]
        for pid in found:
            found += [p for p, (parent, _, _) in processes().items() if parent == pid]
        return [p for p in found if self.marker not in processes()[p][2] or children_of(p) or is_witness(p)]

    def tell_everything(self, job):
        signal_all(self.everything(job), signal.SIGTERM)

    def test_a_service_managers_signals_reach_each_rank_once(self):
        for program in ("exec SAVER", "SAVER; true"):
            with self.subTest(program):
                self.setUp()
                job = self.start("sh", "-c", program, env={"PARTS": "20"})
                self.tell_everything(job)
                self.assertEqual(job.wait(), 143)
                self.check_saved("SIGTERM")

    def test_a_witness_that_cannot_run_counts_once_the_signal_was_sent(self):
        """Stopped, it stands for one that a busy machine does not let run."""
        job = self.saves()
        [witness] = [p for p in self.everything(job) if is_witness(p)]
        os.kill(witness, signal.SIGSTOP)
        wait_for(lambda: processes()[witness][1] == "T", "the witness stands still")
        self.tell_everything(job)
        self.assertEqual(job.wait(), 143)
        self.check_saved("SIGTERM")

    def test_a_rank_gets_no_second_signal_at_two_thirds_of_the_grace(self):
        until = self.path("until")
        job = self.start("sh", "-c", "exec SAVER", env={"UNTIL": until}, flags=("--shutdown-timeout", 4))
        self.tell_everything(job)
        pause(2.8, "more than two thirds of the grace")
        self.write("until", "")
        self.assertEqual(job.wait(), 143)
        # On a busy machine the grace may be over before they have saved.
        self.assertEqual([self.read(f"got.{rank}") for rank in (0, 1)], ["SIGTERM\n"] * 2)

    def test_pkill_by_the_command_line_reaches_each_rank_once(self):
        """A script is signalled alone, without the program below it."""
        for is_script in (False, True):
            with self.subTest(is_script=is_script):
                self.setUp()
                saver = [self.write("saver.py", SAVER), self.folder.name, self.marker]
                script = self.write("run.sh", f"#!/bin/sh\n{' '.join(saver)}\ntrue\n")
                job = self.start(*[script] if is_script else saver, env={"PARTS": "20"})
                word = script if is_script else self.marker
                signal_all([p for p in sorted(self.everything(job)) if word in processes()[p][2]], signal.SIGTERM)
                wait_for(lambda: self.exists("got.0"), "the ranks are told", within(1, below=20))
                self.assertEqual(job.wait(), 143)
                self.check_saved("SIGTERM")

    def test_signals_to_musters_children_and_then_muster_count_once(self):
        job = self.saves()
        signal_all([p for p, (parent, _, _) in processes().items() if parent == job.pid] + [job.pid], signal.SIGTERM)
        wait_for(lambda: self.exists("got.0"), "the ranks are told", within(1, below=20))
        self.assertEqual(job.wait(), 143)
        self.check_saved("SIGTERM")

    def test_pkill_of_muster_reaches_no_witness(self):
        """Both processes named muster get the signal and pass it on to the workers once."""
        job = self.saves()
        named = [p for p in self.everything(job) if "muster" in name_of(p)]
        self.assertEqual(len(named), 2)
        signal_all(named, signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.check_saved("SIGTERM")

    def test_terms_within_two_seconds_are_one_request(self):
        job = self.saves(parts=60)
        job.signal(signal.SIGTERM)
        for _ in range(3):
            pause(0.15, "the time that a wrapper takes")
            job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.check_saved("SIGTERM")

    def test_a_term_right_after_ctrl_c_is_the_same_request(self):
        job = self.saves(parts=60)
        job.signal(signal.SIGINT)
        pause(0.15, "the time that a wrapper takes")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 130)
        self.check_saved("SIGINT")

    def test_a_term_after_two_seconds_kills(self):
        job = self.saves(parts=100000)
        job.signal(signal.SIGTERM)
        pause(2.1, "the time within which it is one wish")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertFalse(self.exists("saved.0"))

    def test_a_second_signal_while_the_witness_is_awaited_keeps_the_first(self):
        job = self.saves(parts=100000)
        job.signal(signal.SIGTERM)
        # The kernel delivers the lower of two pending signals first.
        wait_for(lambda: not is_pending(job.pid, signal.SIGTERM), "the launcher takes it")
        job.signal(signal.SIGQUIT)
        self.assertEqual(job.wait(), 143)
        self.assertIn("stopped by SIGTERM", job.stderr())

    def test_the_witness_ends_with_the_launcher(self):
        for victim in ("front", "agent"):
            with self.subTest(victim):
                self.setUp()
                job = self.saves()
                witness, = [p for p in self.everything(job) if is_witness(p)]
                self.assertEqual(len(os.listdir(f"/proc/{witness}/fd")), 1)
                os.kill(job.pid if victim == "front" else job.agent(), signal.SIGKILL)
                wait_for(lambda: is_gone(witness), "the witness has gone")
                job.wait()


class AConsoleThatIsGone(Base):
    def test_ranks_save_though_tee_dies_of_the_same_key_press(self):
        saver = " ".join([self.write("saver.py", SAVER), self.folder.name, self.marker])
        worker = self.write("worker.sh", f"#!/bin/bash\ntrap '' PIPE\nyes & {saver}\ncode=$?\nkill $!\nexit $code\n")
        shell, terminal = pty.fork()
        if shell == 0:
            os.execvp("bash", ["bash", "-c", f"{MUSTER} --nproc-per-node 2 --no-python {worker} 2>&1 | tee /dev/null >/dev/null"])
        self.wait_for_files("up.0", "up.1")
        os.write(terminal, b"\x03")
        os.waitpid(shell, 0)
        wait_for(lambda: self.exists("saved.0") and self.exists("saved.1"), "both have saved")
        os.close(terminal)
        self.assert_nothing_left()

    def test_a_reader_that_ends_before_a_stop_ends_the_writers(self):
        printer = self.write("printer.py", "while True:\n    print('y')\n")
        for program, end in (("--no-python yes", b"killed by SIGPIPE"), (printer, b"BrokenPipeError")):
            done = subprocess.run(f"{MUSTER} {program} | head -n 1", shell=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=60, check=False)
            self.assertEqual(done.stdout, b"y\n")
            self.assertIn(end, done.stderr)
            self.assertIn(b"muster's output was closed by its reader (as `| head` does)", done.stderr)
            self.assertNotIn(b"It blames", done.stderr)


if __name__ == "__main__":
    main()

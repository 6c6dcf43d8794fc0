"""The workers' streams through the real binary: standard input, terminals, whole lines, full and frozen disks."""
import json
import os
import pty
import re
import signal
import subprocess
import tempfile
import termios
import tty

from harness import MUSTER, Job, LiveTest, main, mount_tmpfs, run, wait_for


class Stdin(LiveTest):
    def feed(self, *flags):
        with tempfile.TemporaryFile() as data:
            data.write(b"one\ntwo\n")
            data.seek(0)
            code, out, err = run("--nproc-per-node", 3, *flags, "--no-python", "sh", "-c",
                                 "while read line; do echo $RANK:$line; done", stdin=data)
        self.assertEqual(code, 0, err)
        return sorted(out.split())

    def test_goes_to_rank_zero(self):
        self.assertEqual(self.feed(), ["0:one", "0:two"])

    def test_goes_to_the_rank_asked_for(self):
        self.assertEqual(self.feed("--stdin", "2"), ["2:one", "2:two"])

    def test_goes_to_no_rank(self):
        self.assertEqual(self.feed("--stdin", "none"), [])

    def test_a_job_runs_with_closed_standard_streams(self):
        done = subprocess.run(["sh", "-c", f"{MUSTER} --no-python sh -c 'cat; echo out; echo err >&2; exit 4' <&- >&- 2>&-"],
                              check=False, timeout=30)
        self.assertEqual(done.returncode, 4)


class Lines(LiveTest):
    def test_default_and_tee_lose_and_tear_nothing(self):
        count, workers = 100_000, 8
        script = self.write("w.py", f"""#!/usr/bin/env python3
import os, sys
rank = os.environ["RANK"]
out = "".join(f"rank {{rank}} line {{i:07}} {{'x' * (i % 60)}} end\\n" for i in range({count}))
sys.stdout.write(out)
""")
        line = re.compile(r"(?:\[default\d\]:)?rank (\d) line (\d{7}) (x*) end")
        for flags in ([], ["--tee", "3", "--log-dir", self.path("logs")]):
            with self.subTest(flags=flags):
                code, out, err = run("--nproc-per-node", workers, *flags, "--no-python", script, limit_s=120)
                self.assertEqual(code, 0, err)
                next_line = [0] * workers
                for text in out.splitlines():
                    match = line.fullmatch(text)
                    self.assertTrue(match, f"torn: {text!r}")
                    rank, number = int(match[1]), int(match[2])
                    self.assertEqual((number, len(match[3])), (next_line[rank], number % 60))
                    next_line[rank] += 1
                self.assertEqual(next_line, [count] * workers)

    def test_odd_writers_hang_nothing(self):
        """One closes its output, one prints 5 MB without a newline, one prints nothing, one dies with half a line."""
        script = self.write("w.sh", """#!/bin/bash
            case $RANK in
              0) exec >&- 2>&-; sleep 0.2 ;;
              1) head -c 5000000 /dev/zero | tr '\\0' y ;;
              2) ;;
              3) printf 'half a line' ;;
            esac
            """)
        code, out, err = run("--nproc-per-node", 4, "--no-python", script)
        self.assertEqual(code, 0, err)
        self.assertIn("y" * 5_000_000, out)
        self.assertIn("half a line", out)

    def test_flags_of_inherited_descriptors_stay_as_they_are(self):
        import fcntl
        read_end, write_end = os.pipe()
        before = fcntl.fcntl(write_end, fcntl.F_GETFL)
        job = Job("--no-python", "sh", "-c", "echo hello; sleep 0.2", stdout=write_end)
        self.addCleanup(job.__exit__)
        os.read(read_end, 10)
        self.assertEqual(fcntl.fcntl(write_end, fcntl.F_GETFL), before)
        job.wait()


class Terminal(LiveTest):
    """Standard output is a terminal: workers see one of its size, and nothing is translated twice."""

    def run_in_terminal(self, *command, rows=40, columns=111):
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (rows, columns))
        tty.setraw(slave)
        process = subprocess.Popen([MUSTER, *command], stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return master, process

    @staticmethod
    def read_all(master):
        data = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                return data
            if not piece:
                return data
            data += piece

    def test_workers_see_a_terminal_of_the_same_size(self):
        master, process = self.run_in_terminal("--no-python", "sh", "-c", "test -t 1 && test -t 2 && stty size <&1")
        self.assertEqual(self.read_all(master), b"40 111\n")
        self.assertEqual(process.wait(30), 0)

    def test_a_change_of_size_reaches_the_workers(self):
        master, process = self.run_in_terminal("--no-python", "sh", "-c",
                                               "echo up; while [ \"$(stty size <&2)\" != '50 99' ]; do sleep 0.05; done")
        self.assertEqual(os.read(master, 100), b"up\n")
        termios.tcsetwinsize(master, (50, 99))
        process.send_signal(signal.SIGWINCH)
        self.assertEqual(process.wait(30), 0)

    def test_a_progress_bar_passes_unchanged(self):
        master, process = self.run_in_terminal("--no-python", "sh", "-c",
                                               "for i in 1 2 3; do printf \"\\r$i of 3\"; sleep 0.3; done; echo")
        self.assertEqual(self.read_all(master), b"\r1 of 3\r2 of 3\r3 of 3\n")
        self.assertEqual(process.wait(30), 0)

    def test_input_at_the_terminal_reaches_rank_zero(self):
        master, process = self.run_in_terminal("--no-python", "sh", "-c", "printf 'name? '; read name; echo \"hello $$name\"")
        self.assertEqual(os.read(master, 100), b"name? ")
        os.write(master, b"muster\n")
        self.assertIn(b"hello muster", self.read_all(master))
        self.assertEqual(process.wait(30), 0)


class Disks(LiveTest):
    def mount(self, size):
        folder = self.path("disk")
        os.mkdir(folder)
        mount_tmpfs(self, folder, f"size={size}")
        return folder

    def test_a_full_log_disk_ends_in_a_message_not_in_a_dead_worker(self):
        disk = self.mount("1m")
        code, out, err = run("--tee", "3", "--log-dir", disk, "--no-python", "sh", "-c",
                             "head -c 4000000 /dev/zero | tr '\\0' 'x' | fold; echo done")
        self.assertEqual(code, 0, err)
        self.assertIn("done", out)
        self.assertIn("No space left on device", err)

    def test_a_full_log_disk_is_named_when_a_worker_with_redirects_dies_of_it(self):
        disk = self.mount("100k")
        code, _, err = run("-r", "3", "--log-dir", disk, "--no-python", "python3", "-c", "print('x' * 10_000_000)")
        self.assertIn(code, (1, 120))  # 120: Python could not flush its buffer at the end.
        self.assertIn(f"the disk of the log folder {disk}", err)

    def test_a_log_disk_too_full_for_the_last_lines_is_named_on_the_last_screen(self):
        disk = self.mount("16k")
        code, _, err = run("--log-dir", disk, "--no-python", "sh", "-c",
                           "head -c 30000 /dev/zero | tr '\\0' 'x' | fold >&2; exit 3")
        self.assertEqual(code, 3)
        self.assertRegex(err, rf"\nmuster: cannot write {disk}/\S+/stderr_tail.log: No space left on device; "
                              r"the last lines of that output are not kept\n")
        self.assertRegex(err, rf"\nLog: none could be written to {disk}/\S+/attempt_0/0; make room there \(space, quota, "
                              r"`ulimit -f`\), or name another folder with --log-dir\n")

    def test_a_stuck_console_hides_no_verdict_and_one_signal_leaves(self):
        read_end, write_end = os.pipe()
        job = Job("--nproc-per-node", 2, "--no-python", "bash", "-c",
                  "head -c 1000000 /dev/zero | tr '\\0' 'x' | fold & [ $RANK = 1 ] || sleep 1000; sleep 0.5; exit 9",
                  stdout=write_end)
        self.addCleanup(job.__exit__)
        os.close(write_end)
        wait_for(lambda: "rank 1 of 2 exited with 9" in job.stderr(), "the verdict")
        wait_for(lambda: "waiting for its last output to be read" in job.stderr(), "the reason for staying")
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 9)
        os.close(read_end)

    def test_a_frozen_file_system_stops_no_timer(self):
        """A real freeze (fsfreeze) of a loop-mounted ext4 with the logs on it, for longer than the grace."""
        disk, freeze, thaw = self.frozen_disk()
        job = Job("--tee", "3", "--log-dir", disk, "--shutdown-timeout", "1", "--nproc-per-node", 2, "--no-python", "bash",
                  "-c", f"trap '' TERM; touch {self.folder.name}/up.$RANK; while :; do echo line; sleep 0.01; done")
        self.addCleanup(job.__exit__)
        self.wait_for_files("up.0", "up.1")
        wait_for(lambda: "line" in job.stdout(), "output")
        freeze()
        job.signal(signal.SIGTERM)
        # TERM, a grace of 1 s and KILL follow although no byte can be written to the log.
        wait_for(lambda: not [p for p in os.listdir("/proc") if p.isdigit() and self._is_worker(p)],
                 "the workers are killed during the freeze")
        self.assertIsNone(job.process.poll(), "the log is still frozen: the launcher waits to write it")
        thaw()
        self.assertEqual(job.wait(), 143)

    def _is_worker(self, pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as cmdline, open(f"/proc/{pid}/comm") as comm:
                return f"{self.folder.name}/up.$RANK".encode() in cmdline.read() and comm.read() == "bash\n"
        except OSError:
            return False


class Events(LiveTest):
    def test_console_events_match_torchruns(self):
        code, _, err = run("--event-log-handler", "console", "--nproc-per-node", 2, "--no-python", "true")
        self.assertEqual(code, 0)
        events = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
        states = [event["metadata"]["state"] for event in events]
        self.assertEqual(states, ["RENDEZVOUS", "ASSIGN_WORKER_RANKS", "START", "START", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"])
        self.assertTrue(all(event["timestamp"] > 1_700_000_000 for event in events))


if __name__ == "__main__":
    main()

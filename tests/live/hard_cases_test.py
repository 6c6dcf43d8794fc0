"""Cases that were once wrong, or that a careful reader would doubt."""
import json
import os
import pty
import re
import resource
import signal
import socket
import struct
import subprocess
import uuid

from harness import MUSTER, Job, LiveTest, alive_with, children_of, long, main, pause, run, wait_for
from ports import free_port, listening

BUILD = os.environ["MUSTER_BUILD"]


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


class Stopping(LiveTest):
    def test_a_signal_right_behind_a_stop_keeps_the_exit_code(self):
        """INT and TERM arrive back to back while the job waits between two attempts."""
        codes = set()
        for _ in range(5):
            with Job("--max-restarts", 9, "--no-python", "false") as job:
                wait_for(lambda j=job: "restarting in" in j.stderr(), "a back-off")
                job.signal(signal.SIGINT)
                job.signal(signal.SIGTERM)
                codes.add(job.wait())
        self.assertEqual(codes, {130})

    def test_a_process_whose_main_thread_has_ended_is_killed(self):
        leader = os.path.join(BUILD, "tests", "zombie_leader")
        job = Job("--no-python", "bash", "-c", f"{leader} {self.path('up')} {self.marker} & wait; sleep 1000")
        self.addCleanup(job.__exit__)
        self.wait_for_files("up")
        # pgrep and ps show it as defunct; only its threads show that it runs.
        pids = [int(p) for p in os.listdir("/proc") if p.isdigit() and self._runs(p)]
        self.assertEqual(len(pids), 1)
        os.kill(job.pid, signal.SIGKILL)
        wait_for(lambda: not self._runs(pids[0]), "the process is killed")

    @staticmethod
    def _runs(pid):
        try:
            with open(f"/proc/{pid}/comm") as comm:
                return comm.read() == "zombie_leader\n" and len(os.listdir(f"/proc/{pid}/task")) > 1
        except OSError:
            return False

    def test_a_second_interrupt_ends_a_job_whose_agent_is_stopped(self):
        job = Job("--shutdown-timeout", "600", "--no-python", "bash", "-c",
                  f"touch {self.path('up')}; exec -a {self.marker} sleep 1000")
        self.addCleanup(job.__exit__)
        self.wait_for_files("up")
        os.kill(job.agent(), signal.SIGSTOP)
        job.signal(signal.SIGINT)
        pause(0.15, "beyond the window in which two kill() are one request")
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 130)
        self.assert_nothing_left()

    def test_a_stopped_agent_is_woken_by_the_first_signal(self):
        """A worker may stop its parent: kill -STOP $PPID."""
        job = Job("--no-python", "sh", "-c", f"kill -STOP $PPID; touch {self.path('up')}; sleep 1000")
        self.addCleanup(job.__exit__)
        self.wait_for_files("up")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)

    def test_cont_right_behind_tstp_resumes_the_job(self):
        for _ in range(40):
            with Job("--no-python", "sh", "-c", f"touch {self.path('up')}; sleep 1000") as job:
                self.wait_for_files("up")
                job.signal(signal.SIGTSTP)
                job.signal(signal.SIGCONT)
                job.signal(signal.SIGTERM)
                self.assertEqual(job.wait(), 143)
            os.unlink(self.path("up"))

    def test_background_jobs_of_a_shell_do_not_delay_ctrl_c_by_the_grace(self):
        script = self.write("w.sh", f"#!/bin/sh\nsleep 1000 {self.marker} 2>/dev/null || sleep 1000 &\n"
                            f": >{self.path('up')}\ntail -f {self.path('up')}\n")
        job = Job("--shutdown-timeout", "600", "--no-python", script)
        self.addCleanup(job.__exit__)
        # A shell that is just starting a program takes the signal itself, and goes on waiting.
        wait_for(lambda: alive_with(f"tail -f {self.path('up')} "), "the program in the foreground")
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait(), 130)

    def test_two_jobs_cannot_have_the_same_master_port(self):
        port = free_port()
        first = Job("--master-port", port, "--no-python", "sh", "-c", f"touch {self.path('up')}; sleep 1000")
        self.addCleanup(first.__exit__)
        self.wait_for_files("up")
        code, _, err = run("--master-port", port, "--no-python", "true")
        self.assertEqual(code, 121)
        self.assertIn(f"port {port} is in use by pid {first.agent()} ", err)

    def connection(self):
        """A connection of this process, its local port, and its remote port."""
        port, (listener, other) = free_port(), listening()
        client = socket.create_connection(("127.0.0.1", other), source_address=("127.0.0.1", port))
        self.addCleanup(listener.close)
        self.addCleanup(client.close)
        return client, port, other

    def test_a_connection_that_has_the_master_port_is_named(self):
        _, port, other = self.connection()
        code, _, err = run("--master-port", port, "--no-python", "true")
        self.assertEqual(code, 121, err)
        self.assertIn(f"port {port} is the local end of a connection of pid {os.getpid()} (", err)
        self.assertIn(f", to 127.0.0.1:{other}: choose another port (--master-port", err)

    def test_a_host_waits_for_its_port_until_the_connection_that_has_it_ends(self):
        client, port, _ = self.connection()
        nodes = [Job("--nnodes", 2, "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", port,
                     "--no-python", "true") for rank in (0, 1)]
        for node in nodes:
            self.addCleanup(node.__exit__)
        wait_for(lambda: f"port {port} is the local end of a connection of pid {os.getpid()} (" in nodes[0].stderr(),
                 "node 0 names the process that has the port")
        # A reset frees the port at once.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        self.assertEqual([node.wait() for node in nodes], [0, 0])

    def unshared(self, *drop):
        command = ["unshare", "--user", "--map-root-user", "--net", *drop]
        if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no user namespace can be made here")
        return command

    def test_a_loopback_interface_that_is_down_is_brought_up(self):
        reach = "import os, socket; socket.create_connection(('127.0.0.1', int(os.environ['MASTER_PORT'])), 3)"
        job = subprocess.run([*self.unshared(), MUSTER, "--nproc-per-node", "2", "--no-python", "python3", "-c", reach],
                             stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertIn("the loopback interface was down here; muster has brought it up", job.stderr)

    def test_a_loopback_interface_that_stays_down_is_named(self):
        command = self.unshared("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
        job = subprocess.run([*command, MUSTER, "--no-python", "true"],
                             stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(job.returncode, 121, job.stderr)
        self.assertIn("the loopback interface is down here, and muster may not bring it up (Operation not permitted): "
                      "run `ip link set lo up` as root", job.stderr)

    def test_a_missing_dev_null_is_named(self):
        """/dev has only random numbers, which muster reads if getrandom is refused."""
        dev = ("mount -t tmpfs none /mnt && touch /mnt/urandom && mount --bind /dev/urandom /mnt/urandom && "
               'mount --move /mnt /dev && exec "$0" "$@"')
        command = self.unshared("--mount", "sh", "-c", dev)
        job = subprocess.run([*command, MUSTER, "--no-python", "true"],
                             stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(job.returncode, 121, job.stderr)
        self.assertIn("cannot open /dev/null, from which workers read: mount a /dev that has it", job.stderr)


class Verdicts(LiveTest):
    def test_a_slow_console_takes_nothing_from_the_verdict(self):
        script = self.write("w.sh", "#!/bin/bash\nhead -c 3000000 /dev/zero | tr '\\0' 'x' | fold\n"
                            "echo the real reason >&2\nexit 3\n")
        with open(self.path("err"), "w") as err:
            pipeline = subprocess.run(f"{MUSTER} --no-python {script} | (sleep 3; cat >/dev/null)", shell=True,
                                      stderr=err, timeout=60, check=False)
        self.assertEqual(pipeline.returncode, 0)
        text = self.read("err")
        self.assertIn("| the real reason", text)
        self.assertIn("exited with 3", text)

    def test_a_worker_in_uninterruptible_sleep_fails_the_job(self):
        """The worker writes to a real frozen file system, so it cannot die before the thaw; no restart follows."""
        disk, freeze, thaw = self.frozen_disk()
        freeze()
        job = Job("--max-restarts", 2, "--shutdown-timeout", 1, "--no-python", "bash", "-c", f"exec mkdir {disk}/x",
                  env={"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "1"})
        self.addCleanup(job.__exit__)
        wait_for(lambda: "SIGKILL" in job.stderr(), "the ladder has come to KILL")
        thaw()
        self.assertNotEqual(job.wait(), 0)
        self.assertIn("uninterruptible sleep", job.stderr())
        self.assertNotIn("restarting", job.stderr())


class Surroundings(LiveTest):
    def test_a_fifo_in_place_of_the_error_file_does_not_block_the_agent(self):
        code, _, err = run("--no-python", "sh", "-c", "mkfifo $TORCHELASTIC_ERROR_FILE; exit 3")
        self.assertEqual(code, 3)
        self.assertIn("exited with 3", err)

    def test_a_link_in_place_of_the_error_file_is_not_followed(self):
        secret = self.write("secret", "nobody else's business\n")
        code, _, err = run("--no-python", "sh", "-c", f"ln -s {secret} $TORCHELASTIC_ERROR_FILE; exit 3")
        self.assertEqual(code, 3)
        self.assertNotIn("nobody else's", err)

    def test_a_bad_tmpdir_is_ignored(self):
        for bad in ("/nonexistent", "relative", "/dev/null", ""):
            code, out, err = run("--no-python", "echo", "hi", env={"TMPDIR": bad})
            self.assertEqual((code, out, err), (0, "hi\n", ""))

    def test_a_cleaner_of_tmp_does_not_prevent_a_restart(self):
        temp = self.path("tmp")
        os.mkdir(temp)
        script = self.write("w.sh", f"#!/bin/sh\nrm -rf {temp}/torchelastic_*\ntest $TORCHELASTIC_RESTART_COUNT = 1\n")
        code, _, err = run("--max-restarts", 1, "--no-python", script, env={"TMPDIR": temp})
        self.assertEqual(code, 0, err)

    def test_help_that_cannot_be_written_is_an_error(self):
        done = subprocess.run(f"{MUSTER} --help >/dev/full", shell=True, stderr=subprocess.PIPE, text=True, check=False,
                              timeout=30)
        self.assertEqual(done.returncode, 121)
        self.assertEqual(done.stderr, "muster: cannot write to standard output: No space left on device\n")

    def test_stdin_for_a_rank_that_does_not_exist_is_refused(self):
        code, _, err = run("--stdin", 7, "--nproc-per-node", 2, "--no-python", "true", env={"OMP_NUM_THREADS": "1"})
        self.assertEqual(code, 2)
        self.assertIn("--stdin 7", err)

    def test_a_job_in_the_background_takes_no_input_from_the_terminal(self):
        screen = self.terminal(f"{MUSTER} --no-python cat &\n")
        wait_for(lambda: screen("[1]"), "the job is in the background")
        screen.type("echo typed-$((40 + 2))\n")
        wait_for(lambda: screen("typed-42"), "the shell has its input")
        screen.type("wait; echo code=$?\n")
        wait_for(lambda: screen("code=0"), "cat had an empty input")

    def test_the_front_restores_the_terminals_modes_if_the_agent_is_killed(self):
        screen = self.terminal(f"{MUSTER} --no-python sh -c 'stty -echo -icanon; touch {self.path('up')}; exec sleep 1000'\n")
        self.wait_for_files("up")
        agent = wait_for(lambda: [p for p in alive_with(self.path("up")) if os.path.realpath(f"/proc/{p}/exe") ==
                                  os.path.realpath(MUSTER) and children_of(p)
                                  and any(os.path.realpath(f"/proc/{c}/exe") != os.path.realpath(MUSTER)
                                          for c in children_of(p))], "the agent")[0]
        os.kill(agent, signal.SIGKILL)
        wait_for(lambda: screen("was killed by SIGKILL"), "the front has seen it")
        screen.type("stty -a | grep -o '.icanon\\|.echo '; echo shown\n")
        wait_for(lambda: screen("\nshown"), "the shell goes on")
        self.assertNotIn("-icanon", screen.text.split("stty -a")[-1])
        self.assertNotIn("-echo ", screen.text.split("stty -a")[-1])

    def terminal(self, command):
        """A shell at a terminal of its own, without line editing, which would set the modes itself."""
        pid, master = pty.fork()
        if pid == 0:
            os.environ["PS1"] = "$ "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self.addCleanup(lambda: (os.kill(pid, signal.SIGKILL), os.waitpid(pid, 0)))
        os.set_blocking(master, False)

        class Screen:
            text = ""

            def __call__(self, wanted):
                try:
                    self.text += os.read(master, 65536).decode(errors="replace").replace("\r\n", "\n")
                except (BlockingIOError, OSError):
                    pass
                return wanted in self.text

            @staticmethod
            def type(text):
                os.write(master, text.encode())

        screen = Screen()
        screen.type(command)
        return screen


class Limits(LiveTest):
    @long
    def test_many_workers_with_tee_fit_the_usual_limit(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 8192))
        code, _, err = run("--nproc-per-node", 180, "--tee", 3, "--log-dir", self.path("logs"), "--no-python", "true",
                           preexec_fn=limit)
        self.assertEqual(code, 0, err)

    def test_the_advised_limit_suffices(self):
        # Each worker uses all streams, and holds three connections to the store until all workers do.
        busy = ["--no-python", "bash", "-c", "for i in 3 4 5; do eval \"exec $$i<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT\"; done; "
                                             "echo a; echo b >&2; touch $MEET/$RANK; "
                                             "while [ $(ls $MEET | wc -l) -lt $WORLD_SIZE ]; do sleep 0.05; done"]
        tee = ["-t", 3, "--duplicate-stdout-filters", "a", "--duplicate-stderr-filters", "b"]
        everything = [*tee, *busy]
        for flags in (["--nproc-per-node", 1, *everything], ["--nproc-per-node", 30, *everything],
                      ["--nproc-per-node", "auto", *everything], ["--nproc-per-node", 250, *tee, "--no-python", "true"],
                      ["--nproc-per-node", 250, "--no-python", "true"]):
            for inherited in (0, 30):
                with self.subTest(flags=flags, inherited=inherited):
                    self.follow_the_advice(["--log-dir", self.path(uuid.uuid4().hex), *flags], inherited)

    def follow_the_advice(self, args, inherited):
        spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(inherited)]
        self.addCleanup(lambda: [os.close(fd) for fd in spare])
        limit = inherited + 20
        meet = self.path(uuid.uuid4().hex)
        os.mkdir(meet)
        for turn in range(2):
            code, _, err = run(*args, env={"OMP_NUM_THREADS": "1", "MEET": meet}, pass_fds=spare, limit_s=60,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            if turn == 0:
                self.assertEqual(code, 121, err)
                limit = int(re.search(r"(?:`ulimit -n |hard limit raised to )(\d+)", err).group(1))
        self.assertEqual(code, 0, f"at the advised {limit}: {err}")

    def test_too_few_descriptors_cost_one_line(self):
        for count in (5, 6, 7, 8, 9, 12, 20, 30):
            limit = lambda n=count: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))
            code, _, err = run("--no-python", "true", preexec_fn=limit)
            self.assertEqual(code, 121, err)
            self.assertEqual(len(err.splitlines()), 1, err)
            self.assertIn("ulimit -n", err)


class FileTimer(LiveTest):
    ENABLED = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}

    def request(self, pid, expires, number):
        return json.dumps({"version": 1, "pid": pid, "scope_id": "s", "expiration_time": expires, "signal": number})

    def test_an_expired_timer_kills_the_worker_which_then_restarts(self):
        script = self.write("w.py", f"""#!/usr/bin/env python3
import json, os, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    with open(os.environ["TORCHELASTIC_TIMER_FILE"], "w") as f:
        f.write(json.dumps({{"version": 1, "pid": os.getpid(), "scope_id": "step", "expiration_time": time.time() + 0.3,
                            "signal": 9}}) + "\\n")
    time.sleep(1000)
print("second attempt")
""")
        code, out, err = run("--max-restarts", 1, "--no-python", script, env=self.ENABLED)
        self.assertEqual((code, out), (0, "second attempt\n"), err)
        self.assertIn("timer 'step'", err)

    def test_a_released_timer_does_nothing(self):
        script = self.write("w.py", """#!/usr/bin/env python3
import json, os, time
def say(when):
    with open(os.environ["TORCHELASTIC_TIMER_FILE"], "w") as f:
        f.write(json.dumps({"version": 1, "pid": os.getpid(), "scope_id": "s", "expiration_time": when, "signal": 9}) + "\\n")
say(time.time() + 2)
say(-1)
time.sleep(4)
""")
        code, _, err = run("--no-python", script, env=self.ENABLED)
        self.assertEqual(code, 0, err)

    @long
    def test_a_flood_of_requests_at_the_end_does_no_harm(self):
        script = self.write("w.py", """#!/usr/bin/env python3
import os
fd = os.open(os.environ["TORCHELASTIC_TIMER_FILE"], os.O_WRONLY | os.O_NONBLOCK)
try:
    for _ in range(300):
        os.write(fd, b"x" * 4096)
except BlockingIOError:
    pass
""")
        for _ in range(5):
            code, _, err = run("--no-python", script, env=self.ENABLED)
            self.assertEqual(code, 0, err)

    def test_a_timer_in_the_far_future_costs_no_processor_time(self):
        path = self.path("timer")
        job = Job("--no-python", "sh", "-c", f"touch {self.path('up')}; sleep 1000",
                  env={**self.ENABLED, "TORCHELASTIC_TIMER_FILE": path})
        self.addCleanup(job.__exit__)
        self.wait_for_files("up")
        with open(path, "w") as f:
            f.write(self.request(children_of(job.agent())[0], 8.6e13, 9) + "\n")
        before = cpu_ticks(job.agent())
        pause(1, "the time in which its processor time counts")
        self.assertLess(cpu_ticks(job.agent()) - before, 20)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertFalse(os.path.exists(path))

    def test_processes_outside_the_job_are_not_signalled(self):
        path = self.path("timer")
        stranger = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(stranger.wait)
        self.addCleanup(stranger.kill)
        job = Job("--no-python", "sh", "-c", f"touch {self.path('up')}; sleep 1.5",
                  env={**self.ENABLED, "TORCHELASTIC_TIMER_FILE": path})
        self.addCleanup(job.__exit__)
        self.wait_for_files("up")
        with open(path, "w") as f:
            f.write(self.request(stranger.pid, 1.0, 9) + "\n")
        self.assertEqual(job.wait(), 0)
        self.assertIsNone(stranger.poll())


class Cgroup(LiveTest):
    def delegated(self):
        """Makes a cgroup v2 folder with systemd's mark of delegation."""
        with open("/proc/self/mountinfo") as f:
            mounts = [line.split()[4] for line in f if " - cgroup2 " in line]
        if not mounts or os.geteuid() != 0:
            self.skipTest("needs root and a mounted cgroup2")
        folder = os.path.join(mounts[0], f"delegated-{uuid.uuid4().hex}")
        try:
            os.mkdir(folder)
            os.setxattr(folder, "trusted.delegate", b"1")
        except OSError as error:
            self.skipTest(f"no cgroup can be delegated here: {error}")
        self.addCleanup(lambda: wait_for(lambda: self._removed(folder), "the cgroup is empty"))
        return folder

    @staticmethod
    def _removed(folder):
        try:
            os.rmdir(folder)
            return True
        except OSError:
            return not os.path.isdir(folder)

    def start(self, folder):
        enter = lambda: open(os.path.join(folder, "cgroup.procs"), "w").write(str(os.getpid()))
        job = Job("--no-python", "bash", "-c", f"touch {self.path('up')}; exec -a {self.marker} sleep 1000",
                  preexec_fn=enter)
        self.addCleanup(job.__exit__)
        self.wait_for_files("up")
        return job, os.path.join(folder, f"muster-{job.agent()}")

    def test_workers_live_in_a_delegated_cgroup_that_is_removed_at_the_end(self):
        job, inner = self.start(self.delegated())
        worker = wait_for(lambda: [p for p in alive_with(self.marker) if p not in (job.pid, job.agent())], "worker")[0]
        with open(os.path.join(inner, "cgroup.procs")) as f:
            self.assertEqual(f.read().split(), [str(worker)])
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertFalse(os.path.exists(inner))

    def test_the_cgroup_is_removed_after_a_kill(self):
        for victim in ("agent", "front"):
            job, inner = self.start(self.delegated())
            os.kill(job.agent() if victim == "agent" else job.pid, signal.SIGKILL)
            job.wait()
            self.assert_nothing_left()
            wait_for(lambda i=inner: not os.path.exists(i), f"cgroup removed after the death of the {victim}")
            os.unlink(self.path("up"))


class MisplacedFlags(LiveTest):
    def test_a_flag_behind_the_script_is_reported_and_passed_to_it(self):
        script = self.write("ok.py", "import os, sys\nprint(sys.argv[1:], os.environ['WORLD_SIZE'])\n")
        code, out, err = run(script, "--nproc-per-node", "4")
        self.assertEqual((code, out), (0, "['--nproc-per-node', '4'] 1\n"), err)
        self.assertEqual(err, f"muster: --nproc-per-node after {script} goes to that program; put muster's flags before "
                              f"it: muster --nproc-per-node ... {script}\n")

    def test_a_flag_that_the_script_defines_is_not_reported(self):
        script = self.write("own.py", "import argparse\np = argparse.ArgumentParser()\np.add_argument('--nproc_per_node')\n"
                                      "print(p.parse_args().nproc_per_node)\n")
        self.assertEqual(run(script, "--nproc_per_node", "4"), (0, "4\n", ""))

    def test_a_flag_of_an_inner_launcher_is_not_reported(self):
        inner = [MUSTER, "--nproc-per-node", "2", "--no-python", "sh", "-c", "echo $WORLD_SIZE"]
        for flags in ([], ["--no-python"]):
            self.assertEqual(run(*flags, *inner, env={"OMP_NUM_THREADS": "1"}), (0, "2\n2\n", ""))


if __name__ == "__main__":
    main()

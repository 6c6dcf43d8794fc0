"""Starts a launcher for one scenario and leaves behind what can be observed of it, and no process.

A Run owns one folder: reports and marks of the probe, the launcher's stdout and stderr as files, the working folder,
the temporary folder and the log folder. Each runs in the thread that made it.
"""

import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import launchers
import warm_torchrun
from ports import free_port
from waiting import polling, wait_for, within

PROBE = pathlib.Path(__file__).resolve().parent / "probe.py"


def environment_of(pid):
    """The environment that a process started with; empty for one that is gone or a zombie."""
    try:
        data = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.split("=", 1) for item in data.decode(errors="replace").split("\0") if "=" in item)
    return dict(pairs)


def folder_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def processes_of(run):
    """What still runs of this run: pid → a word for what it is.

    It has our PROBE_DIR, or it was forked from a process without it and works in our folder.
    """
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        environment = environment_of(entry)
        if environment.get("PROBE_DIR") != str(run.reports_folder) and folder_of(entry) != str(run.work):
            continue
        worker = f"worker {environment['RANK']}" if "RANK" in environment else "launcher"
        found[int(entry)] = environment.get("PROBE_ROLE", worker)
    return found


class Run:
    def __init__(self, launcher, scenario, folder):
        self.launcher, self.scenario, self.folder = launcher, scenario, pathlib.Path(folder)
        self.work, self.reports_folder = self.folder / "work", self.folder / "probe"
        self.logs, self.temporary = self.folder / "logs", self.folder / "tmp"
        for path in (self.work, self.reports_folder, self.temporary):
            path.mkdir(parents=True)
        for name, text in scenario.files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.fill_in(text))
            path.chmod(0o755 if text.startswith("#!") else 0o644)
        self.process, self.exit, self.left, self.seconds = None, None, [], 0.0

    @property
    def port(self):
        """One port for the whole run, chosen when it is first needed."""
        if not hasattr(self, "_port"):
            self._port = free_port()
        return self._port

    def fill_in(self, text):
        values = {
            "@PROBE@": PROBE,
            "@PY@": launchers.torch_venv() / "bin" / "python",
            "@BASE@": self.folder,
            "@WORK@": self.work,
            "@LOGS@": self.logs,
        }
        for name, value in values.items():
            text = text.replace(name, str(value))
        return text.replace("@PORT@", str(self.port)) if "@PORT@" in text else text

    def command(self):
        scenario, launcher = self.scenario, self.launcher
        start = launcher.old_command if scenario.old_launch else launcher.command
        special = launcher.name == "muster" and scenario.muster_args is not None
        args = scenario.muster_args if special else scenario.args
        return [*start, *(self.fill_in(arg) for arg in args)]

    def environment(self):
        given = dict(self.scenario.env)
        if self.launcher.name == "muster":
            given |= self.scenario.muster_env
        return launchers.base_environment() | {
            "TMPDIR": str(self.temporary),
            "PROBE_DIR": str(self.reports_folder),
            "PROBE_PLAN": json.dumps(self.scenario.plan),
            "SENTINEL": "inherited",
            **{name: self.fill_in(value) for name, value in given.items()},
        }

    def prepare_child(self):
        for number in self.scenario.ignored_signals:
            signal.signal(number, signal.SIG_IGN)
        if self.scenario.cores:
            os.sched_setaffinity(0, self.scenario.cores)

    def start(self):
        (self.folder / "stdin").write_text(self.scenario.stdin or "")
        stdin_path = self.folder / "stdin" if self.scenario.stdin is not None else "/dev/null"
        with (
            open(stdin_path, "rb") as stdin,
            open(self.folder / "stdout", "wb") as stdout,
            open(self.folder / "stderr", "wb") as stderr,
        ):
            self.began = time.monotonic()
            self.process = self.spawn((stdin, stdout, stderr))

    def spawn(self, files):
        if self.launcher.forker and warm_torchrun.suits(self.scenario):
            return self.spawn_warm(files)
        return subprocess.Popen(
            self.command(),
            env=self.environment(),
            cwd=self.work,
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            start_new_session=True,
            preexec_fn=self.prepare_child,
        )

    def spawn_warm(self, files):
        _python, _m, module, *arguments = self.command()
        order = {
            "command": (module, arguments),
            "environment": self.environment(),
            "folder": str(self.work),
            "ignored": self.scenario.ignored_signals,
            "cores": self.scenario.cores,
        }
        return warm_torchrun.Process(self.launcher.forker, order, [file.fileno() for file in files])

    def send(self, number):
        self.process.send_signal(number)

    def await_files(self, pattern, count):
        """Waits for reports or marks; an action that waits in vain says so by the exit "stuck"."""
        for _ in polling(self.scenario.timeout / 2):
            if len(glob.glob(str(self.reports_folder / pattern))) >= count:
                return
            if self.process.poll() is not None:
                break
        raise TimeoutError(f"waited for {count} × {pattern}")

    def await_reports(self, count, attempt=0):
        self.await_files(f"report.{attempt}.*.json", count)

    def await_mark(self, name, count, attempt=0):
        self.await_files(f"mark.{name}.{attempt}.*", count)

    def finish(self):
        """Acts, waits for the end of the launcher, notes who is left, and ends those."""
        problem = None
        try:
            if self.scenario.act:
                self.scenario.act(self)
            self.exit = self.process.wait(timeout=self.scenario.timeout)
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            problem = f"stuck: {error}"
        self.seconds = time.monotonic() - self.began
        self.left = self.who_is_left() if problem is None else []
        self.end_all()
        if problem:
            self.process.wait()
            self.exit = problem

    def who_is_left(self):
        for _ in polling(within(self.scenario.settle, 1), 0.02):
            if not processes_of(self):
                break
        return sorted(processes_of(self).values())

    def end_all(self):
        """Ends what has this run's own folders, which only we gave it."""
        def all_gone():
            for pid in (found := processes_of(self)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return not found
        wait_for(all_gone, "what has been killed is gone")

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def run_to_end(launcher, scenario, folder):
    run = Run(launcher, scenario, folder)
    run.start()
    run.finish()
    return run

"""torchrun without the two seconds that importing PyTorch takes: forked from a process that has imported it.

    warm_torchrun.py SOCKET     imports what torchrun imports, then forks a child for each call

The child gets arguments, environment, folder, descriptors, ignored signals and affinity of a scenario, and runs PyTorch's
own module as `python -m` does. What differs: variables that are read while PyTorch is imported have no effect, so
scenarios that set any but those of READ_LATER start the interpreter; and modules are not torn down at the end.
"""

import atexit
import contextlib
import dataclasses
import importlib
import os
import pathlib
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import forker  # noqa: E402
import launchers  # noqa: E402

# Neither the interpreter nor an import looks at these; that imports do not is checked whenever PyTorch is imported here.
READ_LATER = re.compile(r"PET_\w+|TORCHELASTIC_ERROR_FILE|PYTHON_EXEC|(CUDA|HIP)_VISIBLE_DEVICES")
MODULES = ("torch.distributed.run", "torch.distributed.launch")


def suits(scenario):
    return all(READ_LATER.fullmatch(name) for name in scenario.env)


@contextlib.contextmanager
def launcher(cold):
    """The same launcher, warm wherever that suits the scenario."""
    with tempfile.TemporaryDirectory(prefix="torchrun_") as folder:
        path = f"{folder}/socket"
        with forker.running([cold.command[0], __file__, path], env=launchers.base_environment()):
            yield dataclasses.replace(cold, forker=path)


class Process:
    """A torchrun that was forked, with the part of subprocess.Popen that a Run uses."""

    def __init__(self, path, order, files):
        self.order, self.returncode = order, None
        self.connection = forker.call(path, order, files)
        _, (self.pidfd,), _, _ = socket.recv_fds(self.connection, 1, 1)

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self.connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.order, timeout)
            self.returncode = os.waitstatus_to_exitcode(int(forker.read_line(self.connection)))
            self.connection.close()
            os.close(self.pidfd)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)


# ---- the forker


def import_torchrun():
    """Leaves the state in which `python -m` finds the interpreter, with everything imported that the modules need."""
    read, get = set(), os._Environ.__getitem__
    os._Environ.__getitem__ = lambda self, name: read.add(name) or get(self, name)
    before = dict(os.environ)
    for name in MODULES:
        importlib.import_module(name)
    for name in MODULES:
        del sys.modules[name]
    os._Environ.__getitem__ = get
    early, changed = sorted(filter(READ_LATER.fullmatch, read)), os.environ.items() ^ before.items()
    if early or changed:
        sys.exit(f"PyTorch cannot be imported beforehand: it reads {early} and changes {sorted(changed)}")


def become_torchrun(order, files):
    """The calling process is from now on what a shell would have started."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for number in order["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    if order["cores"]:
        os.sched_setaffinity(0, order["cores"])


def run_as_main(module, arguments):
    """As `python -m MODULE ARGUMENTS`; returns the exit status."""
    sys.argv = ["-m", *arguments]
    sys.path[0] = os.getcwd()
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        runpy._run_module_as_main(module)
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1


def end_interpreter(status):
    """All that Py_FinalizeEx does but to take modules apart, which costs as much as the rest of a short run."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main(path):
    import_torchrun()
    connection, order, files = forker.serve(path)
    child = os.fork()
    if child:
        socket.send_fds(connection, [b"c"], [os.pidfd_open(child)])
        forker.keep(connection, child)
    connection.close()
    become_torchrun(order, files)
    end_interpreter(run_as_main(*order["command"]))


if __name__ == "__main__":
    main(sys.argv[1])

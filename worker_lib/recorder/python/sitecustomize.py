"""muster's hook: Python runs this at its start, from a folder that muster puts before PYTHONPATH for a job's workers.

It takes the folder out again, so that a worker's child processes do not see it, starts _muster_recorder.py once
torch.distributed is imported, notes an exception that is not caught (_muster_departure.py), prints Python's stack when the
agent asks by a signal, and runs the sitecustomize that would have run without it. Every Python program of a job compiles
this file, so it is short. The syntax is that of Python 2, since system scripts may need an old Python.
"""
import os
import sys


loaded = {}


def load(name):
    """Runs a file of the folder. Leaves no module in sys.modules and no compiled file in the folder."""
    if name not in loaded:
        space = {"__name__": "muster_" + name, "folder": folder, "record_fd": record_fd, "pid": pid}
        with open("%s/_muster_%s.py" % (folder, name), encoding="utf-8") as source:
            exec(compile(source.read(), source.name, "exec"), space)
        loaded[name] = space
    return loaded[name]


def note_uncaught(kind, error, trace):
    """sys.excepthook: what follows, the hooks of other libraries too, may take long."""
    try:
        load("departure")["uncaught"](error)
    except Exception:
        pass
    show(kind, error, trace)


class Torch(object):
    """A finder of modules. A program may wrap it, so it may still be called after it has removed itself."""

    is_done = False

    def find_spec(self, name, path=None, target=None):
        if self.is_done or name != "torch.distributed.distributed_c10d":
            return None
        self.is_done = True
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            return load("recorder")["spec_of"](name, path, load("departure"))
        except Exception as error:  # Would fail the program's import.
            sys.stderr.write("muster: rank %s records no calls, so a hang is not explained: %s\n"
                             % (os.environ.get("RANK"), error))


def show_stacks():
    """See rendezvous/base/stack_signal.h."""
    import _signal  # Importing `signal` takes longer than all the rest.
    import faulthandler
    number = _signal.SIGRTMIN + 13
    if _signal.getsignal(number) != _signal.SIG_DFL or hasattr(faulthandler, "muster"):
        return
    faulthandler.muster = folder  # In nested jobs the inner one comes first.
    made = os.open("%s/stacks-%d" % (folder, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fd = 100  # Like the ring's: away from the numbers that programs expect.
        while os.path.exists("/proc/self/fd/%d" % fd):
            fd += 1
        os.dup2(made, fd, False)
    finally:
        os.close(made)
    # Only one thread: the others keep running, so their frames would change under the handler.
    faulthandler.register(number, file=fd, all_threads=False, chain=False)


folder = os.path.dirname(os.path.abspath(__file__))
record_fd = os.environ.get("MUSTER_RECORD_FD")
pid = os.getpid()
show = sys.excepthook
sys.path[:] = [path for path in sys.path if path != folder]
paths = [path for path in os.environ.pop("PYTHONPATH", "").split(":") if os.path.abspath(path) != folder]
if any(paths):
    os.environ["PYTHONPATH"] = ":".join(paths)
if record_fd:
    sys.meta_path.insert(0, Torch())
    sys.excepthook = sys.__excepthook__ = note_uncaught  # Both: programs test whether they are the same.
    try:
        show_stacks()
    except Exception:  # An old Python, or a full disk.
        pass
own = sys.modules.pop(__name__)
try:
    import sitecustomize
except ImportError as error:  # Other errors are reported by `site`, as without this file.
    if getattr(error, "name", __name__) != __name__:
        raise
finally:
    sys.modules.setdefault(__name__, own)  # The import that runs this file looks it up.

"""muster's hook: Python runs this at its start, from a folder that muster puts before PYTHONPATH for a job's workers.

It takes the folder out again, so that the processes that a worker starts know nothing of it, waits for
torch.distributed, for which _muster_recorder.py, beside it, does the rest, and runs the sitecustomize that would have
been run without it. It also has Python print where it is when the agent asks by a signal. All Python programs of a job
pay for this file, whose compiling is most of that: so it is short. Its syntax is that of Python 2, since scripts of the
system may need an old one.
"""
import os
import sys


class Torch(object):
    """A finder of modules. A program may wrap it, so it cannot count on being removed."""

    is_done = False

    def find_spec(self, name, path=None, target=None):
        if self.is_done or name != "torch.distributed.distributed_c10d":
            return None
        self.is_done = True
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            # Neither a module of sys.modules nor a compiled file in the folder.
            space = {"__name__": "muster_recorder"}
            with open(folder + "/_muster_recorder.py", encoding="utf-8") as source:
                exec(compile(source.read(), source.name, "exec"), space)
            return space["spec_of"](name, path, folder, record_fd)
        except Exception as error:  # It would fail the program's import.
            sys.stderr.write("muster: rank %s records no calls, so a hang is not explained: %s\n"
                             % (os.environ.get("RANK"), error))


def show_stacks():
    """See rendezvous/base/stack_signal.h."""
    import _signal  # The module around it takes longer to import than all the rest.
    import faulthandler
    number = _signal.SIGRTMIN + 13
    if _signal.getsignal(number) != _signal.SIG_DFL or hasattr(faulthandler, "muster"):
        return
    faulthandler.muster = folder  # A muster in a muster: the inner one comes first.
    made = os.open("%s/stacks-%d" % (folder, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fd = 100  # As the ring's: away from the numbers that programs count on.
        while os.path.exists("/proc/self/fd/%d" % fd):
            fd += 1
        os.dup2(made, fd, False)
    finally:
        os.close(made)
    # Not all threads: the others run on meanwhile, and their frames with them.
    faulthandler.register(number, file=fd, all_threads=False, chain=False)


folder = os.path.dirname(os.path.abspath(__file__))
record_fd = os.environ.get("MUSTER_RECORD_FD")
sys.path[:] = [path for path in sys.path if path != folder]
paths = [path for path in os.environ.pop("PYTHONPATH", "").split(":") if os.path.abspath(path) != folder]
if any(paths):
    os.environ["PYTHONPATH"] = ":".join(paths)
if record_fd:
    sys.meta_path.insert(0, Torch())
    try:
        show_stacks()
    except Exception:  # An old Python, or no space.
        pass
own = sys.modules.pop(__name__)
try:
    import sitecustomize
except ImportError as error:  # Others are site's to report, as without this file.
    if getattr(error, "name", __name__) != __name__:
        raise
finally:
    sys.modules.setdefault(__name__, own)  # The import that runs this file looks for it.

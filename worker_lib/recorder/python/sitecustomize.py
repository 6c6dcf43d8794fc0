"""muster's hook: Python runs this at its start, from a folder that muster puts before PYTHONPATH for a job's workers.

It takes the folder out again, so that the processes that a worker starts know nothing of it, waits for
torch.distributed, for which recorder.py, beside it, does the rest, and runs the sitecustomize that would have been run
without it. All Python programs of a job pay for this file, whose compiling is most of that: so it is short.
"""
import os
import sys


class Torch:
    """A finder of modules."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch.distributed.distributed_c10d":
            return None
        sys.meta_path.remove(self)
        try:
            # Neither a module of sys.modules nor a compiled file in the folder.
            with open(folder + "/recorder.py", encoding="utf-8") as source:
                exec(compile(source.read(), source.name, "exec"), space := {"__name__": "muster_recorder"})
            return space["spec_of"](name, path, folder, record_fd)
        except Exception as error:  # It would fail the program's import.
            print(f"muster: rank {os.environ.get('RANK')} records no calls, so a hang is not explained: {error}",
                  file=sys.stderr)


folder = __file__.rpartition("/")[0]
record_fd = os.environ.get("MUSTER_RECORD_FD")
sys.path[:] = [path for path in sys.path if path != folder]
if rest := ":".join(path for path in os.environ.pop("PYTHONPATH", "").split(":") if path != folder):
    os.environ["PYTHONPATH"] = rest
if record_fd:
    sys.meta_path.insert(0, Torch())
own = sys.modules.pop(__name__)
try:
    import sitecustomize
except ImportError as error:  # Others are site's to report, as without this file.
    if error.name != __name__:
        raise
finally:
    sys.modules.setdefault(__name__, own)  # The import that runs this file looks for it.

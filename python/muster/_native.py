"""Finds the native programs that pip installed, and replaces this process by one."""
import os
import sys
from importlib import metadata
from typing import NoReturn

DISTRIBUTION = "muster-launch"


def find(name: str) -> str:
    """Returns the path of `muster` or `musterctl` as recorded by the installer; else beside this Python or on PATH.

    Raises FileNotFoundError with a remedy.
    """
    import shutil

    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        files = []
    # `pip install --target` installs it into TARGET/bin but records another path.
    candidates = [str(file.locate()) for file in files if file.name == name]
    above = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    candidates += [os.path.join(folder, name) for folder in (os.path.join(above, "bin"), os.path.dirname(sys.executable))]
    for path in candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.realpath(path)
    found = shutil.which(name)
    if found:
        return found
    raise FileNotFoundError(f"the program {name} of the package {DISTRIBUTION} is not where it was installed: "
                            "install the wheel again")


def become(name: str) -> NoReturn:
    """Replaces this process by the native program, with this process's arguments. Workers get this Python, unless
    $PYTHON_EXEC or --python names another."""
    try:
        program = find(name)
    except FileNotFoundError as error:
        sys.exit(f"muster: {error}")
    environment = dict(os.environ)
    if sys.executable and not environment.get("PYTHON_EXEC"):
        environment["PYTHON_EXEC"] = sys.executable
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program, [program, *sys.argv[1:]], environment)

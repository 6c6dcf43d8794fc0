"""Where the launchers are, how each is called, and the environment that both get.

MUSTER names the muster binary, MUSTER_TORCH_VENV a virtual environment with PyTorch. Neither is guessed: a test that
cannot find what it compares must say so.
"""

import dataclasses
import os
import pathlib
import sys


@dataclasses.dataclass(frozen=True)
class Launcher:
    name: str  # "muster" or "torchrun"
    command: tuple  # what stands before the flags
    old_command: tuple  # the same as torch.distributed.launch
    forker: str = ""  # socket of a warm_torchrun.py that may run it


def torch_venv():
    venv = os.environ.get("MUSTER_TORCH_VENV")
    if not venv or not os.access(f"{venv}/bin/torchrun", os.X_OK):
        sys.exit(f"MUSTER_TORCH_VENV is {venv!r}: set it to a virtual environment with PyTorch (bin/torchrun)")
    return pathlib.Path(venv)


def torchrun():
    python = f"{torch_venv()}/bin/python"
    # As a module it is the same program, and its interpreter has the name that muster finds on PATH, too.
    return Launcher("torchrun", (python, "-m", "torch.distributed.run"), (python, "-m", "torch.distributed.launch"))


def muster():
    path = os.environ.get("MUSTER")
    if not path or not os.access(path, os.X_OK):
        sys.exit(f"MUSTER is {path!r}: set it to the muster binary")
    path = os.path.abspath(path)
    return Launcher("muster", (path,), (path,))


def base_environment():
    """Small and the same for both; LANG keeps Python from exporting a locale of its own."""
    venv = torch_venv()
    return {
        "PATH": f"{venv}/bin:/usr/local/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": str(venv),
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }

"""Entry points by which PyTorch finds the backend `muster` of torch.distributed. See docs/torch-backend.md.

    group torch.distributed.backends   PyTorch 2.14 and later: register(), when a program names the backend
    group torch.backends               PyTorch 2.5 and later:  autoload(), at the end of every `import torch`

Imports nothing before a group is made: most programs that import torch never make one.
"""
from __future__ import annotations

import sys
from typing import Any

NAME = "muster"
OLDEST, OLDEST_LAZY = (2, 5), (2, 14)


def version_of(torch: Any) -> tuple[int, ...]:
    """(2, 15) of "2.15.0+cu132"."""
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in torch.__version__.split(".")[:2])


def register() -> None:
    """Registers the backend. Raises RuntimeError with a remedy if PyTorch is too old or lacks torch.distributed."""
    import torch  # type: ignore[import-not-found]

    if version_of(torch) < OLDEST:
        raise RuntimeError(f"the backend muster needs PyTorch 2.5 or later, and this is {torch.__version__}: pip install -U torch")
    import torch.distributed as dist  # type: ignore[import-not-found]

    if not dist.is_available():
        raise RuntimeError(f"the backend muster needs torch.distributed, which PyTorch {torch.__version__} here was built without")
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def autoload() -> None:
    """Registers the backend if this PyTorch does not look for backends by name. Never raises: that would fail `import torch`."""
    try:
        torch = sys.modules["torch"]
        if OLDEST <= version_of(torch) < OLDEST_LAZY:
            register()
    except Exception:  # init_process_group("muster") reports it as missing.
        pass


def _create(options: Any, backend_options: Any = None) -> Any:
    from muster._torch import _backend

    return _backend.create(options, backend_options)

"""muster.launch(): runs a function in workers, by the native launcher."""
from __future__ import annotations

import _thread
import codecs
import fcntl
import glob
import json
import math
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from typing import IO, Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar, Union

from muster import _function
from muster._handlers import Handlers
from muster._native import find

R = TypeVar("R")
CHUNK_BYTES = 1 << 16
# Limit for silent output after the launcher's end: it leaves no process behind, but one that escaped must not hold us up.
SILENCE_S = 5
SLICE_S = 1.0
LOCK = "lock"
# Files that the launcher names on the screen, kept after a failure: last lines, and reports of hangs.
NAMED = ("*.log", "hang_*.json")


class LaunchError(RuntimeError):
    """A job has failed. If a worker raised, its own exception is raised from this one.

    rank              the global rank that failed first; None if no worker failed
    exit_code         the launcher's: the worker's own, 128 + n for signal n, or one of muster's (see `muster --help`)
    remote_traceback  that worker's traceback as text; "" if it left none
    result            the job's result.json (agent/report/schema.md) as a dictionary; {} if there was none
    """

    def __init__(self, message: str, exit_code: int, result: Dict[str, Any], remote_traceback: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.result = result
        self.remote_traceback = remote_traceback
        culprit = result.get("culprit") or {}
        self.rank: Optional[int] = culprit.get("rank")

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.args[0], self.exit_code, self.result, self.remote_traceback)

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n\n{self.remote_traceback}" if self.remote_traceback else message


def launch(fn: Callable[..., R], *args: Any, nproc: Union[int, str] = 1, kwargs: Optional[Mapping[str, Any]] = None,
           timeout: Optional[float] = None, env: Optional[Mapping[str, str]] = None, gather: str = "node",
           **options: Any) -> List[R]:
    """Runs fn(*args, **kwargs) in `nproc` new processes, the workers of one job, and returns their results by rank. On several
    nodes each calls launch(), and gets the results of its own workers, or with gather="all" of all.

    nproc    a number, or "gpu", "cpu", "auto", as for --nproc-per-node
    timeout  seconds, above 0, until the job is stopped and TimeoutError raised; None: no limit
    env      environment variables of the launcher and the workers, added to this process's
    gather   "node" or "all": the workers whose results are returned; "all" sends them through the worker library
    options  flags of the launcher: max_restarts=3 for --max-restarts 3; True for one without a value; None and False for none

    fn and its arguments are pickled: with cloudpickle, if installed, which also takes closures and functions defined at a prompt or
    in a notebook; otherwise a script has to call launch() below `if __name__ == "__main__":`.

    The exception of the worker that failed first is raised again, from a LaunchError with its traceback; other failures raise a
    LaunchError. Ctrl-C stops the job as on the command line, and a second one kills it. Raises TypeError if something cannot be
    pickled. Workers share only the standard streams with this process. Any thread may call it, several concurrently; outside of the
    main thread, a Ctrl-C of the terminal reaches the job by itself.
    """
    if hasattr(sys, _function.IS_PREPARING):
        raise RuntimeError("muster.launch() was reached while a worker imported the module that calls it: "
                           'put the call below `if __name__ == "__main__":`, or into a function; for scripts also pip install cloudpickle')
    if gather not in ("node", "all"):
        raise ValueError(f'gather is "node" or "all", not {gather!r}')
    if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout < math.inf):
        raise ValueError(f"timeout is a number of seconds above 0, or None, not {timeout!r}")
    whole_env = {**os.environ, **(env or {})}
    python = options.pop("python", None)
    logs = options.pop("log_dir", None) or whole_env.get("PET_LOG_DIR")
    with Handlers() as handlers, _Folder("muster_launch") as folder, _Folder("muster_logs") as own_logs:
        muster = find("muster")
        _sweep()
        with open(folder.file("call"), "wb") as file:
            _write_call(fn, args, dict(kwargs or {}), gather == "all", python is None, handlers, file)
        # This name appears in the verdict and in musterctl.
        program = folder.file(f"muster.launch({getattr(_function.inner(fn), '__name__', type(fn).__name__)}).py")
        os.symlink(os.path.realpath(_function.__file__), program)
        logs = os.fspath(logs or own_logs.path)
        command = [muster, f"--nproc-per-node={nproc}", f"--python={python or sys.executable}", f"--log-dir={logs}",
                   *_flags(options), program, folder.path]
        code = _Run(command, whole_env, handlers).end(timeout)
        result = _result_of_job(logs, program)
        code = result.get("exit_code", code)  # Another waiter may have reaped our child.
        if code != 0:
            _raise(code, folder.path, result, handlers)
        return _results(folder, gather, handlers)


LaunchError.__module__ = launch.__module__ = "muster"  # The name for tracebacks.


class _Folder:
    """A temporary folder, locked while its owner lives."""

    def __init__(self, name: str) -> None:
        self.path = tempfile.mkdtemp(prefix=f"{name}_{socket.gethostname()}_")
        self.lock = -1
        try:
            self.lock = os.open(self.file(LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # A file system without locks: folders of killed callers stay.
            _remove(self.file(LOCK))

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, problem: Optional[type], *_: object) -> None:
        try:
            if problem and any(glob.glob(os.path.join(glob.escape(self.path), "**", named), recursive=True) for named in NAMED):
                _remove(self.file(LOCK))  # Keep the folder.
            else:
                shutil.rmtree(self.path, ignore_errors=True)
        finally:
            if self.lock >= 0:
                os.close(self.lock)
        _remove(self.path)  # NFS keeps open files.


def _remove(path: str) -> None:
    """Removes a file, or an empty folder."""
    for remove in (os.remove, os.rmdir):
        try:
            remove(path)
        except OSError:
            pass


def _sweep() -> None:
    """Removes folders of killed callers on this machine: their locks are free."""
    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"muster_*_{glob.escape(socket.gethostname())}_*", LOCK)):
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            state = os.fstat(lock)
            # A folder not locked yet is new; a kept one has no lock file any more.
            if state.st_uid == os.getuid() and state.st_nlink > 0 and time.time() - state.st_mtime > 60:
                shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(lock)


def _flags(options: Mapping[str, Any]) -> List[str]:
    flags = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags.append(f"{flag}={value}")
    return flags


def _write_call(fn: Callable[..., Any], args: Any, kwargs: Dict[str, Any], gather: bool, same_python: bool,
                handlers: Handlers, file: IO[bytes]) -> None:
    try:
        import cloudpickle as pickler  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        pickler = pickle
    has_cloudpickle = pickler is not pickle
    try:
        call = handlers.call(pickler.dumps, (fn, args, kwargs), protocol=_function.PROTOCOL)
    except Exception as error:
        if handlers.has_raised(error):
            raise
        remedy = "" if has_cloudpickle else "; define it at the top level of a module, or pip install cloudpickle"
        raise TypeError(f"cannot send {fn!r} and its arguments to the workers: {error}{remedy}") from None
    main = None
    if not has_cloudpickle and (b"__main__" in call or b"__mp_main__" in call):
        main = _main_module(fn)
    functions = [*vars(sys.modules["__main__"]).values(), _function.inner(fn)]
    files = {function.__qualname__: function.__code__.co_filename
             for function in functions if isinstance(function, types.FunctionType) and function.__module__ == "__main__"}
    path = [os.getcwd() if entry == "" else entry for entry in sys.path]
    preparation = _function.Preparation(path if same_python else path[:1], same_python, sys.argv, main, pickler.__name__,
                                        sys.version_info[:2] if b"cloudpickle" in call else None, gather, files)
    pickle.dump(tuple(preparation), file, protocol=_function.PROTOCOL)
    file.write(call)


def _main_module(fn: Callable[..., Any]) -> Dict[str, Any]:
    """Returns the data by which multiprocessing.spawn.prepare() imports the caller's script. Its own get_preparation_data() would
    fix the caller's start method."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    name = getattr(spec, "name", None)
    path = getattr(main, "__file__", None)
    if hasattr(sys, "ps1") or (name or "").endswith("__main__") or not (name or path):
        raise TypeError(f"cannot send {fn!r} to the workers: it was defined at a prompt or in a __main__.py; pip install cloudpickle, or "
                        "put it into a module") from None
    sys.modules.setdefault("__mp_main__", main)  # Its name in the workers, and here after `import multiprocessing`.
    data: Dict[str, Any] = {"sys_argv": sys.argv, "dir": os.getcwd()}
    return {**data, "init_main_from_name": name} if name else {**data, "init_main_from_path": os.path.abspath(str(path))}


class _Run:
    """The launcher as a child process. The caller's thread starts it, since it ends with the thread that started it. Another thread
    waits for it: signal handlers run only in the main thread, which must not be blocked in that wait."""

    def __init__(self, command: List[str], env: Dict[str, str], handlers: Handlers) -> None:
        self.command, self.env = command, {**env, "MUSTER_END_WITH": str(os.getpid())}
        self.handlers = handlers
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.problem: Optional[BaseException] = None
        self.is_over = False
        # Unlocked: something changed. A handler could not set a threading.Event that the main thread waits for.
        self.asleep = _thread.allocate_lock()
        self.passed_on = 0
        self.read_at = 0.0

    def end(self, timeout: Optional[float]) -> int:
        """Runs the launcher and returns its exit code. However this ends, the launcher has ended."""
        # From the main thread, starts it in its own session: only we get a Ctrl-C, and pass it on once.
        is_main = threading.current_thread() is threading.main_thread()
        targets = [_replaced(sys.stdout, 1), _replaced(sys.stderr, 2)]
        for stream in (sys.stdout, sys.stderr):  # Earlier output comes first.
            try:
                self.handlers.call(stream.flush)
            except (AttributeError, OSError, ValueError) as error:
                if self.handlers.has_raised(error):
                    raise
        self.handlers.check()
        self.handlers.on_raise, self.handlers.on_interrupt = self.wake, self.pass_on
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            outs, errs = (None if target is None else subprocess.PIPE for target in targets)
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=outs, stderr=errs, env=self.env,
                                            start_new_session=is_main)
            self.pass_on()
            is_late = self.wait(self.process, targets, deadline)
        finally:
            self.handlers.on_raise = self.handlers.on_interrupt = None
        self.handlers.check()
        self.handlers.interrupted()
        if is_late:
            raise TimeoutError(f"the job took longer than {timeout:g} s, and was stopped")
        if self.problem is not None:
            raise self.problem
        return int(self.process.returncode)

    def wait(self, process: subprocess.Popen[bytes], targets: List[Any], deadline: Optional[float]) -> bool:
        """Waits until the launcher has ended; returns True if it took too long. A handler that raises stops it, and a second one
        kills it."""
        unread = [(source, target) for source, target in zip((process.stdout, process.stderr), targets) if source]
        pumps: List[threading.Thread] = []
        try:
            for given in unread:
                pump = threading.Thread(target=self.pump, args=given, daemon=True)
                pump.start()
                pumps.append(pump)
            threading.Thread(target=self.attend, args=(process, pumps), daemon=True).start()
        except RuntimeError as error:  # No more threads can be made.
            self.problem = error
            for source, _ in unread[len(pumps):]:
                source.close()
            process.terminate()
            process.wait()
            return False
        is_late, told = False, 0
        while not self.is_over:
            reasons = len(self.handlers.kept) + is_late
            if reasons > told:
                told = reasons
                process.send_signal(signal.SIGTERM)
            # Handlers run in this thread once it is awake, whichever thread has taken the signal.
            left = SLICE_S if deadline is None or is_late else min(SLICE_S, deadline - time.monotonic())
            if left <= 0:
                is_late = True
            else:
                self.asleep.acquire(timeout=left)
        return is_late

    def wake(self) -> None:
        try:
            self.asleep.release()
        except RuntimeError:  # Already awake.
            pass

    def pass_on(self) -> None:
        while self.process and self.passed_on < self.handlers.interrupts:
            self.passed_on += 1
            self.process.send_signal(signal.SIGINT)  # The second one kills.

    def attend(self, process: subprocess.Popen[bytes], pumps: List[threading.Thread]) -> None:
        process.wait()
        self.read_at = time.monotonic()
        while any(pump.is_alive() for pump in pumps) and time.monotonic() - self.read_at < SILENCE_S:
            for pump in pumps:
                pump.join(0.1)
        self.is_over = True
        self.wake()

    def pump(self, source: IO[bytes], target: Any) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        with source:
            while True:
                chunk = source.read1(CHUNK_BYTES)  # type: ignore[attr-defined]
                self.read_at = time.monotonic()
                try:
                    _print(decoder.decode(chunk, final=not chunk), target)
                except Exception:  # Closed, or no real stream: the job continues.
                    pass
                if not chunk:
                    return


def _replaced(stream: Any, fd: int) -> Any:
    """Returns the stream if it does not write to the descriptor: in notebooks, under pytest."""
    try:
        return None if stream is None or stream.fileno() == fd else stream
    except (AttributeError, OSError, ValueError):
        return stream


def _print(text: str, target: Any) -> None:
    try:
        target.write(text)
    except UnicodeEncodeError as error:
        target.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
    target.flush()


def _result_of_job(logs: str, program: str) -> Dict[str, Any]:
    folder = re.sub(r"\{\w+\}", "*", glob.escape(logs))
    for path in glob.glob(os.path.join(folder, "*", "result.json")):
        try:
            with open(path, encoding="utf-8") as file:
                result: Dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            continue
        if result.get("program") == program:  # Other jobs may share the folder.
            return result
    return {}


def _raise(code: int, folder: str, result: Dict[str, Any], handlers: Handlers) -> None:
    culprit = result.get("culprit") or {}
    # If no worker is to blame, an exception of one is not the cause.
    error, text = _error_of(folder, culprit.get("rank"), handlers) if culprit or not result else (None, "")
    message = result.get("summary") or f"muster exited with {code}; it has said why on stderr"
    if result.get("remedy"):
        message += f"\n{result['remedy']}"
    cause = LaunchError(message, code, result, text or "\n".join(culprit.get("stderr") or []))
    if error is None:
        raise cause
    raise error from cause


def _error_of(folder: str, rank: Optional[int], handlers: Handlers) -> Tuple[Optional[BaseException], str]:
    """Returns exception and traceback that a worker left in the last attempt; without a rank, the first."""
    newest, here = _function.ranks(folder)
    paths = [os.path.join(folder, f"error.{one}") for one in (here if rank is None else [rank])]
    for path in sorted(filter(os.path.exists, paths), key=lambda one: os.stat(one).st_mtime_ns):
        with open(path, "rb") as file:
            attempt, text = pickle.load(file)
            try:
                error = handlers.call(pickle.load, file)
            except Exception as problem:  # The exception cannot be unpickled here.
                if handlers.has_raised(problem):
                    raise
                error = None
        if attempt == newest:
            return error, text
    return None, ""


def _results(folder: _Folder, gather: str, handlers: Handlers) -> List[Any]:
    newest, here = _function.ranks(folder.path)
    if not here:
        raise ValueError("no worker was started: one of the flags makes muster print something and exit")
    name = "all" if gather == "all" else "result"
    results = []
    for rank in range(int(newest.split()[1])) if gather == "all" else here:
        try:
            with open(folder.file(f"{name}.{rank}"), "rb") as file:
                results.append(handlers.call(pickle.load, file))
        except FileNotFoundError:
            raise LaunchError(f"rank {rank} has ended without a result: the function left the interpreter by os._exit()", 0,
                              {}) from None
    return results

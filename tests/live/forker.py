"""The common parts of forkers: a forker has imported what takes seconds, and forks a child for each call.

    test ── start ──▶ forker ── fork ──▶ keeper, one for each call ── fork ──▶ child
    caller ── call(order, files) ───────▶ keeper ── the child's status, when it has ended ──▶ caller

A child never outlives its caller: if the caller hangs up, the keeper kills and reaps the child. The forker ends with the
test that started it, even if that is killed.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket


# ---- the caller's side, which imports only fast modules of the standard library


def read_line(connection):
    """A whole line, or b"" if the other end is gone."""
    line = b""
    while not line.endswith(b"\n"):
        more = connection.recv(4096)
        if not more:
            return b""
        line += more
    return line


def call(path, order, files):
    """Has a child forked that gets the order and the files; returns the connection to its keeper."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    text = (json.dumps(order) + "\n").encode()
    socket.send_fds(connection, [text[:1]], files)
    connection.sendall(text[1:])
    return connection


@contextlib.contextmanager
def running(command, **options):
    """Starts the forker `command` and waits until it takes calls."""
    import subprocess

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            if process.stdout.readline() != "ready\n":
                raise AssertionError(f"{command} did not start")
            yield
        finally:
            process.kill()


# ---- the forker's side


def serve(path):
    """Returns in the keeper of each call, with its connection, order and files; never returns in the forker."""
    gc.freeze()  # Else the garbage collector of each child copies the pages that it visits.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1000)
    print("ready", flush=True)
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    poller.register(0, select.POLLIN)
    while listener.fileno() in [file for file, _ in poller.poll()]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            first, files, _, _ = socket.recv_fds(connection, 1, 3)
            rest = read_line(connection)
            if not rest:
                os._exit(0)  # The caller ended before it sent its whole order.
            return connection, json.loads(first + rest), files
        connection.close()
    os._exit(0)


def keep(connection, child, watch=None):
    """Kills the child if the caller writes or hangs up, reaps it, and sends its status to the caller.

    A watch may have more reasons to kill the child: keep() calls `watch.look(ready, poller)` if one of `watch.files` is
    ready, and at least every `watch.patience_ms()`.
    """
    done = os.pidfd_open(child)
    poller = select.poll()
    for file in (connection.fileno(), done, *(watch.files if watch else ())):
        poller.register(file, select.POLLIN)
    while True:
        ready = [file for file, _ in poller.poll(watch.patience_ms() if watch else None)]
        if done in ready:
            break
        if connection.fileno() in ready:
            os.kill(child, signal.SIGKILL)
            poller.unregister(connection.fileno())
        if watch:
            watch.look(ready, poller)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{os.waitpid(child, 0)[1]}\n".encode())
    os._exit(0)

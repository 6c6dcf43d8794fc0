"""The worker of the differential test: says what it was started with, then does what its plan says.

PROBE_DIR    folder for reports (report.<attempt>.<rank>.json) and marks (mark.<name>.<attempt>.<rank>)
PROBE_PLAN   JSON list of steps {"do": name, ...}; "rank" and "attempt" in a step limit it to those workers

Every line that it prints by `print` starts with "P|<rank>|<attempt>|", so that the harness tells the lines of
workers from those of a launcher. It needs the standard library only and runs without a plan, too.
"""

import glob
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time

RANK = os.environ.get("RANK", "none")
ATTEMPT = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
FOLDER = os.environ.get("PROBE_DIR", "/tmp")
PATIENCE = 60  # seconds that a step waits for others before it gives up


def kind_of(descriptor):
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISCHR(mode):
        return os.readlink(f"/proc/self/fd/{descriptor}")
    return "file" if stat.S_ISREG(mode) else "pipe" if stat.S_ISFIFO(mode) else "other"


def open_descriptors():
    """All but the one that lists them."""
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    return [number for number in sorted(listed) if os.path.exists(f"/proc/self/fd/{number}")]


def signals(field):
    """The numbers in a mask of /proc/self/status, less what the interpreter itself set."""
    for line in open("/proc/self/status"):
        if line.startswith(field):
            mask = int(line.split()[1], 16)
            return [number for number in range(1, 65) if mask >> (number - 1) & 1]
    return None


def master_listens():
    try:
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        socket.create_connection(address, timeout=5).close()
        return True
    except (OSError, KeyError, ValueError):
        return False


def write_report():
    report = {
        "env": dict(os.environ),
        "argv": sys.orig_argv,
        "sys_argv": sys.argv,
        "name": __name__,
        "cwd": os.getcwd(),
        "leads_session": os.getsid(0) == os.getpid(),
        "leads_group": os.getpgid(0) == os.getpid(),
        "umask": umask(),
        "descriptors": open_descriptors(),
        "stdin": kind_of(0),
        "stdout": kind_of(1),
        "stderr": kind_of(2),
        "ignored": signals("SigIgn"),
        "blocked": signals("SigBlk"),
        "affinity": sorted(os.sched_getaffinity(0)),
        "terminal": has_terminal(),
        "master_listens": master_listens(),
        "pid": os.getpid(),
    }
    publish(f"report.{ATTEMPT}.{RANK}.json", json.dumps(report))


def has_terminal():
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        return True
    except OSError:
        return False


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return oct(mask)


def publish(name, text):
    """Whole or not at all, so that a reader never sees half of it."""
    path = os.path.join(FOLDER, name)
    with open(f"{path}.{os.getpid()}", "w") as file:
        file.write(text)
    os.replace(f"{path}.{os.getpid()}", path)


def await_files(pattern, count):
    deadline = time.monotonic() + PATIENCE
    while len(glob.glob(os.path.join(FOLDER, pattern))) < count:
        if time.monotonic() > deadline:
            sys.exit(99)
        time.sleep(0.005)


def say(stream, text):
    os.write(2 if stream == "err" else 1, f"P|{RANK}|{ATTEMPT}|{text}\n".encode())


def on_signal(step):
    number = getattr(signal, step["signal"])

    def handler(received, _frame):
        name = signal.Signals(received).name
        publish(f"mark.got-{name}.{ATTEMPT}.{RANK}", "")
        say("out", f"got {name}")
        if step["then"] == "exit":
            os._exit(step.get("code", 0))

    signal.signal(number, signal.SIG_IGN if step["then"] == "ignore" else handler)


def start_child(step):
    """A background process that outlives this one; its environment says to the harness what it is."""
    code = "import signal, time\n"
    if step.get("ignores"):
        code += f"signal.signal(signal.{step['ignores']}, signal.SIG_IGN)\n"
    code += f"open({os.path.join(FOLDER, f'mark.child.{ATTEMPT}.{RANK}')!r}, 'w')\ntime.sleep(300)\n"
    environment = os.environ | {"PROBE_ROLE": f"child of {RANK}"}
    quiet = {} if step.get("holds_output") else {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=step.get("setsid", False),
        **quiet,
    )
    await_files(f"mark.child.{ATTEMPT}.{RANK}", 1)


def write_error_file(step):
    text = step["content"].replace("@NOW@", str(int(time.time()) + step.get("offset", 0)))
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        with open(path, "w") as file:
            file.write(text)


def bind_master_port():
    """As PyTorch's store server would: with SO_REUSEADDR, on all addresses."""
    server = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(("", int(os.environ["MASTER_PORT"])))
        server.listen()
        say("out", "bound the master port")
    except OSError as error:
        say("out", f"cannot bind the master port: {error.strerror}")


def read_stdin():
    for line in sys.stdin:
        say("out", f"stdin {line.rstrip()}")
    say("out", "stdin ended")


def wait_for_ever():
    while True:
        signal.pause()


def kill_self(step):
    os.kill(os.getpid(), getattr(signal, step["signal"]))
    wait_for_ever()


STEPS = {
    "print": lambda step: say(step.get("stream", "out"), step["text"]),
    "raw": lambda step: os.write(2 if step.get("stream") == "err" else 1, step["text"].encode("latin-1")),
    "sleep": lambda step: time.sleep(step["seconds"]),
    "mark": lambda step: publish(f"mark.{step['name']}.{ATTEMPT}.{RANK}", ""),
    "await_reports": lambda step: await_files(f"report.{ATTEMPT}.*.json", step["count"]),
    "await_mark": lambda step: await_files(f"mark.{step['name']}.{ATTEMPT}.*", step["count"]),
    "on": on_signal,
    "child": start_child,
    "error_file": write_error_file,
    "bind": lambda step: bind_master_port(),
    "stdin": lambda step: read_stdin(),
    "forever": lambda step: wait_for_ever(),
    "kill": kill_self,
    "exit": lambda step: os._exit(step["code"]),
}


def main():
    write_report()
    for step in json.loads(os.environ.get("PROBE_PLAN", "[]")):
        mine = str(step.get("rank", RANK)) == RANK and str(step.get("attempt", ATTEMPT)) == ATTEMPT
        if mine:
            STEPS[step["do"]](step)


if __name__ == "__main__":
    main()

"""Draws docs/plots/verdict.svg: what a terminal shows when one of four workers fails.

    MUSTER=build/release/muster tests/bench/verdict_picture.py [--to docs/plots]

Runs the job, in a pseudo-terminal and in a folder that is removed afterwards, and draws its output: text, bold and
colours, with lines wrapped as by a terminal of that width.
"""

import argparse
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

from svg import MONOSPACE, Picture

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS, COLUMN, LINE, LETTERS = 80, 8.6, 19, 14.25  # A column's width and a line's and the letters' heights, in pixels.
COMMAND = ("muster", "--nproc-per-node", "4", "train.py")
PROGRAM = """\
import os
import time


def load(rank):
    shape = (3, 4) if rank == 2 else (4, 4)
    if shape != (4, 4):
        raise ValueError(f"wrong shape {shape}")


load(int(os.environ["RANK"]))
time.sleep(60)  # The other ranks wait for rank 2.
"""
SGR = {"1": "bold", "31": "red", "32": "green", "33": "yellow", "34": "blue", "35": "magenta", "36": "cyan"}


def printed_by(command, environment, folder):
    """Returns what the command, which must fail, writes to its terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment,
                               start_new_session=True)
    os.close(theirs)
    output = b""
    while chunk := read_some(ours):
        output += chunk
    os.close(ours)
    if process.wait() != 1:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}, wanted 1:\n{output.decode()}")
    return output.decode()


def read_some(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: no process has the other end open.
        return b""


def styled_lines(output):
    """Returns lines of (text, {styles}), none wider than the terminal."""
    lines, styles = [[]], set()
    for word in re.findall(r"\x1b\[[\d;]*m|\r?\n|[^\x1b\r\n]+|.", output):
        if word.endswith("\n"):
            lines.append([])
        elif word.startswith("\x1b["):
            for code in word[2:-1].split(";"):
                styles = set() if code in ("", "0") else styles | {SGR[code]}
        elif word.isprintable():
            while word:
                room = COLUMNS - sum(len(text) for text, _ in lines[-1])
                lines[-1].append((word[:room], styles))
                word = word[room:]
                if word:
                    lines.append([])
        else:
            sys.exit(f"{word!r} in the output cannot be drawn")
    return lines[:-1] if not lines[-1] else lines


def draw(lines):
    words = "\n".join("".join(text for text, _ in line) for line in lines)
    picture = Picture("What a terminal shows when rank 2 of 4 fails", words)
    height = 30 + LINE * len(lines)
    picture.add("rect", "screen", x=0.5, y=0.5, width=719, height=height - 1, rx=8, fill="currentColor")
    for row, line in enumerate(lines):
        column = 0
        for text, styles in line:
            colour = next(iter(styles - {"bold"}), "ink")
            look = {"font_weight": 700} if "bold" in styles else {}
            picture.text(16 + COLUMN * column, 28 + LINE * row, text, colour, LETTERS, xml__space="preserve",
                         textLength=COLUMN * len(text), **look)
            column += len(text)
    return picture.written(height, MONOSPACE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "docs" / "plots", metavar="FOLDER")
    options = parser.parse_args()
    muster = os.path.abspath(os.environ.get("MUSTER") or ROOT / "build" / "release" / "muster")
    if not os.access(muster, os.X_OK):
        sys.exit(f"{muster} cannot be run: set MUSTER to the launcher")
    with tempfile.TemporaryDirectory(prefix="example_") as folder:
        (pathlib.Path(folder) / "train.py").write_text(PROGRAM)
        environment = {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", "TMPDIR": folder, "OMP_NUM_THREADS": "1",
                       "LANG": "C.UTF-8"}
        output = printed_by((muster, *COMMAND[1:]), environment, folder)
    prompt = [(f"$ {' '.join(COMMAND)}", {"bold"})]
    options.to.mkdir(parents=True, exist_ok=True)
    (options.to / "verdict.svg").write_text(draw([prompt, *styled_lines(output)]), encoding="utf-8")


if __name__ == "__main__":
    main()

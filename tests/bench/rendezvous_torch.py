"""torch's agents for rendezvous_bench.py: imports torch once and forks them.

Reads numbers of agents. Answers each with the milliseconds from the common release of that many agents until the last one
knows its rank.
"""

import os
import pathlib
import signal
import struct
import sys
import time

from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "live"))
from ports import free_port  # noqa: E402
from waiting import pause  # noqa: E402

JOIN_TIMEOUT_S = 300


def make_handler(agents, port):
    parameters = RendezvousParameters(
        "c10d", f"127.0.0.1:{port}", "bench", agents, agents, local_addr="127.0.0.1", join_timeout=JOIN_TIMEOUT_S
    )
    return get_rendezvous_handler(parameters)


def agent(agents, port, waiting, release, ranks):
    """Reports its rank and when it knew it; stays until the others have met, because one of them hosts the store."""
    os.write(waiting, b".")
    os.read(release, 1)
    info = make_handler(agents, port).next_rendezvous()
    os.write(ranks, struct.pack("id", info.rank, time.monotonic()))
    signal.pause()


def read_exactly(file, size):
    data = b""
    while len(data) < size:
        more = os.read(file, size - len(data))
        if not more:
            sys.exit("an agent failed")
        data += more
    return data


def milliseconds(agents):
    (waiting, wait), (released, release), (ranks, rank) = os.pipe(), os.pipe(), os.pipe()
    port, children = free_port(), []
    for _ in range(agents):
        child = os.fork()
        if child == 0:
            os.close(release)
            try:
                agent(agents, port, wait, released, rank)
            finally:
                os._exit(1)
        children.append(child)
    for end in (wait, released, rank):
        os.close(end)
    try:
        read_exactly(waiting, agents)
        pause(0.2, "those that said that they wait fall asleep")
        began = time.monotonic()
        os.close(release)  # The end of the file wakes all.
        answers = [struct.unpack("id", read_exactly(ranks, struct.calcsize("id"))) for _ in range(agents)]
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
        os.close(waiting)
        os.close(ranks)
    if sorted(rank for rank, _ in answers) != list(range(agents)):
        sys.exit(f"torch gave the ranks {sorted(rank for rank, _ in answers)}")
    return 1000 * (max(at for _, at in answers) - began)


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        print(milliseconds(int(line)), flush=True)


if __name__ == "__main__":
    main()

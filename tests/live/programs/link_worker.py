"""One of up to two ranks that exchange a message every 50 ms, by a socket of their own or by gloo.

    link_worker.py {sockets|gloo} FOLDER STEPS

Creates in FOLDER: up.RANK.PID at its start, met.RANK once the ranks are connected, last.RANK before its end, and `progress`,
from which it continues after a restart.
"""
import os
import socket
import sys
import time

kind, folder, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PATIENCE_S = 60.0


def leave(name, text=""):
    with open(f"{folder}/{name}.draft{rank}", "w", encoding="ascii") as file:
        file.write(text)
    os.rename(f"{folder}/{name}.draft{rank}", f"{folder}/{name}")


def meet():
    """Returns a socket connected to the other rank."""
    if rank == 0:
        return socket.create_server(("", 29555)).accept()[0]
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((os.environ["MASTER_ADDR"], 29555), PATIENCE_S)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def exchange_by_socket():
    other = meet()
    other.settimeout(PATIENCE_S)

    def exchange():
        other.sendall(b"x")
        if not other.recv(1):
            raise ConnectionError("the other rank has gone")
    return exchange


def exchange_by_gloo():
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    value = torch.ones(100)
    return lambda: dist.all_reduce(value)


leave(f"up.{rank}.{os.getpid()}")
exchange = (lambda: None) if world == 1 else exchange_by_socket() if kind == "sockets" else exchange_by_gloo()
exchange()
leave(f"met.{rank}")
begun = int(open(f"{folder}/progress", encoding="ascii").read()) if os.path.exists(f"{folder}/progress") else 0
for step in range(begun, steps):
    exchange()
    if rank == 0:
        leave("progress", str(step))
    time.sleep(0.05)
leave(f"last.{rank}")
time.sleep(1.0)

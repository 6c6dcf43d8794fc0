"""Ports on this machine for tests that run at the same time."""
import random
import socket

DEFAULTS = {29400, 29500}  # Of torchrun and PyTorch: a program that is given no port takes them.
_chance = random.SystemRandom()


def free_port():
    """A port that nobody has: no other test gets it while this process lives, and the kernel gives it to no connection.

    What reserves it is an abstract Unix socket of its number, which is known where the port is: in this network namespace.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        low = int(f.read().split()[0])
    candidates = sorted(set(range(max(1024, low - 16384), low) or range(20000, 30000)) - DEFAULTS)
    while True:
        port = _chance.choice(candidates)
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(b"\0muster-test-port-%d" % port)
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            mark.close()
            continue
        mark.detach()  # Open until this process ends.
        return port


def listening():
    """(a socket that listens on loopback, its port)"""
    server = socket.create_server(("127.0.0.1", 0))
    return server, server.getsockname()[1]

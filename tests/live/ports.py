"""TCP ports for tests that run at the same time."""
import glob
import random
import socket

DEFAULTS = {29400, 29500}  # torchrun and PyTorch take these if no port is given.
_chance = random.SystemRandom()


def free_port():
    """Returns a free port that no other test gets while this process lives, and the kernel no outgoing connection.

    An abstract Unix socket named after the port reserves it: both have the network namespace as their scope.
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


def listeners(port):
    """Returns the inodes of the sockets that listen on a port. The kernel is asked: a connection would be an unknown peer's."""
    found = set()
    for table in glob.glob("/proc/net/tcp*"):
        with open(table, encoding="ascii") as f:
            for words in map(str.split, f):
                if words[1].endswith(f":{port:04X}") and words[3] == "0A":
                    found.add(words[9])
    return found


def listening():
    """Returns (a socket that listens on loopback, its port)."""
    server = socket.create_server(("127.0.0.1", 0))
    return server, server.getsockname()[1]

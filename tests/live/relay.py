"""A middleman between a node and the host of its job."""
import select
import socket
import struct
import threading

from ports import listening


def frames_of(said):
    """Splits what one side has sent, without the node's magic, into whole frames."""
    frames, rest = [], bytes(said)
    while len(rest) >= 4 and len(rest) >= 4 + struct.unpack("<I", rest[:4])[0]:
        size = 4 + struct.unpack("<I", rest[:4])[0]
        frames, rest = frames + [rest[:size]], rest[size:]
    return frames


class Way:
    """One connection: the data from each side, and whether it has ended."""

    def __init__(self, near, far):
        self.near, self.far = near, far
        self.said, self.heard = bytearray(), bytearray()
        self.over = threading.Event()

    def pass_on(self):
        try:
            while True:
                for source in select.select([self.near, self.far], [], [])[0]:
                    data = source.recv(65536)
                    if source is self.near:
                        self.said += data
                        self.far.sendall(data)
                    else:
                        self.heard += data
                        self.near.sendall(data)
                    if not data:
                        return
        except OSError:
            pass
        finally:
            self.over.set()
            self.near.close()
            self.far.close()

    def is_joined(self):
        """Returns True if the handshake is over and the connection still lives."""
        return not self.over.is_set() and len(frames_of(self.heard)) > 2


class Relay:
    """Passes one node's connections on to the host, and keeps the data of each.

    On a busy machine the first one may end before its handshake does."""

    def __init__(self, port):
        self.server, self.port = listening()
        self.target = port
        self.ways = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # The host is not up yet.
                near.close()
                continue
            self.ways.append(Way(near, far))
            threading.Thread(target=self.ways[-1].pass_on, daemon=True).start()

    def handshake(self):
        """Returns (magic and Hello, Join) as the node sent them, or None."""
        for said in (bytes(way.said) for way in self.ways):
            frames = frames_of(said[4:])
            if len(frames) >= 2:
                return said[:4] + frames[0], frames[1]
        return None

    def close(self):
        self.server.close()

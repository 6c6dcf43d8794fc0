"""Another user of a machine on which a job runs: tries to get into it, and prints the outcome of each attempt.

    stranger.py WORLD_SIZE PID...
    stranger.py store HOST PORT
    stranger.py text SINCE FOLDER...

Uses only what any user can learn: from /proc, the file systems, and ports. Prints a line for each attempt, "ATTEMPT:
OUTCOME"; "ATTEMPT: IN" if it got in. With "store" it tries the store of another machine; with "text" it prints all texts
that it can read, of files those that have changed since SINCE (seconds since 1970).
"""
import concurrent.futures
import os
import re
import signal
import socket
import stat
import struct
import sys

LIMIT_S = 2.0
# Numbers of messages, and of a rank's events, from worker_lib/watch/watch_wire.h.
HELLO, NEWS, CHALLENGE, PROOF = 0, 1, 7, 8
DIED, ABORTED = 0, 2
PEER_FAILED = 3


def say(attempt, what):
    print(f"{attempt}: {what}", flush=True)


def frame(kind, body):
    return struct.pack("<IB", len(body), kind) + body


def text(value):
    return struct.pack("<I", len(value)) + value


def news(kind, rank, group=b""):
    failure = struct.pack("<B", PEER_FAILED) + text(b"a stranger's words") + struct.pack("<Ii", 1, rank)
    nothing_left = struct.pack("<IQI", 0, 1, 0)  # Nothing performed, the update's number, nothing pending.
    return frame(NEWS, struct.pack("<Bi", kind, rank) + text(group) + failure + nothing_left)


def unix_names():
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
        words = [line.split() for line in f]
    return sorted({w[7][1:] for w in words if len(w) > 7 and w[7].startswith("@")})


def listening_ports():
    """Returns [(address, port)] of TCP on this machine."""
    found = []
    for name, family in ("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6):
        with open(f"/proc/net/{name}", encoding="utf-8") as f:
            for line in list(f)[1:]:
                words = line.split()
                if words[3] != "0A":
                    continue
                raw, port = words[1].split(":")
                packed = b"".join(struct.pack("=I", int(raw[i:i + 8], 16)) for i in range(0, len(raw), 8))
                found.append((socket.inet_ntop(family, packed), int(port, 16)))
    return found


def connect(place):
    """Connects to an abstract name, or to an address and port. Returns None if no connection is accepted."""
    if isinstance(place, str):
        made = [(socket.AF_UNIX, kind, b"\0" + place.encode()) for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)]
    else:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(place[0], place[0])
        made = [(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, (host, place[1]))]
    for family, kind, address in made:
        link = socket.socket(family, kind)
        link.settimeout(LIMIT_S)
        try:
            link.connect(address)
            return link
        except OSError:
            link.close()
    return None


def answer_to(link, bytes_sent, count):
    """Returns the reply, at most `count` bytes; less once the other end hangs up or stays silent."""
    heard = b""
    try:
        link.sendall(bytes_sent)
        while len(heard) < count:
            more = link.recv(count - len(heard))
            if not more:
                break
            heard += more
    except OSError:
        pass
    return heard


def forge_watch(place, world):
    """Sends a death, an abort, a rank, a question. A service that is no watch answers neither of two ranks."""
    came = []
    for rank in range(world):
        if rank == 2 and set(came) == {"refused"}:
            break
        for asks in False, True:
            for then in (news(DIED, 0), news(ABORTED, rank, b"world")), ():
                link = connect(place)
                if link is None:
                    return "no connection"
                nonce = os.urandom(16)
                hello = frame(HELLO, nonce + struct.pack("<ii?", rank, world, asks))
                heard = answer_to(link, hello, 5 + 48)
                if len(heard) == 5 + 48 and heard[4] == CHALLENGE:
                    echo = heard[21:53]
                    heard = answer_to(link, frame(PROOF, echo) + b"".join(then), 1)
                    came.append("IN" if heard else "refused after a challenge")
                else:
                    came.append("IN" if heard else "refused")
                link.close()
    return "IN" if "IN" in came else sorted(set(came))[-1]


def forge_data(place, world):
    """Takes over the data connection of a rank, or hands one over to a process of its own."""
    came = set()
    for rank in range(world):
        if rank == 1 and came == {"refused"}:
            break
        for purpose in 0, 1:
            link = connect(place)
            if link is None:
                return "no connection"
            heard = answer_to(link, struct.pack("=IIB3xi", 0x4b4c554d, 2, purpose, rank) + os.urandom(16), 48)
            if len(heard) == 48:
                heard = answer_to(link, heard[16:] + b"data" * 1000, 1)
                came.add("IN" if heard else "refused after a challenge")
            else:
                came.add("refused" if not heard else "another protocol")
            link.close()
    return "IN" if "IN" in came else sorted(came)[-1]


def use_store(place):
    """Speaks PyTorch's protocol: VALIDATE, then PING."""
    link = connect(place)
    if link is None:
        return "no connection"
    heard = answer_to(link, b"\0\xce\xf7\x85\x3c\x0decho", 4)
    link.close()
    return "IN" if heard == b"echo" else "refused"


def use_remote_store(place):
    """Returns [(attempt, outcome)] of each kind of request to a store."""
    def long(value):
        return struct.pack("<Q", len(value)) + value
    ping = b"\x0decho"
    large = b"\1" + long(b"/stranger") + long(bytes(8 << 20))  # The largest value that the store accepts.
    for attempt, request in (("read", b"\5" + struct.pack("<Q", 1) + long(b"/init")), ("list", b"\x11"),
                             ("write", b"\1" + long(b"/stranger") + long(b"was here") + ping),
                             ("fill", large.replace(b"/stranger", b"/filler_1") + large.replace(b"/stranger", b"/filler_2") + ping)):
        link = connect(place)
        if link is None:
            yield attempt, "no connection"
            continue
        heard = answer_to(link, b"\0\xce\xf7\x85\x3c" + request, 1)
        link.close()
        yield attempt, "IN" if heard else "refused"


def join(place):
    """Joins as an agent of a job without a token; see rendezvous/membership/PROTOCOL.md."""
    link = connect(place)
    if link is None:
        return "no connection"
    hello = struct.pack("<BH", 1, 5) + text(b"job") + os.urandom(16)
    head = answer_to(link, b"MSTR" + struct.pack("<I", len(hello)) + hello, 5)
    if len(head) < 5 or head[4] != 65:
        return "refused"
    answer_to(link, b"", struct.unpack("<I", head[:4])[0] - 1)
    body = (struct.pack("<B2Q", 2, 1, 2) + text(b"host") + struct.pack("<Bi", 0, 1) + text(b"default")
            + text(b"10.0.0.1") + text(b"10.0.0.1") + struct.pack("<B", 0) + text(b"") + text(b"")
            + struct.pack("<B4iB", 0, 2, 2, 0, 0, 0)
            + struct.pack("<3q", 0, 10 ** 11, 10 ** 10) + struct.pack("<2Q4i", 0, 0, -1, 0, 0, 0))
    head = answer_to(link, struct.pack("<I", len(body)) + body, 5)
    link.close()
    return "IN" if len(head) == 5 and head[4] == 66 else "refused"


def take_memory(name):
    """Asks for the node's shared memory: its descriptor comes with the answer."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.settimeout(LIMIT_S)
    try:
        link.connect(b"\0" + name.encode())
        link.send(struct.pack("=i", 1))
        _, ancillary, _, _ = link.recvmsg(1, socket.CMSG_SPACE(4))
        return "IN" if ancillary else "refused"
    except OSError:
        return "refused"
    finally:
        link.close()


def send_signals(pids):
    for pid in pids:
        for number in signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP:
            try:
                os.kill(pid, number)
                return "IN"
            except PermissionError:
                pass
    return "refused"


def look_into(pids):
    for pid in pids:
        for name in "environ", "mem", "maps", "fd", "cwd", "exe", "stack", "syscall", "fdinfo", "map_files":
            path = f"/proc/{pid}/{name}"
            try:
                if name in ("fd", "fdinfo", "map_files"):
                    opened = os.listdir(path)
                elif name in ("cwd", "exe"):
                    opened = os.readlink(path)
                else:
                    with open(path, "rb") as f:
                        opened = f.read(1)
                if opened:
                    return f"IN by {path}"
            except OSError:
                pass
    return "refused"


def readable_texts(since, folders):
    """Yields everything that could hold a leaked secret and is newer than `since`. Files may come and go meanwhile."""
    yield "\n".join(unix_names())
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in "cmdline", "environ", "comm", "status", "wchan":
            yield read(f"/proc/{pid}/{name}")
    for root in "/tmp", "/dev/shm", "/run", "/var/tmp", *folders:
        for folder, _, files in os.walk(root):
            yield folder
            for name in files:
                yield name
                yield read_if_new(os.path.join(folder, name), since)


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def read_if_new(path, since):
    try:
        found = os.stat(path)
    except OSError:
        return ""
    is_new = stat.S_ISREG(found.st_mode) and found.st_mtime >= since and found.st_size < 1 << 20
    return read(path) if is_new else ""


def main():
    if sys.argv[1] == "text":
        for one in readable_texts(float(sys.argv[2]), sys.argv[3:]):
            print(one)
        return
    if sys.argv[1] == "store":
        for attempt, outcome in use_remote_store((sys.argv[2], int(sys.argv[3]))):
            say(attempt, outcome)
        return
    world, pids = int(sys.argv[1]), [int(pid) for pid in sys.argv[2:]]
    say("signals", send_signals(pids))
    say("processes", look_into(pids))
    names = [name for name in unix_names() if re.match("muster", name)]
    ports = listening_ports()
    say("names", len(names))
    say("ports", len(ports))
    attempts = [(what, attempt, name) for name in names for what, attempt in
                (("watch over unix", lambda place: forge_watch(place, world)),
                 ("data over unix", lambda place: forge_data(place, world)), ("memory", take_memory))]
    attempts += [(what, attempt, place) for place in ports for what, attempt in
                 (("watch over tcp", lambda place: forge_watch(place, world)),
                  ("data over tcp", lambda place: forge_data(place, world)), ("store", use_store), ("join", join))]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        outcomes = pool.map(lambda one: one[1](one[2]), attempts)
        for (what, _, _), outcome in zip(attempts, outcomes):
            say(what, outcome)


if __name__ == "__main__":
    main()

"""A middlebox that forgets: forwards frames between two interfaces and silently drops segments of TCP flows that it does
not know. A flow is known from its SYN until it has been idle for the given time. NAT gateways and stateful firewalls
treat idle connections like that: neither end is notified.

    netns_middlebox.py INSIDE OUTSIDE IDLE_SECONDS

Runs inside the hub's namespace (netns.py starts it). Prints "forwarding" once it does, and one line for the first
segment that it drops of each forgotten flow. Frames keep their virtio header, so that checksums and segmentation that
the kernel has deferred stay deferred.
"""
import select
import socket
import struct
import sys
import time

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_VNET_HDR = 15
PACKET_OUTGOING = 4
VNET_HDR = 10
ETHERNET = 14
TCP = 6
SYN, ACK = 0x02, 0x10


def open_port(name):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    port.bind((name, 0))
    port.setblocking(False)
    return port


def tcp_of(frame):
    """Returns (flow, flags) of a TCP segment, None for any other frame. Both directions have the same flow."""
    packet = frame[VNET_HDR + ETHERNET:]
    kind = frame[VNET_HDR + 12:VNET_HDR + ETHERNET]
    if kind == b"\x08\x00" and len(packet) >= 20 and packet[9] == TCP:
        addresses, segment = (packet[12:16], packet[16:20]), packet[(packet[0] & 15) * 4:]
    elif kind == b"\x86\xdd" and len(packet) >= 40 and packet[6] == TCP:
        addresses, segment = (packet[8:24], packet[24:40]), packet[40:]
    else:
        return None
    if len(segment) < 14:
        return None
    ports = struct.unpack("!HH", segment[:4])
    return tuple(sorted(zip(addresses, ports))), segment[13]


class Flows:
    """The known flows. The caller supplies the time."""

    def __init__(self, idle_s):
        self.idle_s = idle_s
        self.last_seen = {}
        self.missed = set()

    def passes(self, frame, now):
        """(does it pass?, the flow that is missed for the first time or None)"""
        tcp = tcp_of(frame)
        if tcp is None:
            return True, None
        flow, flags = tcp
        known = flow in self.last_seen and now - self.last_seen[flow] <= self.idle_s
        if known or (flags & (SYN | ACK)) == SYN:
            self.last_seen[flow] = now
            self.missed.discard(flow)
            return True, None
        first = flow not in self.missed
        self.missed.add(flow)
        return False, flow if first else None


def forward(source, target, flows):
    while True:
        try:
            frame, address = source.recvfrom(1 << 17)
        except BlockingIOError:
            return
        if address[2] == PACKET_OUTGOING:
            continue
        passes, missed = flows.passes(frame, time.monotonic())
        if missed:
            print("dropping", *(port for _, port in missed), flush=True)
        if passes:
            try:
                target.send(frame)
            except OSError:
                pass  # The cable is out, or its queue is full: a real link loses frames there too.


def main():
    inside, outside = open_port(sys.argv[1]), open_port(sys.argv[2])
    flows = Flows(float(sys.argv[3]))
    print("forwarding", flush=True)
    while True:
        ready, _, _ = select.select([inside, outside], [], [])
        for port in ready:
            forward(port, outside if port is inside else inside, flows)


if __name__ == "__main__":
    main()
